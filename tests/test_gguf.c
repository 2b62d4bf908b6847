/* test_gguf.c - what a proper GGUF file says. Bad ones: test_gguf_bad.c; split ones: test_gguf_split.c. */
#include <math.h>
#include <time.h>
#include "gguf_build.h"

static char folder[TEST_PATH];

static void setup(void) { make_folder("gguf", folder); }
static void teardown(void) { remove_folder(folder); }

/* Opens what was built; the bytes are in *file. */
static Gguf *opened(GgufBuild *b, Bytes *file) {
    CloverError err;
    Gguf *g = NULL;
    *file = build_file(b);
    assert_ok(gguf_open_bytes(file->data, file->n, "built", &g, &err), err);
    return g;
}

static void closed(Gguf *g, Bytes *file) {
    gguf_close(g);
    free_bytes(file);
}

/* [GGUF-1] 24 bytes: magic, version, two counts. */
START_TEST(the_smallest_file) {
    GgufBuild b = gguf_build();
    b.alignment = 1;
    Bytes file;
    Gguf *g = opened(&b, &file);
    ck_assert_uint_eq(file.n, 24);
    ck_assert_int_eq(gguf_n_keys(g), 0);
    ck_assert_int_eq(gguf_tensors(g).n, 0);
    ck_assert_int_eq(gguf_parts(g), 1);
    ck_assert_uint_eq(gguf_alignment(g), 32);
    ck_assert_uint_eq(gguf_file_bytes(g), 24);
    ck_assert_str_eq(gguf_path(g), "built");
    ck_assert_ptr_null(gguf_key(g, "general.name"));
    ck_assert_ptr_null(gguf_tensor(g, "x"));
    closed(g, &file);
    gguf_close(NULL);
}
END_TEST

/* [GGUF-2] [GGUF-6] Lowest, highest and byte-order-revealing values of every integer type. */
START_TEST(integers) {
    static const struct { GgufType type; size_t bytes; uint64_t stored; int64_t value;
    } cases[] = { { GGUF_U8, 1, 0xff, 255 },
                  { GGUF_I8, 1, 0x80, -128 },
                  { GGUF_I8, 1, 0x7f, 127 },
                  { GGUF_U16, 2, 0xff01, 0xff01 },
                  { GGUF_I16, 2, 0x8001, -32767 },
                  { GGUF_I16, 2, 0x0102, 0x0102 },
                  { GGUF_U32, 4, 0xfffefdfc, 0xfffefdfcLL },
                  { GGUF_I32, 4, 0x80000000, -2147483648LL },
                  { GGUF_I32, 4, 0x01020304, 0x01020304 },
                  { GGUF_U64, 8, 0x7fffffffffffffff, INT64_MAX },
                  { GGUF_U64, 8, 0x0102030405060708, 0x0102030405060708 },
                  { GGUF_I64, 8, 0x8000000000000000, INT64_MIN },
                  { GGUF_I64, 8, UINT64_MAX, -1 } };
    enum { N = sizeof cases / sizeof cases[0] };
    GgufBuild b = gguf_build();
    char name[16];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "key.%d", i);
        build_number(&b, name, cases[i].type, cases[i].stored, cases[i].bytes);
    }
    build_number(&b, "too.large", GGUF_U64, 0x8000000000000000, 8);
    Bytes file;
    Gguf *g = opened(&b, &file);
    ck_assert_int_eq(gguf_n_keys(g), N + 1);
    for (int i = 0; i < N; i++) {
        int64_t value = 99;
        double real = 99;
        bool flag;
        GgufString s;
        snprintf(name, sizeof name, "key.%d", i);
        const GgufKey *k = gguf_key(g, name);
        ck_assert_ptr_eq(k, gguf_key_at(g, i));
        ck_assert_str_eq(k->name, name);
        ck_assert_int_eq(k->type, cases[i].type);
        ck_assert_int_eq(k->element, cases[i].type);
        ck_assert_uint_eq(k->count, 1);
        ck_assert_uint_eq(k->bytes, cases[i].bytes);
        ck_assert(gguf_int(k, 0, &value));
        ck_assert_int_eq(value, cases[i].value);
        ck_assert(gguf_real(k, 0, &real));
        ck_assert(real == (double)cases[i].value);
        ck_assert(!gguf_int(k, 1, &value) && !gguf_real(k, 1, &real) && !gguf_bool(k, 0, &flag) && !gguf_string(k, &s));
    }
    int64_t value;
    double real;
    ck_assert(!gguf_int(gguf_key(g, "too.large"), 0, &value));
    ck_assert(gguf_real(gguf_key(g, "too.large"), 0, &real) && real == 0x1p63);
    closed(g, &file);
}
END_TEST

