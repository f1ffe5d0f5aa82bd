/* openapi.c: GET /api/v1/openapi.json, an OpenAPI 3.1 document of every path. Paths come from the table of route.c, and
 * the fields of requests from the tables of wanted.c, so that the document cannot differ from what the server does. The
 * schemas of answers are texts here, with ' in place of ". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fields.h"
#include "guard.h"
#include "handlers.h"

#define ID_PATTERN "^[A-Za-z0-9._-]{1,64}$"

/* ---- schemas ----------------------------------------------------------------------------------------------------- */

typedef struct named {
    const char *name, *schema;
} named;

static const named schemas[] = {
    {"Error", "{'type':'object','required':['error'],'properties':{'error':{'type':'object',"
              "'required':['message','type','param','code'],'properties':{'message':{'type':'string'},"
              "'type':{'type':'string'},'param':{'type':['string','null']},'code':{'type':['string','null']}}}}}"},
    {"SdError", "{'type':'object','required':['detail','error'],'properties':{'detail':{'type':['string','array']},"
                "'error':{'type':'string'}}}"},
    {"Status", "{'type':'object','required':['status'],'properties':{'status':{'type':'string'}}}"},
    {"Object", "{'type':'object'}"},
    {"Null", "{'type':'null'}"},
    {"List", "{'type':['array','object']}"},
    {"Model", "{'type':'object','required':['id','object','created','owned_by'],'properties':{'id':{'type':'string'},"
              "'object':{'const':'model'},'created':{'type':'integer'},'owned_by':{'type':'string'},"
              "'family':{'type':'string'},'capabilities':{'type':'array','items':{'type':'string'}},"
              "'loaded':{'type':'boolean'}}}"},
    {"Models", "{'type':'object','required':['object','data'],'properties':{'object':{'const':'list'},"
               "'data':{'type':'array','items':{'$ref':'#/components/schemas/Model'}}}}"},
    {"Usage", "{'type':'object','required':['input_tokens','output_tokens','total_tokens'],'properties':{"
              "'input_tokens':{'type':'integer'},'output_tokens':{'type':'integer'},"
              "'total_tokens':{'type':'integer'}}}"},
    {"Images",
     "{'type':'object','required':['created','data','size','output_format','usage'],'properties':{"
     "'created':{'type':'integer'},'size':{'type':'string'},'output_format':{'type':'string'},"
     "'quality':{'type':'string'},'background':{'type':'string'},'usage':{'$ref':'#/components/schemas/Usage'},"
     "'data':{'type':'array','items':{'type':'object','required':['seed'],'properties':{"
     "'b64_json':{'type':'string'},'url':{'type':'string'},'seed':{'type':'integer'},'layer':{'type':'integer'}}}}}}"},
    {"Picture",
     "{'type':'object','required':['id','job','seed','width','height','bytes','format','created','pinned'],"
     "'properties':{'id':{'type':'string'},'job':{'type':'string'},'seed':{'type':'integer'},"
     "'width':{'type':'integer'},'height':{'type':'integer'},'bytes':{'type':'integer'},"
     "'format':{'enum':['png','jpeg','webp']},'created':{'type':'integer'},'pinned':{'type':'boolean'},'"
     "rating':{'type':'integer','minimum':0,'maximum':5},"
     "'layer':{'type':'integer'},'milliseconds':{'type':['object','null']},'settings':{'type':['object','null']}}}"},
    {"Pictures", "{'type':'object','required':['pictures','more'],'properties':{'more':{'type':'boolean'},"
                 "'next':{'type':'string'},"
                 "'pictures':{'type':'array','items':{'$ref':'#/components/schemas/Picture'}}}}"},
    {"Job",
     "{'type':'object','required':['id','status','created','queue_position','settings','pictures','error'],"
     "'properties':{'id':{'type':'string'},"
     "'status':{'enum':['queued','in_progress','completed','failed','cancelled']},"
     "'created':{'type':['integer','null']},'started':{'type':['integer','null']},"
     "'completed':{'type':['integer','null']},'queue_position':{'type':'integer'},"
     "'eta_seconds':{'type':['number','null']},'stage':{'type':['string','null']},'step':{'type':'integer'},"
     "'steps':{'type':'integer'},'attempts':{'type':'integer'},'source':{'enum':['openai','api','sdapi','page']},"
     "'settings':{'type':'object'},'pictures':{'type':'array','items':{'$ref':'#/components/schemas/Picture'}},"
     "'error':{'type':['object','null'],'properties':{'code':{'type':'string'},'message':{'type':'string'}}}}}"},
    {"Jobs", "{'type':'object','required':['jobs','more'],'properties':{'more':{'type':'boolean'},"
             "'jobs':{'type':'array','items':{'$ref':'#/components/schemas/Job'}}}}"},
    {"Cancelled", "{'type':'object','required':['cancelled'],'properties':{'cancelled':{'type':'integer'}}}"},
    {"Planned",
     "{'type':'object','required':['bytes','operations','steps','width','height','fits','seconds'],"
     "'properties':{'bytes':{'type':'integer'},'weight_bytes':{'type':'integer'},'needed':{'type':'integer'},"
     "'available':{'type':'integer'},"
     "'operations':{'type':'number'},'steps':{'type':'integer'},'width':{'type':'integer'},"
     "'height':{'type':'integer'},'fits':{'type':'boolean'},'seconds':{'type':['number','null']},'remarks':{"
     "'type':'object'}}}"},
    {"Upload", "{'type':'object','required':['id','width','height'],'properties':{'id':{'type':'string'},"
               "'width':{'type':'integer'},'height':{'type':'integer'}}}"},
    {"About", "{'type':'object','required':['version','device','key_needed','models','samplers','schedules','limits'],"
              "'properties':{'version':{'type':'string'},'device':{'type':'string'},'key_needed':{'type':'boolean'},"
              "'models':{'type':'array','items':{'type':'object'}},'samplers':{'type':'array'},"
              "'schedules':{'type':'array'},'limits':{'type':'object'}}}"},
    {"SdImages", "{'type':'object','required':['images','parameters','info'],'properties':{'images':{'type':'array',"
                 "'items':{'type':'string'}},'parameters':{'type':'object'},'info':{'type':'string'}}}"},
    {"SdProgress", "{'type':'object','required':['progress','eta_relative','state','current_image'],'properties':{"
                   "'progress':{'type':'number'},'eta_relative':{'type':'number'},'state':{'type':'object'},"
                   "'current_image':{'type':['string','null']}}}"},
    {"SdInfo", "{'type':'object','required':['info','items','parameters'],'properties':{'info':{'type':'string'},"
               "'items':{'type':'object'},'parameters':{'type':'object'}}}"},
    /* bodies that are not described by a table of fields */
    {"Key", "{'type':'object','properties':{'key':{'type':'string'}}}"},
    {"Change", "{'type':'object','properties':{'pinned':{'type':'boolean'},'rating':{'type':'integer','minimum':0,'"
               "maximum':5}}}"},
    {"SdOptions", "{'type':'object','properties':{'sd_model_checkpoint':{'type':['string','null']}}}"},
    {"SdPicture", "{'type':'object','required':['image'],'properties':{'image':{'type':'string'}}}"},
};

