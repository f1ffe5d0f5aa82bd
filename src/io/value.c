/* value.c: see value.h. */
#include "io/value.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_SHOWN = 1 << 20 }; /* bytes; for longer texts only the length is shown */

int lz_value_size(lz_value_type type) {
    static const int sizes[LZ_VALUE_TYPES] = {
        [LZ_VALUE_U8] = 1,  [LZ_VALUE_I8] = 1,  [LZ_VALUE_U16] = 2, [LZ_VALUE_I16] = 2,
        [LZ_VALUE_U32] = 4, [LZ_VALUE_I32] = 4, [LZ_VALUE_F32] = 4, [LZ_VALUE_BOOL] = 1,
        [LZ_VALUE_U64] = 8, [LZ_VALUE_I64] = 8, [LZ_VALUE_F64] = 8};
    return (unsigned)type < LZ_VALUE_TYPES ? sizes[type] : 0;
}

static uint64_t read_bits(const char *at, int bytes) {
    uint64_t bits = 0;
    for (int i = bytes - 1; i >= 0; i--) bits = bits << 8 | (unsigned char)at[i];
    return bits;
}

static int64_t saturate(double real) {
    if (real != real) return 0;
    return real >= 0x1p63 ? INT64_MAX : real <= -0x1p63 ? INT64_MIN : (int64_t)real;
}

static lz_value_item read_number(lz_value_type type, const char *at) {
    int bytes = lz_value_size(type);
    uint64_t bits = read_bits(at, bytes);
    lz_value_item item = {.length = bytes};
    switch (type) {
    case LZ_VALUE_I8:
    case LZ_VALUE_I16:
    case LZ_VALUE_I32:
    case LZ_VALUE_I64: {
        int unused = 64 - 8 * bytes;
        int64_t wide;
        bits <<= unused;
        memcpy(&wide, &bits, sizeof wide);
        item.integer = unused ? wide / ((int64_t)1 << unused) : wide; /* exact: the low bits are 0 */
        item.real = (double)item.integer;
        break;
    }
    case LZ_VALUE_F32: {
        uint32_t half = (uint32_t)bits;
        float f;
        memcpy(&f, &half, sizeof f);
        item.real = (double)f;
        item.integer = saturate(item.real);
        break;
    }
    case LZ_VALUE_F64:
        memcpy(&item.real, &bits, sizeof item.real);
        item.integer = saturate(item.real);
        break;
    default: item.integer = bits > INT64_MAX ? INT64_MAX : (int64_t)bits; item.real = (double)bits;
    }
    return item;
}

bool lz_value_next(const lz_value *value, lz_value_place *at, lz_value_item *item) {
    if (!value || value->type == LZ_VALUE_LIST || at->index >= value->count) return false;
    const char *from = value->data + at->offset;
    if (value->type == LZ_VALUE_TEXT) {
        *item = (lz_value_item){.text = from + 8, .length = (int64_t)read_bits(from, 8)};
        at->offset += 8 + item->length;
    } else {
        *item = read_number(value->type, from);
        at->offset += item->length;
        item->length = 0;
    }
    at->index++;
    return true;
}

bool lz_value_first(const lz_value *value, lz_value_item *item) {
    return lz_value_next(value, &(lz_value_place){0, 0}, item);
}

char *lz_value_text(lz_context *ctx, const lz_value *value) {
    lz_text text = {.ctx = ctx};
    lz_value_item item = {.length = 0};
    const char *kind = value->type == LZ_VALUE_TEXT ? "text" : value->type == LZ_VALUE_LIST ? "list" : "number";
    if (value->list)
        lz_text_add(&text, "[%lld %s%s]", (long long)value->count, kind, value->count == 1 ? "" : "s");
    else if (!lz_value_first(value, &item))
        lz_text_add(&text, "[]");
    else if (value->type == LZ_VALUE_TEXT && item.length > TEXT_SHOWN)
        lz_text_add(&text, "[%lld bytes]", (long long)item.length);
    else if (value->type == LZ_VALUE_TEXT)
        lz_text_add(&text, "%.*s", (int)item.length, item.text);
    else if (value->type == LZ_VALUE_BOOL)
        lz_text_add(&text, "%s", item.integer ? "true" : "false");
    else if (value->type == LZ_VALUE_F32 || value->type == LZ_VALUE_F64)
        lz_text_add(&text, "%.9g", item.real);
    else
        lz_text_add(&text, "%lld", (long long)item.integer);
    return lz_text_take(&text, NULL);
}