/* [GGUF-6] A float32 means what it is: 1e-6 is 9.99999997e-07. */
START_TEST(reals_bools_and_strings) {
    GgufBuild b = gguf_build();
    build_f32(&b, "f32", 1e-6f);
    build_f64(&b, "f64", 1e-6);
    build_f32(&b, "inf", INFINITY);
    build_bool(&b, "yes", true);
    build_bool(&b, "no", false);
    build_string(&b, "text", "gr\xc3\xbc\xc3\x9f");
    build_string(&b, "empty", "");
    build_key(&b, "nul", GGUF_STRING);
    put_string(&b.keys, "a\0b", 3);
    Bytes file;
    Gguf *g = opened(&b, &file);
    double real;
    int64_t whole;
    bool flag;
    GgufString s;
    ck_assert(gguf_real(gguf_key(g, "f32"), 0, &real) && real == 9.999999974752427e-07);
    ck_assert(!gguf_int(gguf_key(g, "f32"), 0, &whole));
    ck_assert(gguf_real(gguf_key(g, "f64"), 0, &real) && real == 1e-6);
    ck_assert(!gguf_int(gguf_key(g, "f64"), 0, &whole));
    ck_assert(gguf_real(gguf_key(g, "inf"), 0, &real) && isinf(real));
    ck_assert(gguf_bool(gguf_key(g, "yes"), 0, &flag) && flag);
    ck_assert(gguf_bool(gguf_key(g, "no"), 0, &flag) && !flag);
    ck_assert(!gguf_bool(gguf_key(g, "no"), 1, &flag));
    ck_assert(!gguf_int(gguf_key(g, "yes"), 0, &whole) && !gguf_real(gguf_key(g, "yes"), 0, &real));
    ck_assert(gguf_string(gguf_key(g, "text"), &s));
    ck_assert_uint_eq(s.length, 6);
    ck_assert_mem_eq(s.bytes, "gr\xc3\xbc\xc3\x9f", 6);
    ck_assert(gguf_string(gguf_key(g, "empty"), &s) && s.length == 0);
    ck_assert(gguf_string(gguf_key(g, "nul"), &s) && s.length == 3 && memcmp(s.bytes, "a\0b", 3) == 0);
    ck_assert(!gguf_int(gguf_key(g, "text"), 0, &whole) && !gguf_real(gguf_key(g, "text"), 0, &real) &&
              !gguf_bool(gguf_key(g, "text"), 0, &flag));
    closed(g, &file);
}
END_TEST

START_TEST(arrays) {
    GgufBuild b = gguf_build();
    build_array(&b, "u16", GGUF_U16, 3);
    for (uint64_t i = 0; i < 3; i++) put_number(&b.keys, 0xff00 + i, 2);
    build_array(&b, "i64", GGUF_I64, 2);
    put_u64(&b.keys, UINT64_MAX);
    put_u64(&b.keys, 5);
    build_array(&b, "bools", GGUF_BOOL, 3);
    put_bytes(&b.keys, "\1\0\1", 3);
    build_array(&b, "f32", GGUF_F32, 2);
    put_u32(&b.keys, 0x3f800000);                                    /* 1 */
    put_u32(&b.keys, 0xc0200000);                                    /* -2.5 */
    build_array(&b, "none", GGUF_I32, 0);
    Bytes file;
    Gguf *g = opened(&b, &file);
    const GgufKey *k = gguf_key(g, "u16");
    int64_t value;
    double real;
    bool flag;
    GgufString s;
    const uint8_t *cursor = NULL;
    ck_assert_int_eq(k->type, GGUF_ARRAY);
    ck_assert_int_eq(k->element, GGUF_U16);
    ck_assert_uint_eq(k->count, 3);
    ck_assert_uint_eq(k->bytes, 6);
    ck_assert_mem_eq(k->data, "\x00\xff\x01\xff\x02\xff", 6);
    ck_assert(gguf_int(k, 2, &value) && value == 0xff02);
    ck_assert(!gguf_int(k, 3, &value));
    ck_assert(!gguf_next_string(k, &cursor, &s));
    ck_assert(gguf_int(gguf_key(g, "i64"), 0, &value) && value == -1);
    ck_assert(gguf_int(gguf_key(g, "i64"), 1, &value) && value == 5);
    ck_assert(gguf_bool(gguf_key(g, "bools"), 1, &flag) && !flag);
    ck_assert(gguf_bool(gguf_key(g, "bools"), 2, &flag) && flag);
    ck_assert(gguf_real(gguf_key(g, "f32"), 1, &real) && real == -2.5);
    ck_assert_uint_eq(gguf_key(g, "none")->count, 0);
    ck_assert(!gguf_int(gguf_key(g, "none"), 0, &value));
    closed(g, &file);
}
END_TEST

