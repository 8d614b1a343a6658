/* Writing safetensors files: the header. See safetensors.h. */
#include "graph/safetensors.h"

#include <string.h>

static const char *const names[DR_DTYPES] = {
    [DR_U8] = "U8",   [DR_U16] = "U16",   [DR_I32] = "I32", [DR_I64] = "I64",
    [DR_F16] = "F16", [DR_BF16] = "BF16", [DR_F32] = "F32", [DR_F64] = "F64"};

static void add_string(struct dr_text *t, const char *s) {
    dr_text_add(t, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            dr_text_add(t, "\\%c", *s);
        else if ((unsigned char)*s < ' ')
            dr_text_add(t, "\\u%04x", (unsigned)*s);
        else
            dr_text_bytes(t, s, 1);
    }
    dr_text_add(t, "\"");
}

static void add_entry(struct dr_text *t, struct dr_safetensors_entry *e, uint64_t *at) {
    e->bytes = dr_dtype_bytes(e->dtype);
    add_string(t, e->name);
    dr_text_add(t, ":{\"dtype\":\"%s\",\"shape\":[", names[e->dtype]);
    for (uint32_t i = 0; i < e->rank; i++) {
        dr_text_add(t, "%s%lld", i ? "," : "", (long long)e->dim[i]);
        e->bytes *= (uint64_t)e->dim[i];
    }
    dr_text_add(t, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)*at,
                (unsigned long long)(*at + e->bytes));
    *at += e->bytes;
}

int dr_safetensors_create(struct dr_file **out, const char *path,
                          struct dr_safetensors_entry *entry, uint32_t n,
                          const struct dr_safetensors_note *note, uint32_t n_notes) {
    struct dr_arena *a = dr_arena_create();
    struct dr_text t = {.arena = a};
    uint64_t at = 0;
    dr_text_add(&t, "{");
    for (uint32_t i = 0; i < n_notes; i++) {
        dr_text_add(&t, i ? "," : "\"__metadata__\":{");
        add_string(&t, note[i].key);
        dr_text_add(&t, ":");
        add_string(&t, note[i].value);
    }
    if (n_notes)
        dr_text_add(&t, "}");
    for (uint32_t i = 0; i < n; i++) {
        DR_ASSERT(dr_safetensors_name(entry[i].name) && strcmp(entry[i].name, "__metadata__"));
        dr_text_add(&t, i || n_notes ? "," : "");
        add_entry(&t, &entry[i], &at);
    }
    dr_text_add(&t, "}");
    while (t.n % 8)
        dr_text_bytes(&t, " ", 1);
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)t.n >> 8 * i);
    int error = dr_file_create(out, path);
    if (!error) {
        error = dr_file_write(*out, length, sizeof length);
        error = error ? error : dr_file_write(*out, t.at, t.n);
        if (error) {
            dr_file_drop(*out);
            *out = NULL;
        }
    }
    dr_arena_destroy(a);
    return error;
}
