# calls.awk: reads the headers of include/ and writes, for test_arguments.c, a function that calls each exported function with
# picked samples, and a table of them all. A declaration that cannot be read, or a type without samples, is an error, so
# that no function is left out.
#
#     static void call_lz_sum(const int *pick) {
#         lz_array *a0 = give_array(pick[0]);
#         lz_dims a1 = give_dims(pick[1]);
#         bool a2 = give_bool(pick[2]);
#         saw_array((lz_sum)(a0, a1, a2));
#     }

# "lz_array *:array, int:int" -> to["lz_array *"] = "array", to["int"] = "int"
function read_table(rows, to,    n, i, half) {
    n = split(rows, row, ", ")
    for (i = 1; i <= n; i++) {
        split(row[i], half, ":")
        to[half[1]] = half[2]
    }
}

BEGIN {
    # give_KIND of test_arguments.c makes samples of this type ...
    read_table("lz_context *:context, const lz_context *:context, lz_array *:array, const lz_array *:array, " \
               "lz_array *const *:arrays, lz_array **:array_places, lz_scope *:scope, lz_stream *:stream, " \
               "lz_compiled *:compiled, const lz_compiled *:compiled, lz_weights *:weights, " \
               "const lz_weights *:weights, lz_model *:model, const lz_model *:model, lz_tokenizer *:tokenizer, " \
               "const lz_tokenizer *:tokenizer, lz_error *:error, const void *:data, void *:place, " \
               "char *:owned_text, const char *:text, const char *const *:pairs, int:int, int64_t:int64, " \
               "size_t:size, uint64_t:uint64, double:double, bool:bool, int64_t *:count_place, " \
               "int64_t **:ids_place, lz_status:status, lz_dtype:dtype, lz_graph_format:format, lz_dims:dims, " \
               "lz_addmm_options:addmm, lz_sdpa_options:sdpa, lz_rope_options:rope, lz_conv2d_options:conv2d, " \
               "lz_unpack_options:unpack, " \
               "const lz_context_options *:context_options, const lz_model_options *:model_options, lz_plan_info *:plan_info, lz_function:function, " \
               "void (*)(void *):release, const lz_named_array *:named_arrays, const lz_image *:image, " \
               "lz_image *:image_place, const lz_picture_options *:picture_options, const lz_convert_options *:convert_options, " \
               "lz_picture_options *:own_options, lz_picture *:picture, lz_picture_plan *:picture_plan, " \
               "lz_remarks *:remarks, lz_device_info *:devices, const lz_lora *:loras, " \
               "lz_lora_facts *:lora_facts, lz_file_facts *:file_facts, lz_job *:job, const lz_job *:job, " \
               "lz_job *const *:jobs", kind_of_type)
    # ... or of parameters with this type and name, or of this parameter of this function.
    read_table("const char *path:path, const char *folder:folder, lz_dims axes:axes, lz_array *indices:indices, " \
               "lz_array *latents:latents, lz_array *weight:row, lz_array *bias:row", kind_of_name)
    read_table("lz_split.parts:parts, lz_copy.bytes:bytes, lz_image_decode.bytes:length, " \
               "lz_image_decode_text.bytes:length, lz_free_ids.ids:ids, lz_job_wait.job:ended_job, lz_jobs_run.pictures:pictures, lz_jobs_run.errors:errors, " \
               "lz_conv2d_with.x:planes, " \
               "lz_conv2d_with.w:planes, lz_sdpa_with.q:planes, lz_sdpa_with.k:planes, lz_sdpa_with.v:planes, " \
               "lz_upsample_nearest.x:planes, lz_group_norm.x:planes", kind_of_parameter)
    # saw_KIND looks at a result of this type.
    read_table("lz_array *:array, lz_status:status, lz_context *:context, lz_scope *:scope, lz_stream *:stream, " \
               "lz_compiled *:compiled, lz_weights *:weights, lz_model *:model, lz_tokenizer *:tokenizer, " \
               "char *:owned_text, const char *:text, const void *:data, int64_t:number, double:number, " \
               "bool:number, int:number, lz_dtype:number, lz_dims:dims, lz_memory:memory, lz_compile_stats:stats, " \
               "lz_model_facts:facts, lz_job *:job, lz_job_view:view, const lz_picture_options *:settled, " \
               "void:nothing", kind_of_result)
}