START_TEST(arrays_of_strings) {
    static const char *const texts[] = { "one", "", "three", "\xff not UTF-8: its reader's to say" };
    GgufBuild b = gguf_build();
    build_strings(&b, "texts", texts, 4);
    build_strings(&b, "none", texts, 0);
    build_string(&b, "scalar", "x");
    Bytes file;
    Gguf *g = opened(&b, &file);
    const uint8_t *cursor = NULL;
    GgufString s;
    for (int i = 0; i < 4; i++) {
        ck_assert(gguf_next_string(gguf_key(g, "texts"), &cursor, &s));
        ck_assert_uint_eq(s.length, strlen(texts[i]));
        ck_assert_mem_eq(s.bytes, texts[i], s.length);
    }
    ck_assert(!gguf_next_string(gguf_key(g, "texts"), &cursor, &s));
    ck_assert(!gguf_next_string(gguf_key(g, "texts"), &cursor, &s));
    ck_assert(!gguf_string(gguf_key(g, "texts"), &s));
    cursor = NULL;
    ck_assert(!gguf_next_string(gguf_key(g, "none"), &cursor, &s));
    cursor = NULL;
    ck_assert(!gguf_next_string(gguf_key(g, "scalar"), &cursor, &s));
    closed(g, &file);
}
END_TEST

/* [GGUF-3] Shapes come slowest first; offsets count from the file's start; blocks have their size. */
START_TEST(tensors) {
    GgufBuild b = gguf_build();
    uint8_t data[144];
    for (int i = 0; i < 144; i++) data[i] = (uint8_t)i;
    build_tensor(&b, "matrix", DT_F32, 2, (uint64_t[]){ 2, 3 }, data, 24);
    build_tensor(&b, "experts", DT_Q4_0, 3, (uint64_t[]){ 2, 1, 64 }, data, 72);
    build_tensor(&b, "one", DT_BF16, 1, (uint64_t[]){ 1 }, data + 7, 2);
    build_tensor(&b, "k", DT_Q4_K, 4, (uint64_t[]){ 1, 1, 1, 256 }, data, 144);
    Bytes file;
    Gguf *g = opened(&b, &file);
    TensorList list = gguf_tensors(g);
    ck_assert_int_eq(list.n, 4);
    const Tensor *t = gguf_tensor(g, "matrix");
    ck_assert_ptr_eq(t, &list.tensor[0]);
    ck_assert_int_eq(t->dims, 2);
    ck_assert_int_eq(t->shape[0], 2);
    ck_assert_int_eq(t->shape[1], 3);
    ck_assert_int_eq(t->elements, 6);
    ck_assert_uint_eq(t->bytes, 24);
    ck_assert_str_eq(t->file, "built");
    ck_assert_uint_eq(t->offset % 32, 0);
    ck_assert_ptr_eq(t->data, file.data + t->offset);
    ck_assert_mem_eq(t->data, data, 24);
    t = gguf_tensor(g, "experts");
    ck_assert_int_eq(t->type, DT_Q4_0);
    ck_assert_int_eq(t->shape[0] * 100 + t->shape[1] * 10 + t->shape[2], 274);
    ck_assert_uint_eq(t->bytes, 72);
    ck_assert_uint_eq(t->offset, list.tensor[0].offset + 32);
    t = gguf_tensor(g, "one");
    ck_assert_uint_eq(t->bytes, 2);
    ck_assert_mem_eq(t->data, data + 7, 2);
    ck_assert_uint_eq(gguf_tensor(g, "k")->bytes, 144);
    closed(g, &file);
}
END_TEST

