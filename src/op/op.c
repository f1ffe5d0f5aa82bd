/* op.c: the table of ops. */
#include "op/op.h"

const lz_op_info lz_op_table[LZ_OP_COUNT] = {
#define X(id, text, of, n, ...) [LZ_OP_##id] = {.name = text, .kind = LZ_KIND_##of, .inputs = n, __VA_ARGS__},
    LZ_OPS(X)
#undef X
};