/* Fields whose table row says less than their rule. */
#define PICTURE "{'type':['string','object','null'],'description':'a data URL, upload:ID, picture:ID, or {image_url}'}"
#define PICTURES                                                                                                       \
    "{'type':['array','string','object','null'],'items':{'type':['string','object']},"                                 \
    "'description':'data URLs, upload:ID, picture:ID, or {image_url}'}"
static const named openai_rules[] = {
    {"size", "{'type':['string','null'],'pattern':'^([0-9]{1,9}x[0-9]{1,9}|auto|)$',"
             "'description':'WIDTHxHEIGHT with sides of 64 to 4096, or auto'}"},
    {"image", PICTURES},
    {"images", PICTURES},
    {"mask", PICTURE},
    {NULL, NULL},
};
static const named native_rules[] = {
    {"seed", "{'type':['integer','array','null'],'minimum':-1,'items':{'type':'integer','minimum':0},'minItems':1,"
             "'maxItems':10}"},
    {"image", PICTURES},
    {"images", PICTURES},
    {"mask", PICTURE},
    {NULL, NULL},
};
static const named sdapi_rules[] = {
    {"init_images", "{'type':['array','null'],'items':{'type':'string'}}"},
    {"extra_images", "{'type':['array','null'],'items':{'type':'string'}}"},
    {"mask", "{'type':['string','null']}"},
    {"override_settings", "{'type':['object','null']}"},
    {"inpainting_mask_invert", "{'type':['integer','boolean','null']}"},
    {NULL, NULL},
};