START_TEST(alignments) {
    for (uint32_t alignment = 8; alignment <= 4096; alignment *= 2) {
        GgufBuild b = gguf_build();
        b.alignment = alignment;
        build_u32(&b, "general.alignment", alignment);
        build_tensor(&b, "a", DT_I8, 1, (uint64_t[]){ 3 }, "abc", 3);
        build_tensor(&b, "b", DT_I8, 1, (uint64_t[]){ 3 }, "def", 3);
        Bytes file;
        Gguf *g = opened(&b, &file);
        ck_assert_uint_eq(gguf_alignment(g), alignment);
        ck_assert_uint_eq(gguf_tensor(g, "b")->offset - gguf_tensor(g, "a")->offset, alignment);
        ck_assert_uint_eq(gguf_tensor(g, "a")->offset % alignment, 0);
        ck_assert_mem_eq(gguf_tensor(g, "a")->data, "abc", 3);
        ck_assert_mem_eq(gguf_tensor(g, "b")->data, "def", 3);
        closed(g, &file);
    }
}
END_TEST

/* [QNT-1] Names, elements and bytes a block, by id, as the `gguf` package 0.17 lists them (Q8_1 as ggml's C has it). */
START_TEST(every_type_has_its_size) {
    static const struct { unsigned id; const char *name; int64_t block, bytes; bool decodable;
    } types[] = { { 0, "F32", 1, 4, true },         { 1, "F16", 1, 2, true },          { 2, "Q4_0", 32, 18, true },
                  { 3, "Q4_1", 32, 20, true },      { 6, "Q5_0", 32, 22, true },       { 7, "Q5_1", 32, 24, true },
                  { 8, "Q8_0", 32, 34, true },      { 9, "Q8_1", 32, 36, false },      { 10, "Q2_K", 256, 84, true },
                  { 11, "Q3_K", 256, 110, true },   { 12, "Q4_K", 256, 144, true },    { 13, "Q5_K", 256, 176, true },
                  { 14, "Q6_K", 256, 210, true },   { 15, "Q8_K", 256, 292, false },   { 16, "IQ2_XXS", 256, 66, false },
                  { 17, "IQ2_XS", 256, 74, false }, { 18, "IQ3_XXS", 256, 98, false }, { 19, "IQ1_S", 256, 50, false },
                  { 20, "IQ4_NL", 32, 18, true },   { 21, "IQ3_S", 256, 110, false },  { 22, "IQ2_S", 256, 82, false },
                  { 23, "IQ4_XS", 256, 136, true }, { 24, "I8", 1, 1, false },         { 25, "I16", 1, 2, false },
                  { 26, "I32", 1, 4, false },       { 27, "I64", 1, 8, false },        { 28, "F64", 1, 8, true },
                  { 29, "IQ1_M", 256, 56, false },  { 30, "BF16", 1, 2, true },        { 34, "TQ1_0", 256, 54, false },
                  { 35, "TQ2_0", 256, 66, false },  { 39, "MXFP4", 32, 17, false },    { 40, "NVFP4", 64, 36, false },
                  { 41, "Q1_0", 128, 18, false } };
    unsigned next = 0;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const DTypeInfo *info = dtype_info((DType)types[i].id);
        ck_assert_ptr_nonnull(info);
        ck_assert_str_eq(info->name, types[i].name);
        ck_assert_int_eq(info->block, types[i].block);
        ck_assert_int_eq(info->bytes, types[i].bytes);
        ck_assert_msg(info->decodable == types[i].decodable, "%s", info->name);
        ck_assert_int_eq(dtype_bytes((DType)types[i].id, 3 * types[i].block), 3 * types[i].bytes);
        for (; next < types[i].id; next++) ck_assert_ptr_null(dtype_info((DType)next));   /* the gaps */
        next++;
    }
    ck_assert_int_eq(dtype_bytes(DT_Q4_0, 33), -1);
    ck_assert_int_eq(dtype_bytes(DT_F32, -1), -1);
    ck_assert_int_eq(dtype_bytes(DT_F32, INT64_MAX), -1);
    ck_assert_int_eq(dtype_bytes(DT_F32, INT64_MAX / 4), INT64_MAX / 4 * 4);
    ck_assert_int_eq(dtype_bytes(DT_UNKNOWN, 1), -1);
    ck_assert_int_eq(dtype_bytes(DT_F32, 0), 0);
}
END_TEST

/* Types that nobody decodes are kept; one that nobody knows reaches to the next tensor. Ids that mean something in
 * safetensors only (200 and up) mean nothing here. */