/^#ifdef __cplusplus/ { skip = 1 }
/^#/ || continued { continued = /\\$/; if (/^#endif/) skip = 0; next }
!skip { text = text $0 "\n" }

function fail(why) {
    print "calls.awk: " why > "/dev/stderr"
    failed = 1
    exit 1
}

function without_comments(s,    out, begin, end) {
    while ((begin = index(s, "/*")) > 0) {
        out = out substr(s, 1, begin - 1) " "
        s = substr(s, begin + 2)
        end = index(s, "*/")
        s = substr(s, end + 2)
    }
    return out s
}

function without_braces(s,    out, i, c, depth, n) {
    n = split(s, chars, "")
    for (i = 1; i <= n; i++) {
        c = chars[i]
        if (c == "{") depth++
        if (depth == 0) out = out c
        if (c == "}") depth--
    }
    return out
}

function trimmed(s) {
    gsub(/[ \n\t]+/, " ", s)
    sub(/^ /, "", s)
    sub(/ $/, "", s)
    return s
}

# Parameters are parted by commas outside parentheses.
function split_parameters(s, to,    n, i, c, depth, part, length_) {
    n = 0
    part = ""
    length_ = split(s, chars, "")
    for (i = 1; i <= length_; i++) {
        c = chars[i]
        if (c == "(") depth++
        if (c == ")") depth--
        if (c == "," && depth == 0) {
            to[++n] = trimmed(part)
            part = ""
        } else part = part c
    }
    if (trimmed(part) != "" && trimmed(part) != "void") to[++n] = trimmed(part)
    return n
}

function read_declaration(s,    open, head, name, result, inside, n, i, type, parameter, kind, list, named, picks) {
    open = index(s, "(")
    if (!open || s !~ /\)$/) fail("this declaration cannot be read: " s)
    head = trimmed(substr(s, 1, open - 1))
    inside = substr(s, open + 1, length(s) - open - 1)
    if (!match(head, /lz_[a-z0-9_]+$/)) fail("this declaration has no name that begins with lz_: " s)
    name = substr(head, RSTART)
    result = trimmed(substr(head, 1, RSTART - 1))
    if (!(result in kind_of_result)) fail(name ": nothing looks at results of type '" result "'")
    n = split_parameters(inside, parameters)
    list = ""
    picks = ""
    print "static void call_" name "(const int *pick) {"
    if (!n) print "    (void)pick;"
    for (i = 1; i <= n; i++) {
        parameter = parameters[i]
        if (match(parameter, /\(\*[a-z_]+\)/)) {
            type = substr(parameter, 1, RSTART + 1) substr(parameter, RSTART + RLENGTH - 1)
            parameter = substr(parameter, RSTART + 2, RLENGTH - 3)
        } else {
            if (!match(parameter, /[a-z_0-9]+$/)) fail(name ": parameter " i " has no name: " parameter)
            type = trimmed(substr(parameter, 1, RSTART - 1))
            parameter = substr(parameter, RSTART)
        }
        named = type (type ~ /\*$/ ? "" : " ") parameter
        if ((name "." parameter) in kind_of_parameter) kind = kind_of_parameter[name "." parameter]
        else if (named in kind_of_name) kind = kind_of_name[named]
        else if (type in kind_of_type) kind = kind_of_type[type]
        else fail(name ": there are no samples of type '" type "'")
        if (type ~ /\(\*\)/) sub(/\(\*\)/, "(*a" i - 1 ")", type)
        else type = type (type ~ /\*$/ ? "" : " ") "a" i - 1
        print "    " type " = give_" kind "(pick[" i - 1 "]);"
        list = list (i > 1 ? ", " : "") "a" i - 1
        picks = picks (i > 1 ? ", " : "") "KIND_" kind
    }
    if (result == "void") print "    (" name ")(" list ");\n    saw_nothing();"
    else print "    saw_" kind_of_result[result] "((" name ")(" list "));"
    print "}"
    table = table "    {\"" name "\", call_" name ", " n ", {" (n ? picks : "0") "}},\n"
}

END {
    if (failed) exit 1
    print "/* Made from the headers of include/ by tests/calls.awk. */"
    count = split(without_braces(without_comments(text)), statements, ";")
    for (k = 1; k <= count; k++) {
        statement = trimmed(statements[k])
        if (statement == "" || statement ~ /^typedef /) continue
        read_declaration(statement)
    }
    print "static const call calls[] = {\n" table "};"
}