/* Reads a text in which ' stands for ". */
static json_t *read_schema(const char *text) {
    char *copy = strdup(text);
    for (char *c = copy; c && *c; c++)
        if (*c == '\'') *c = '"';
    json_t *schema = copy ? json_loads(copy, 0, NULL) : NULL;
    free(copy);
    return schema;
}

static json_t *reference(const char *name) {
    char path[80];
    snprintf(path, sizeof path, "#/components/schemas/%s", name);
    return json_pack("{s:s}", "$ref", path);
}

static json_t *limit_of(const field *f, double limit) {
    return f->kind == INTEGER ? json_integer(limit < 9.2e18 ? (json_int_t)limit : INT64_MAX) : json_real(limit);
}

static void add_choice(void *user, const char *word, size_t n) { json_array_append_new(user, json_stringn(word, n)); }

static json_t *field_schema(const field *f, bool required) {
    static const char *const types[] = {"string", "integer", "number", "boolean"};
    if (f->use == UNSUPPORTED) return json_pack("{s:s, s:s}", "type", "null", "description", "not supported");
    if (f->kind == ANYTHING) return json_object();
    if (f->choices) {
        json_t *words = json_pack("[s, n]", "");
        each_choice(f, add_choice, words);
        return json_pack("{s:o}", "enum", words);
    }
    json_t *schema = required ? json_pack("{s:s}", "type", types[f->kind])
                              : json_pack("{s:[s, s]}", "type", types[f->kind], "null");
    if (f->kind == TEXT && f->high >= MOST_PROMPT) json_object_set_new(schema, "maxLength", json_integer(MOST_PROMPT));
    if (f->kind == TEXT && required) json_object_set_new(schema, "minLength", json_integer(1));
    if (f->kind == INTEGER || f->kind == NUMBER) {
        json_object_set_new(schema, "minimum", limit_of(f, f->low));
        json_object_set_new(schema, "maximum", limit_of(f, f->high));
    }
    return schema;
}

/* The schema of a body: its table of fields, and the rules that say more. strict: unknown fields are refused. */
static json_t *body_schema(const field *table, const named *rules, const char *required, bool strict) {
    json_t *properties = json_object(), *schema = json_pack("{s:s}", "type", "object");
    for (const field *f = table; f->name; f++) {
        const named *rule = rules;
        while (rule->name && strcmp(rule->name, f->name) != 0) rule++;
        bool needed = required && strcmp(required, f->name) == 0;
        json_object_set_new(properties, f->name, rule->name ? read_schema(rule->schema) : field_schema(f, needed));
    }
    json_object_set_new(schema, "properties", properties);
    if (required) json_object_set_new(schema, "required", json_pack("[s]", required));
    if (strict) json_object_set_new(schema, "additionalProperties", json_false());
    return schema;
}

/* Names of a list, such as the samplers, as an enum. */
static void set_names(json_t *body, const char *key, const char *(*name)(int)) {
    json_t *names = json_pack("[s, n]", "");
    for (int i = 0; name(i); i++) json_array_append_new(names, json_string(name(i)));
    json_object_set_new(json_object_get(body, "properties"), key, json_pack("{s:o}", "enum", names));
}

