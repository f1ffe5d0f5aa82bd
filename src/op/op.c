/* op.c: the table of ops. */
#include "op/op.h"

const lz_op_info lz_op_table[LZ_OP_COUNT] = {
#define X(id, name, kind, inputs) [LZ_OP_##id] = {name, LZ_KIND_##kind, inputs},
    LZ_OPS(X)
#undef X
};