START_TEST(types_that_cannot_be_decoded) {
    GgufBuild b = gguf_build();
    uint8_t data[256] = { 0 };
    build_tensor(&b, "iq2", 16, 1, (uint64_t[]){ 256 }, data, 66);
    build_tensor(&b, "what", 77, 2, (uint64_t[]){ 5, 7 }, data, 60);
    build_tensor(&b, "u8", 200, 1, (uint64_t[]){ 4 }, data, 40);
    build_tensor(&b, "huge", 4000000000, 1, (uint64_t[]){ 4 }, data, 10);
    Bytes file;
    Gguf *g = opened(&b, &file);
    const Tensor *t = gguf_tensor(g, "iq2");
    ck_assert_uint_eq(t->bytes, 66);
    ck_assert_str_eq(dtype_info(t->type)->name, "IQ2_XXS");
    t = gguf_tensor(g, "what");
    ck_assert_int_eq((int)t->type, 77);
    ck_assert_int_eq(t->elements, 35);
    ck_assert_uint_eq(t->bytes, 64);
    ck_assert_int_eq(gguf_tensor(g, "u8")->type, DT_UNKNOWN);
    ck_assert_uint_eq(gguf_tensor(g, "u8")->bytes, 64);
    ck_assert_int_eq(gguf_tensor(g, "huge")->type, DT_UNKNOWN);
    ck_assert_uint_eq(gguf_tensor(g, "huge")->bytes, 10);
    closed(g, &file);
}
END_TEST

/* Tensors may stand in any order in the data, with room between them. */
/* Tensors may stand in any order; bytes that belong to none, a whole alignment of them or more, may not. [GGUF-4] */
START_TEST(order_is_free_and_room_is_not) {
    GgufBuild b = gguf_build();
    put_zeros(&b.data, 35);
    build_entry(&b, "last", DT_I8, 1, (uint64_t[]){ 3 }, 32);
    build_entry(&b, "first", DT_I8, 1, (uint64_t[]){ 3 }, 0);
    Bytes file;
    Gguf *g = opened(&b, &file);
    ck_assert_str_eq(gguf_tensors(g).tensor[0].name, "last");
    ck_assert_uint_eq(gguf_tensors(g).tensor[0].offset - gguf_tensors(g).tensor[1].offset, 32);
    closed(g, &file);

    static const struct { uint64_t first, last, end; const char *says; } holes[] = {
        { 32, 64, 67, "32 bytes behind the header" }, { 0, 64, 67, "61 bytes behind 'first'" }, { 0, 32, 80, "45 bytes behind 'last'" } };
    for (int i = 0; i < 3; i++) {
        CloverError err;
        b = gguf_build();
        put_zeros(&b.data, holes[i].end);
        build_entry(&b, "first", DT_I8, 1, (uint64_t[]){ 3 }, holes[i].first);
        build_entry(&b, "last", DT_I8, 1, (uint64_t[]){ 3 }, holes[i].last);
        Bytes bad = build_file(&b);
        assert_status(gguf_open_bytes(bad.data, bad.n, "built", &g, &err), CLOVER_BAD_INPUT, err);
        ck_assert_msg(strstr(err.text, holes[i].says) != NULL, "%s", err.text);
        free_bytes(&bad);
    }
}
END_TEST

START_TEST(type_names) {
    ck_assert_str_eq(gguf_type_name(GGUF_U8), "u8");
    ck_assert_str_eq(gguf_type_name(GGUF_BOOL), "bool");
    ck_assert_str_eq(gguf_type_name(GGUF_ARRAY), "array");
    ck_assert_str_eq(gguf_type_name(GGUF_F64), "f64");
    ck_assert_str_eq(gguf_type_name((GgufType)13), "unknown");
}
END_TEST

/* A file of another writer; the numbers are what the `gguf` package reads from it, the hash (FNV-1a) is over a line
 * "NAME TYPE SHAPE OFFSET BYTES" a tensor, shape slowest first. */