static json_t *all_schemas(const front *f) {
    json_t *all = json_object();
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        json_object_set_new(all, schemas[i].name, read_schema(schemas[i].schema));
    bool strict = f->options->strict;
    json_object_set_new(all, "Generation", body_schema(openai_fields, openai_rules, "prompt", strict));
    json_object_set_new(all, "Edit", body_schema(openai_fields, openai_rules, "prompt", strict));
    json_object_set_new(all, "Txt2Img", body_schema(sdapi_fields, sdapi_rules, "prompt", strict));
    json_t *body = body_schema(native_fields, native_rules, "prompt", true);
    set_names(body, "sampler", lz_sampler_name);
    set_names(body, "schedule", lz_schedule_name);
    json_t *plan = json_deep_copy(body);
    json_object_del(plan, "required");
    json_object_set_new(all, "NewJob", body);
    json_object_set_new(all, "Plan", plan);
    return all;
}

/* ---- paths ------------------------------------------------------------------------------------------------------- */

typedef struct note {
    void (*handle)(request *r);
    const char *summary;
    const char *query; /* names of parameters, separated by blanks */
    const char *body;  /* a schema, or NULL */
    int status;
    const char *answer; /* a schema, or a media type */
} note;

static const note notes[] = {
    {handle_page, "The page", "", NULL, 200, "text/html"},
    {handle_page_file, "A file of the page", "", NULL, 200, "*/*"},
    {handle_health, "The front runs", "", NULL, 200, "Status"},
    {handle_ready, "A model is loaded", "", NULL, 200, "Status"},
    {handle_metrics, "Metrics for Prometheus", "", NULL, 200, "text/plain"},
    {handle_file, "A picture by its address", "", NULL, 200, "image/*"},
    {handle_models, "The models", "", NULL, 200, "Models"},
    {handle_model, "A model", "", NULL, 200, "Model"},
    {handle_generations, "Makes pictures, as OpenAI's Images API", "", "Generation", 200, "Images"},
    {handle_edits, "Makes pictures from pictures, as OpenAI's Images API", "", "Edit", 200, "Images"},
    {handle_variations, "Not offered; edits are", "", NULL, 404, "Error"},
    {handle_about, "Version, device, models, limits", "", NULL, 200, "About"},
    {handle_openapi, "This document", "", NULL, 200, "Object"},
    {handle_jobs_new, "Queues a job", "", "NewJob", 202, "Job"},
    {handle_jobs_list, "Jobs, the newest first", "state limit after", NULL, 200, "Jobs"},
    {handle_jobs_clear, "Cancels the jobs that wait", "queued", NULL, 200, "Cancelled"},
    {handle_job, "A job", "", NULL, 200, "Job"},
    {handle_job_cancel, "Cancels a job", "", NULL, 200, "Job"},
    {handle_job_retry, "Queues a job again", "", NULL, 202, "Job"},
    {handle_job_first, "Puts a job before the others of its owner", "", NULL, 200, "Job"},
    {handle_job_events, "The events of a job", "", NULL, 200, "text/event-stream"},
    {handle_events, "The events of all jobs", "", NULL, 200, "text/event-stream"},
    {handle_plan, "Memory, operations and time of a job", "", "Plan", 200, "Planned"},
    {handle_upload, "Keeps an image for a day", "", "image/*", 201, "Upload"},
    {handle_pictures, "Pictures, the newest first", "limit before q pinned rating", NULL, 200, "Pictures"},
    {handle_picture, "A picture's settings", "", NULL, 200, "Picture"},
    {handle_picture_file, "A picture's bytes", "", NULL, 200, "image/*"},
    {handle_picture_recode, "A picture's bytes, in this format", "", NULL, 200, "image/*"},
    {handle_picture_thumb, "A small WebP of a picture", "", NULL, 200, "image/webp"},
    {handle_picture_change, "Changes what is kept with a picture", "", "Change", 200, "Picture"},
    {handle_picture_delete, "Removes a picture", "", NULL, 200, "Object"},
    {handle_session_new, "A cookie instead of a key", "", "Key", 200, "Object"},
    {handle_session_end, "Ends the session", "", NULL, 200, "Object"},
    {handle_txt2img, "Makes pictures, as AUTOMATIC1111", "", "Txt2Img", 200, "SdImages"},
    {handle_img2img, "Makes pictures from a picture, as AUTOMATIC1111", "", "Txt2Img", 200, "SdImages"},
    {handle_sd_progress, "Progress of the caller's job", "skip_current_image", NULL, 200, "SdProgress"},
    {handle_sd_interrupt, "Stops the caller's job", "", NULL, 200, "Object"},
    {handle_sd_options, "The chosen model", "", NULL, 200, "Object"},
    {handle_sd_options_set, "Chooses a model", "", "SdOptions", 200, "Null"},
    {handle_sd_models, "The models", "", NULL, 200, "List"},
    {handle_sd_png_info, "The settings in a picture", "", "SdPicture", 200, "SdInfo"},
    {handle_sd_memory, "Memory of the machine and the device", "", NULL, 200, "Object"},
    {handle_sd_unload, "Gives the memory of the models back", "", NULL, 200, "Object"},
    {handle_sd_reload, "Loads the chosen model", "", NULL, 200, "Object"},
    {handle_sd_list, "A list that clients ask for", "", NULL, 200, "List"},
    {handle_sd_ping, "Answers", "", NULL, 200, "Object"},
    {handle_model_load, "Loads a model", "", NULL, 202, "Object"},
    {handle_model_unload, "Gives the memory of a model back", "", NULL, 202, "Object"},
    {handle_pause, "Stops the queue", "", NULL, 200, "Object"},
    {handle_resume, "Goes on with the queue", "", NULL, 200, "Object"},
};

static const named parameters[] = {
    {"state", "{'type':'string','enum':['','queued','in_progress','completed','failed','cancelled']}"},
    {"queued", "{'type':'string','enum':['queued']}"},
    {"limit", "{'type':'integer','minimum':1,'maximum':200}"},
    {"after", "{'type':'string'}"},
    {"before", "{'type':'string'}"},
    {"q", "{'type':'string'}"},
    {"pinned", "{'type':'string','description':'true: only pinned pictures'}"},
    {"rating",
     "{'type':'integer','minimum':0,'maximum':5,'description':'only pictures with this rating or a better one'}"},
    {"skip_current_image", "{'type':'string'}"},
};

static json_t *query_parameter(const char *name, size_t n) {
    bool queued = n == 6 && strncmp(name, "queued", 6) == 0; /* ?state=queued, which is required */
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
        if (strlen(parameters[i].name) == n && strncmp(parameters[i].name, name, n) == 0)
            return json_pack("{s:s, s:s, s:b, s:o}", "name", queued ? "state" : parameters[i].name, "in", "query",
                             "required", queued, "schema", read_schema(parameters[i].schema));
    return json_null();
}

/* A body or an answer: of JSON by the name of its schema, of anything else by its media type. */
static json_t *content_of(const char *what) {
    if (strchr(what, '/')) return json_pack("{s:{}}", what);
    return json_pack("{s:{s:o}}", "application/json", "schema", reference(what));
}

static json_t *request_body(const route *t, const note *n) {
    json_t *content = t->flags & RAW_BODY ? json_pack("{s:{}, s:{}, s:{}}", "image/png", "image/jpeg", "image/webp")
                                          : content_of(n->body);
    if (t->flags & FORM_BODY) json_object_set_new(content, "multipart/form-data", json_object());
    return json_pack("{s:b, s:o}", "required", true, "content", content);
}