START_TEST(a_real_file) {
    CloverError err;
    Gguf *g = NULL;
    assert_ok(gguf_open("tests/vectors/drifts/good.gguf", &g, &err), err);
    TensorList list = gguf_tensors(g);
    ck_assert_int_eq(gguf_n_keys(g), 32);
    ck_assert_int_eq(list.n, 88);
    ck_assert_uint_eq(gguf_file_bytes(g), 1136512);
    ck_assert_str_eq(list.tensor[0].name, "token_embd.weight");
    ck_assert_uint_eq(list.tensor[0].offset, 10784);
    ck_assert_int_eq(list.tensor[0].shape[0], 272);
    ck_assert_int_eq(list.tensor[0].shape[1], 64);
    uint64_t hash = 14695981039346656037u;
    for (int64_t i = 0; i < list.n; i++) {
        const Tensor *t = &list.tensor[i];
        char line[256];
        int n = snprintf(line, sizeof line, "%s %d", t->name, (int)t->type);
        for (int d = 0; d < t->dims; d++) n += snprintf(line + n, sizeof line - (size_t)n, " %lld", (long long)t->shape[d]);
        snprintf(line + n, sizeof line - (size_t)n, " %llu %llu\n", (unsigned long long)t->offset, (unsigned long long)t->bytes);
        for (const char *p = line; *p; p++) hash = (hash ^ (uint8_t)*p) * 1099511628211u;
        ck_assert_ptr_eq(gguf_tensor(g, t->name), t);
    }
    ck_assert_uint_eq(hash, 0xbe90ecd28ea76724);
    int64_t value;
    double real;
    bool flag;
    GgufString s;
    ck_assert(gguf_string(gguf_key(g, "general.architecture"), &s) && s.length == 10 && memcmp(s.bytes, "clover_moe", 10) == 0);
    ck_assert(gguf_int(gguf_key(g, "clover_moe.rope.dimension_sections"), 0, &value) && value == 2);
    ck_assert(gguf_real(gguf_key(g, "clover_moe.attention.layer_norm_rms_epsilon"), 0, &real) && real == 9.999999974752427e-07);
    ck_assert(gguf_bool(gguf_key(g, "tokenizer.ggml.add_bos_token"), 0, &flag) && !flag);
    const uint8_t *cursor = NULL;
    ck_assert(gguf_next_string(gguf_key(g, "tokenizer.ggml.merges"), &cursor, &s) && s.length == 11 &&
              memcmp(s.bytes, "w262_ w263_", 11) == 0);
    gguf_close(g);
}
END_TEST

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The data is not touched: a (sparse) file of 20 GB opens at once. So does one with the real vocabulary's two lists. */
START_TEST(large_files_open_at_once) {
    GgufBuild b = gguf_build();
    build_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, 248320);
    for (int i = 0; i < 248320; i++) put_string(&b.keys, "token", 5);
    build_array(&b, "tokenizer.ggml.merges", GGUF_STRING, 247587);
    for (int i = 0; i < 247587; i++) put_string(&b.keys, "to ken", 6);
    char name[64];
    uint64_t n = 853, bytes = 23552000;                              /* 853 tensors of 23.6 MB: 20 GB */
    for (uint64_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "blk.%llu.weight", (unsigned long long)i);
        build_entry(&b, name, DT_I8, 1, (uint64_t[]){ bytes }, i * bytes);
    }
    Bytes file = build_file(&b);
    const char *path = in_folder(folder, "large.gguf");
    write_file(path, file.data, file.n);
    ck_assert_int_eq(truncate(path, (off_t)(file.n + n * bytes)), 0);
    CloverError err;
    Gguf *g = NULL;
    double start = seconds();
    assert_ok(gguf_open(path, &g, &err), err);
    ck_assert_double_lt(seconds() - start, 1.0);                     /* 10 ms when nothing else runs */
    ck_assert_int_eq(gguf_tensors(g).n, 853);
    ck_assert_uint_gt(gguf_file_bytes(g), 20000000000u);
    ck_assert_uint_eq(gguf_key(g, "tokenizer.ggml.tokens")->count, 248320);
    gguf_close(g);
    free_bytes(&file);
    unlink(path);
}
END_TEST

static Suite *gguf_suite(void) {
    Suite *s = suite_create("gguf");
    TCase *t = tcase_create("gguf");
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_smallest_file);
    tcase_add_test(t, integers);
    tcase_add_test(t, reals_bools_and_strings);
    tcase_add_test(t, arrays);
    tcase_add_test(t, arrays_of_strings);
    tcase_add_test(t, tensors);
    tcase_add_test(t, alignments);
    tcase_add_test(t, every_type_has_its_size);
    tcase_add_test(t, types_that_cannot_be_decoded);
    tcase_add_test(t, order_is_free_and_room_is_not);
    tcase_add_test(t, type_names);
    tcase_add_test(t, a_real_file);
    tcase_add_test(t, large_files_open_at_once);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(gguf_suite()); }