static json_t *answers_of(const route *t, const note *n) {
    char status[12];
    bool sd = strncmp(t->path, "/sdapi/", 7) == 0,
         file = n->handle == handle_file || n->handle == handle_picture_file || n->handle == handle_picture_recode ||
                n->handle == handle_picture_thumb;
    json_t *answers = json_object(),
           *first = json_pack("{s:s, s:o}", "description", n->summary, "content", content_of(n->answer));
    json_t *content = json_object_get(first, "content");
    if (t->flags & (FORM_BODY | JSON_BODY) && strcmp(n->answer, "Images") == 0) {
        json_object_set_new(content, "text/event-stream", json_object());
        json_object_set_new(content, "image/*", json_object());
    }
    snprintf(status, sizeof status, "%d", n->status);
    json_object_set_new(answers, status, first);
    if (file) json_object_set_new(answers, "206", json_pack("{s:s}", "description", "A part of the file"));
    if (file) json_object_set_new(answers, "304", json_pack("{s:s}", "description", "The client has it"));
    static const char *const ranges[] = {"4XX", "5XX"};
    for (int i = 0; i < 2; i++) {
        json_t *schemas_of_errors = t->flags & OPEN && i ? json_pack("[o, o]", reference("Error"), reference("Status"))
                                                         : json_pack("[o]", reference(sd ? "SdError" : "Error"));
        if (n->status != 404 || i)
            json_object_set_new(answers, ranges[i],
                                json_pack("{s:s, s:{s:{s:{s:o}}}}", "description", "One sentence and a code", "content",
                                          "application/json", "schema", "anyOf", schemas_of_errors));
    }
    return answers;
}

static json_t *operation_of(const route *t) {
    static const note unknown = {.summary = "", .query = "", .status = 200, .answer = "*/*"};
    const note *n = &unknown;
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (notes[i].handle == t->handle) n = &notes[i];
    json_t *asked = json_array();
    if (strchr(t->path, '*'))
        json_array_append_new(asked, json_pack("{s:s, s:s, s:b, s:{s:s, s:s}}", "name", "id", "in", "path", "required",
                                               true, "schema", "type", "string", "pattern", ID_PATTERN));
    for (const char *at = n->query; *at;) {
        size_t length = strcspn(at, " ");
        json_array_append_new(asked, query_parameter(at, length));
        at += length + strspn(at + length, " ");
    }
    json_t *operation = json_pack("{s:s, s:o, s:o}", "summary", n->summary, "parameters", asked, "responses",
                                  answers_of(t, n));
    if (n->body) json_object_set_new(operation, "requestBody", request_body(t, n));
    if (t->flags & (OPEN | FILES | PAGE)) json_object_set_new(operation, "security", json_array());
    return operation;
}

static json_t *all_paths(void) {
    json_t *paths = json_object();
    for (int i = 0; route_at(i); i++) {
        const route *t = route_at(i);
        char path[96], method[12] = "";
        size_t n = strcspn(t->path, "*");
        snprintf(path, sizeof path, "%.*s%s%s", (int)n, t->path, t->path[n] ? "{id}" : "", t->after);
        for (size_t k = 0; t->method[k] && k + 1 < sizeof method; k++) method[k] = (char)(t->method[k] | 32);
        json_t *item = json_object_get(paths, path);
        if (!item) json_object_set_new(paths, path, item = json_object());
        json_object_set_new(item, method, operation_of(t));
    }
    return paths;
}

void handle_openapi(request *r) {
    front *f = r->front;
    json_t *document = json_pack(
        "{s:s, s:{s:s, s:s, s:s}, s:[{s:s}], s:o, s:{s:o, s:{s:{s:s, s:s}, s:{s:s, s:s}, s:{s:s, s:s, s:s}}}}",
        "openapi", "3.1.0", "info", "title", "Lazuli", "version", lz_version(), "description",
        "Pictures from text: OpenAI's Images API, a part of AUTOMATIC1111's API, and jobs, events and pictures.",
        "servers", "url", "/", "paths", all_paths(), "components", "schemas", all_schemas(f), "securitySchemes",
        "bearer", "type", "http", "scheme", "bearer", "basic", "type", "http", "scheme", "basic", "header", "type",
        "apiKey", "in", "header", "name", "x-api-key");
    if (document && guard_has_keys(f->guard))
        json_object_set_new(document, "security", json_pack("[{s:[]}, {s:[]}, {s:[]}]", "bearer", "basic", "header"));
    reply_json(r, document ? 200 : 500, document);
}
