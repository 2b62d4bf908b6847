/* test_dump.c - an engine's dump: file types, .npy, maps and their forms, against arrays made by hand. [DMP] */
#include <math.h>
#include "../ref/error.h"
#include "../tools/dump_parts.h"
#include "../tools/safetensors_write.h"
#include "files.h"

/* ---- a dump in a folder of its own ------------------------------------------------------------------------------- */

static char folder[TEST_PATH];
static Dump *dump;
static CloverError err;

static void setup(void) {
    make_folder("dump", folder);
    dump = NULL;
}
static void teardown(void) {
    dump_close(dump);
    remove_folder(folder);
}

/* Two key heads, four value heads: GGUF's order is 0 2 1 3. */
static const CloverConfig config = { .key_heads = 2, .value_heads = 4, .key_width = 2, .value_width = 3, .experts = 4 };

static void open_dump(const char *map, bool single) { assert_ok(dump_open(folder, map, &config, single, &dump, &err), err); }

static void put_folder(const char *name) { ck_assert_int_eq(mkdir(in_folder(folder, name), 0777), 0); }

/* One array as FOLDER/NAME.safetensors. */
static void save(const char *file, const char *name, DType type, int dims, const int64_t *shape, const void *data) {
    NamedArray array = { .name = name, .type = type, .dims = dims, .data = data };
    for (int i = 0; i < dims; i++) array.shape[i] = shape[i];
    assert_ok(safetensors_save(in_folder(folder, file), &array, 1, NULL, &err), err);
}

/* case "c", step "s"; out must have room for the product of shape. */
static DumpFound load(const char *probe, int dims, const int64_t *shape, double *out) {
    DType type;
    int64_t rows;
    error_clear(&err);
    return dump_load(dump, "c", "s", probe, shape, dims, out, &type, &rows, &err);
}

#define SHAPE(...) (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ }

static void assert_values(const double *actual, const double *expected, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(actual[i] == expected[i], "element %lld is %.17g, expected %.17g", (long long)i, actual[i], expected[i]);
}

/* ---- where steps lie, and what their arrays are [DMP-1] ------------------------------------------------------------ */

START_TEST(element_types) {
    static const uint16_t f16[3] = { 0x3c00, 0xc100, 0x0001 };        /* 1, -2.5, 2^-24 */
    static const uint16_t bf16[3] = { 0x3f80, 0xc020, 0x7f80 };       /* 1, -2.5, inf */
    static const float f32[3] = { 1, -2.5f, 0.1f };
    static const double f64[3] = { 1, -2.5, 0.1 };
    static const int32_t i32[3] = { 1, -2, INT32_MAX };
    static const int64_t i64[3] = { 1, -2, 1ll << 40 };
    static const struct { DType type; const void *data; double third; } cases[] = {
        { DT_F16, f16, 0x1p-24 }, { DT_BF16, bf16, HUGE_VAL }, { DT_F32, f32, (double)0.1f }, { DT_F64, f64, 0.1 }, { DT_I32, i32, 2147483647.0 }, { DT_I64, i64, 0x1p40 } };
    put_folder("c");
    open_dump(NULL, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool whole = cases[i].type == DT_I32 || cases[i].type == DT_I64;
        const double expected[3] = { 1, whole ? -2 : -2.5, cases[i].third };
        double x[3];
        DType type;
        int64_t rows;
        char step[8], file[32];
        snprintf(step, sizeof step, "s%zu", i);
        snprintf(file, sizeof file, "c/%s.safetensors", step);
        save(file, "embed", cases[i].type, SHAPE(3, 1), cases[i].data);
        ck_assert_int_eq(dump_load(dump, "c", step, "embed", (const int64_t[]){ 3, 1 }, 2, x, &type, &rows, &err), DUMP_FOUND);
        ck_assert_int_eq(type, cases[i].type);
        ck_assert_int_eq(rows, 3);
        assert_values(x, expected, 3);
    }
}
END_TEST

START_TEST(steps_lie_in_their_case_or_at_the_top) {
    static const double in_case[1] = { 1 }, at_top[1] = { 2 };
    double x[1];
    put_folder("c");
    save("c/s.safetensors", "embed", DT_F64, SHAPE(1), in_case);
    save("s.safetensors", "embed", DT_F64, SHAPE(1), at_top);
    save("t.safetensors", "embed", DT_F64, SHAPE(1), at_top);
    open_dump(NULL, false);
    ck_assert(dump_has_step(dump, "c", "s") && !dump_has_step(dump, "c", "t") && !dump_has_step(dump, "d", "s"));
    dump_close(dump);
    open_dump(NULL, true);                   /* of a bundle with one case */
    ck_assert(dump_has_step(dump, "c", "t"));
    ck_assert_int_eq(load("embed", SHAPE(1, 1), x), DUMP_FOUND);
    ck_assert(x[0] == 1);
    ck_assert_int_eq(load("L00.out", SHAPE(1, 1), x), DUMP_ABSENT);
}
END_TEST

START_TEST(what_cannot_be_read) {
    double x[4];
    assert_status(dump_open("build/tmp/no-such-dump", NULL, &config, true, &dump, &err), CLOVER_BAD_INPUT, err);
    assert_says(err, "no-such-dump: no such folder");
    write_file(in_folder(folder, "s.safetensors"), "\x10\0\0\0\0\0\0\0{\"embed\"", 16);
    open_dump(NULL, true);
    ck_assert(dump_has_step(dump, "c", "s"));
    ck_assert_int_eq(load("embed", SHAPE(2, 2), x), DUMP_BAD);
    assert_says(err, "s.safetensors");
    ck_assert_int_eq(load("embed", SHAPE(2, 2), x), DUMP_BAD);   /* again, not absent the second time */
}
END_TEST

START_TEST(types_that_are_no_numbers_of_ours) {
    static const uint8_t bytes[4] = { 1, 0, 1, 1 };
    double x[4];
    Bytes file = { 0 };
    const char header[] = "{\"embed\":{\"dtype\":\"BOOL\",\"shape\":[2,2],\"data_offsets\":[0,4]}}";
    put_u64(&file, strlen(header));
    put_text(&file, header);
    put_bytes(&file, bytes, 4);
    write_file(in_folder(folder, "s.safetensors"), file.data, file.n);
    free_bytes(&file);
    open_dump(NULL, true);
    ck_assert_int_eq(load("embed", SHAPE(2, 2), x), DUMP_BAD);
    assert_says(err, "embed");
}
END_TEST

/* Logits of the last row alone go to the end of data. */
START_TEST(logits_of_the_last_row) {
    static const float last[3] = { 5, 6, 7 };
    static const int64_t shapes[3][3] = { { 3 }, { 1, 3 }, { 1, 1, 3 } };
    open_dump(NULL, true);
    for (int i = 0; i < 3; i++) {
        double x[6] = { 1, 2, 3, 0, 0, 0 };
        const double expected[6] = { 1, 2, 3, 5, 6, 7 };
        DType type;
        int64_t rows = 0;
        char step[4] = { 's', (char)('0' + i) }, file[32];
        snprintf(file, sizeof file, "%s.safetensors", step);
        save(file, "logits", DT_F32, i + 1, shapes[i], last);
        ck_assert_int_eq(dump_load(dump, "c", step, "logits", (const int64_t[]){ 2, 3 }, 2, x, &type, &rows, &err), DUMP_FOUND);
        ck_assert_int_eq(rows, 1);
        assert_values(x, expected, 6);
        /* Of logits only. */
        ck_assert_int_eq(dump_load(dump, "c", step, "embed", (const int64_t[]){ 2, 3 }, 2, x, &type, &rows, &err), DUMP_ABSENT);
    }
}
END_TEST

START_TEST(names_that_nothing_asked_for) {
    static const double one[1] = { 1 };
    const NamedArray arrays[3] = { { "embed", DT_F64, 1, { 1 }, one }, { "mine", DT_F64, 1, { 1 }, one }, { "L00.out", DT_F64, 1, { 1 }, one } };
    double x[1];
    int64_t n;
    assert_ok(safetensors_save(in_folder(folder, "s.safetensors"), arrays, 3, NULL, &err), err);
    put_folder("t");
    write_file(in_folder(folder, "t/other.npy"), "", 0);
    write_file(in_folder(folder, "t/notes.txt"), "", 0);
    open_dump(NULL, true);
    load("embed", SHAPE(1, 1), x);
    load("L00.out", SHAPE(1, 1), x);
    const char *const *names = dump_unused(dump, &n);
    ck_assert_int_eq(n, 1);
    ck_assert_str_eq(names[0], "mine");
    DType type;
    int64_t rows;
    ck_assert_int_eq(dump_load(dump, "c", "t", "embed", (const int64_t[]){ 1 }, 1, x, &type, &rows, &err), DUMP_ABSENT);
    names = dump_unused(dump, &n);
    ck_assert_int_eq(n, 2);
    ck_assert(strcmp(names[0], "other") == 0 || strcmp(names[1], "other") == 0);
}
END_TEST

START_TEST(traces) {
    put_folder("c");
    open_dump(NULL, true);
    ck_assert_ptr_null(dump_trace(dump, "c", &err));
    ck_assert_int_eq(err.status, CLOVER_OK);
    write_file(in_folder(folder, "trace.json"), "{\"tokens\": [1]}", 15);
    json_t *trace = dump_trace(dump, "c", &err);
    ck_assert_ptr_nonnull(json_object_get(trace, "tokens"));
    json_decref(trace);
    write_file(in_folder(folder, "c/trace.json"), "{\"tokens\": [1", 13);
    ck_assert_ptr_null(dump_trace(dump, "c", &err));
    ck_assert_int_eq(err.status, CLOVER_BAD_INPUT);
    assert_says(err, "c/trace.json");
}
END_TEST

/* ---- .npy [DMP-2] -------------------------------------------------------------------------------------------------- */

/* A file with that header text, padded as numpy pads it, and the bytes. */
static void npy_write(const char *name, int version, const char *header, const void *data, size_t bytes) {
    Bytes file = { 0 };
    const size_t start = version == 1 ? 10 : 12, length = (start + strlen(header) + 1 + 63) / 64 * 64 - start;
    put_bytes(&file, "\x93NUMPY", 6);
    put_number(&file, (uint64_t)version, 1);
    put_number(&file, 0, 1);
    put_number(&file, length, version == 1 ? 2 : 4);
    put_text(&file, header);
    while (file.n < start + length - 1) put_text(&file, " ");
    put_text(&file, "\n");
    put_bytes(&file, data, bytes);
    write_file(in_folder(folder, name), file.data, file.n);
    free_bytes(&file);
}

START_TEST(npy_types_and_versions) {
    static const uint16_t f16[2] = { 0x3c00, 0xc100 }, bf16[2] = { 0x3f80, 0xc020 };
    static const float f32[2] = { 1, -2.5f };
    static const double f64[2] = { 1, -2.5 };
    static const int32_t i32[2] = { 1, -2 };
    static const int64_t i64[2] = { 1, -2 };
    static const struct { const char *descr; DType type; const void *data; size_t bytes; double second; } cases[] = {
        { "<f2", DT_F16, f16, 4, -2.5 }, { "<f4", DT_F32, f32, 8, -2.5 }, { "<f8", DT_F64, f64, 16, -2.5 }, { "<V2", DT_BF16, bf16, 4, -2.5 },
        { "|V2", DT_BF16, bf16, 4, -2.5 }, { "<i4", DT_I32, i32, 8, -2 }, { "<i8", DT_I64, i64, 16, -2 } };
    put_folder("s");
    open_dump(NULL, true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int version = 1; version <= 3; version++) {
            char header[128], name[64], probe[32];
            double x[2];
            DType type;
            int64_t rows;
            snprintf(probe, sizeof probe, "p%zu.%d", i, version);
            snprintf(name, sizeof name, "s/%s.npy", probe);
            snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }", cases[i].descr);
            npy_write(name, version, header, cases[i].data, cases[i].bytes);
            ck_assert_int_eq(dump_load(dump, "c", "s", probe, (const int64_t[]){ 2, 1 }, 2, x, &type, &rows, &err), DUMP_FOUND);
            ck_assert_int_eq(type, cases[i].type);
            ck_assert(x[0] == 1 && x[1] == cases[i].second);
        }
}
END_TEST

/* numpy.save(numpy.asfortranarray(x)): the first index is the fastest. */
START_TEST(npy_fortran_order) {
    double file[24], expected[24], x[24];
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 4; c++) {
                expected[(a * 3 + b) * 4 + c] = 100 * a + 10 * b + c;
                file[a + 2 * (b + 3 * c)] = 100 * a + 10 * b + c;
            }
    put_folder("s");
    npy_write("s/three.npy", 1, "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3, 4), }", file, sizeof file);
    npy_write("s/flat.npy", 1, "{'shape': (24,), 'fortran_order': True, 'descr': '<f8'}", expected, sizeof expected);
    npy_write("s/ones.npy", 1, "{'descr': '<f8', 'fortran_order': True, 'shape': (1, 2, 3, 1, 4), }", file, sizeof file);
    npy_write("s/c.npy", 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3, 4), }", expected, sizeof expected);
    open_dump(NULL, true);
    static const char *const names[] = { "three", "flat", "ones", "c" };
    for (int i = 0; i < 4; i++) {
        ck_assert_msg(load(names[i], SHAPE(2, 3, 4), x) == DUMP_FOUND, "%s: %s", names[i], err.text);
        assert_values(x, expected, 24);
    }
    /* With all the forms that a map may give, too: six times negated is as it was. */
    const char map[] = "{\"embed\": {\"name\": \"three\", \"forms\": [\"negate\", \"negate\", \"negate\", \"negate\", \"negate\", \"negate\"]}}";
    write_file(in_folder(folder, "map.json"), map, strlen(map));
    dump_close(dump);
    open_dump(in_folder(folder, "map.json"), true);
    ck_assert_int_eq(load("embed", SHAPE(2, 3, 4), x), DUMP_FOUND);
    assert_values(x, expected, 24);
}
END_TEST

static const struct { const char *header, *says; } bad_headers[] = {
    { "{'descr': '>f8', 'fortran_order': False, 'shape': (2,), }", "element type" },
    { "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "element type" },
    { "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,), }", "element type" },
    { "{'descr': '<f8', 'shape': (2,), }", "lacks" },
    { "{'descr': '<f8', 'fortran_order': Maybe, 'shape': (2,), }", "lacks" },
    { "{'fortran_order': False, 'shape': (2,), }", "lacks" },
    { "{'descr': '<f8', 'fortran_order': False, }", "lacks" },
    { "{'descr': '<f8', 'fortran_order': False, 'shape': 2, }", "lacks" },
    { "{'descr': '<f8', 'fortran_order': False, 'shape': (-2,), }", "shape" },
    { "{'descr': '<f8', 'fortran_order': False, 'shape': (2", "shape" },
    { "{'descr': '<f8', 'fortran_order': False, 'shape': (x,), }", "shape" },
    { "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", "truncated" },
    { "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", "shape" },
    { "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,), }", "" },
    { "{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693952,), }", "truncated" },
    { "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 2), }", "shape" },
    { "", "lacks" },
};

START_TEST(npy_bad_headers) {
    static const double two[2] = { 1, 2 };
    double x[2];
    put_folder("s");
    npy_write("s/p.npy", 1, bad_headers[_i].header, two, sizeof two);
    open_dump(NULL, true);
    ck_assert_int_eq(load("p", SHAPE(2), x), DUMP_BAD);
    assert_says(err, "p.npy");
    assert_says(err, bad_headers[_i].says);
}
END_TEST

/* Cut anywhere, and with any one byte of its header changed, a file is read whole or refused. */
START_TEST(npy_damaged) {
    static const float two[2] = { 1, 2 };
    double x[2];
    put_folder("s");
    npy_write("s/p.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", two, sizeof two);
    Bytes whole = read_file(in_folder(folder, "s/p.npy"));
    open_dump(NULL, true);
    for (size_t n = 0; n < whole.n; n++) {
        write_file(in_folder(folder, "s/p.npy"), whole.data, n);
        ck_assert_int_eq(load("p", SHAPE(2), x), DUMP_BAD);
    }
    for (size_t i = 0; i < whole.n - 8; i++)
        for (int bit = (int)(i % 3); bit < 8; bit += 3) {
            whole.data[i] ^= (uint8_t)(1 << bit);
            write_file(in_folder(folder, "s/p.npy"), whole.data, whole.n);
            const DumpFound found = load("p", SHAPE(2), x);
            ck_assert(found == DUMP_FOUND || ((found == DUMP_WRONG || found == DUMP_BAD) && err.text[0]));
            whole.data[i] ^= (uint8_t)(1 << bit);
        }
    free_bytes(&whole);
}
END_TEST

START_TEST(npy_not_a_file) {
    double x[2];
    put_folder("s");
    put_folder("s/p.npy");
    open_dump(NULL, true);
    ck_assert_int_eq(load("p", SHAPE(2), x), DUMP_ABSENT);
    Npy npy;
    assert_status(npy_open("build/tmp/no-such.npy", &npy, &err), CLOVER_BAD_INPUT, err);
    assert_status(npy_open(in_folder(folder, "s/p.npy"), &npy, &err), CLOVER_BAD_INPUT, err);
}
END_TEST

/* ---- shapes without any form [DMP-4] ------------------------------------------------------------------------------- */

START_TEST(order_of_dims) {
    static const struct { int dims; int64_t shape[5]; bool taken; } cases[] = {
        { 3, { 6, 4, 8 }, true }, { 2, { 6, 32 }, true }, { 2, { 24, 8 }, true }, { 4, { 1, 6, 4, 8 }, true }, { 1, { 192 }, true }, { 3, { 6, 2, 16 }, true },
        { 5, { 1, 6, 1, 32, 1 }, true }, { 3, { 8, 4, 6 }, false }, { 2, { 32, 6 }, false }, { 3, { 4, 6, 8 }, false }, { 2, { 12, 16 }, false }, { 2, { 8, 24 }, false },
        { 3, { 6, 4, 4 }, false }, { 3, { 6, 4, 16 }, false }, { 2, { 6, 0 }, false },
    };
    double values[384], x[192];
    for (int i = 0; i < 384; i++) values[i] = i;
    open_dump(NULL, true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char step[8], file[32];
        DType type;
        int64_t rows;
        snprintf(step, sizeof step, "s%zu", i);
        snprintf(file, sizeof file, "%s.safetensors", step);
        save(file, "L00.attn.q", DT_F64, cases[i].dims, cases[i].shape, values);
        const DumpFound found = dump_load(dump, "c", step, "L00.attn.q", (const int64_t[]){ 6, 4, 8 }, 3, x, &type, &rows, &err);
        ck_assert_msg((found == DUMP_FOUND) == cases[i].taken, "shape %zu", i);
        if (found == DUMP_FOUND) assert_values(x, values, 192);
        else {
            ck_assert_int_eq(found, DUMP_WRONG);
            assert_says(err, "expected [6, 4, 8]");
        }
    }
}
END_TEST

/* Where a divisor of the rows leads, an array is not taken for a flattened one: 8 rows of 128, and 128 of 8. */
START_TEST(transposed_is_not_flattened) {
    static double values[1024];
    double x[1024];
    save("s.safetensors", "embed", DT_F64, SHAPE(128, 8), values);
    open_dump(NULL, true);
    ck_assert_int_eq(load("embed", SHAPE(8, 128), x), DUMP_WRONG);
    assert_says(err, "transposed");
    assert_says(err, "[128, 8]");
}
END_TEST

/* ---- maps [DMP-3] -------------------------------------------------------------------------------------------------- */

/* Loads `probe` of `shape` through a map whose entry for `stage` has these forms, from an array n = 0, 1, 2, ... of `have`. */
static DumpFound through(const char *stage, const char *probe, const char *forms, int have_dims, const int64_t *have, const double *values, int dims, const int64_t *shape, double *out) {
    char map[512];
    const int length = snprintf(map, sizeof map, "{\"%s\": {\"name\": \"block.{layer}.theirs\", \"forms\": %s}}", stage, forms);
    write_file(in_folder(folder, "map.json"), map, (size_t)length);
    save("s.safetensors", "block.7.theirs", DT_F64, have_dims, have, values);
    dump_close(dump);
    open_dump(in_folder(folder, "map.json"), true);
    return load(probe, dims, shape, out);
}

static double counted[64];           /* 0, 1, 2, ... */
static void count_up(void) {
    setup();
    for (int i = 0; i < 64; i++) counted[i] = i;
}

static void assert_through(DumpFound found, const double *x, const double *expected, int64_t n) {
    ck_assert_msg(found == DUMP_FOUND, "%s", err.text);
    assert_values(x, expected, n);
}

START_TEST(form_transpose) {
    static const double expected[6] = { 0, 2, 4, 1, 3, 5 };
    double x[6];
    assert_through(through("out", "L07.out", "[\"transpose\"]", SHAPE(3, 2), counted, SHAPE(2, 3), x), x, expected, 6);
    static const double three[8] = { 0, 4, 2, 6, 1, 5, 3, 7 };
    double y[8];
    assert_through(through("attn.q", "L07.attn.q", "[\"transpose\"]", SHAPE(2, 2, 2), counted, SHAPE(2, 2, 2), y), y, three, 8);
}
END_TEST

START_TEST(form_swap_last) {
    static const double expected[12] = { 0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11 };   /* two of [2, 3] */
    double x[12];
    assert_through(through("attn.q", "L07.attn.q", "[\"swap_last\"]", SHAPE(2, 2, 3), counted, SHAPE(2, 3, 2), x), x, expected, 12);
    ck_assert_int_eq(through("attn.q", "L07.attn.q", "[\"swap_last\"]", SHAPE(12), counted, SHAPE(2, 3, 2), x), DUMP_WRONG);
}
END_TEST

/* GGUF's head p is ours (p mod 2) * 2 + p div 2: theirs 0 1 2 3 are our 0 2 1 3. */
START_TEST(form_tiled) {
    static const double per_row[8] = { 0, 2, 1, 3, 4, 6, 5, 7 };
    double x[48];
    assert_through(through("gdn.beta", "L07.gdn.beta", "[\"tiled\"]", SHAPE(2, 4), counted, SHAPE(2, 4), x), x, per_row, 8);
    static const double wide[12] = { 0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11 };
    assert_through(through("gdn.z", "L07.gdn.z", "[\"tiled\"]", SHAPE(1, 12), counted, SHAPE(1, 4, 3), x), x, wide, 12);
    double state[24];                 /* [Hv, dk, dv]: the heads lead */
    for (int h = 0; h < 4; h++)
        for (int i = 0; i < 6; i++) state[h * 6 + i] = (h == 1 ? 2 : h == 2 ? 1 : h) * 6 + i;
    assert_through(through("gdn.state", "L07.gdn.state", "[\"tiled\"]", SHAPE(4, 2, 3), counted, SHAPE(4, 2, 3), x), x, state, 24);
    double channels[20];              /* [T, 4 q | 4 k | 12 v] */
    for (int i = 0; i < 8; i++) channels[i] = i;
    for (int i = 0; i < 12; i++) channels[8 + i] = 8 + wide[i];
    assert_through(through("gdn.conv", "L07.gdn.conv", "[\"tiled\"]", SHAPE(1, 20), counted, SHAPE(1, 20), x), x, channels, 20);
    ck_assert_int_eq(through("gdn.beta", "L07.gdn.beta", "[\"tiled\"]", SHAPE(2, 3), counted, SHAPE(2, 4), x), DUMP_WRONG);
    ck_assert_int_eq(through("gdn.qkv", "L07.gdn.qkv", "[\"tiled\"]", SHAPE(1, 19), counted, SHAPE(1, 20), x), DUMP_WRONG);
}
END_TEST

/* Two key heads of two, for four value heads: a a b b, or a b a b. */
START_TEST(form_expanded) {
    static const double a_a_b_b[16] = { 1, 2, 1, 2, 3, 4, 3, 4, 5, 6, 5, 6, 7, 8, 7, 8 }, a_b_a_b[16] = { 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8 };
    static const double expected[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    double x[8];
    assert_through(through("gdn.q", "L07.gdn.q", "[\"expanded\"]", SHAPE(2, 4, 2), a_a_b_b, SHAPE(2, 2, 2), x), x, expected, 8);
    assert_through(through("gdn.q", "L07.gdn.q", "[\"expanded_tiled\"]", SHAPE(2, 8), a_b_a_b, SHAPE(2, 2, 2), x), x, expected, 8);
    ck_assert_int_eq(through("gdn.q", "L07.gdn.q", "[\"expanded\"]", SHAPE(2, 2, 3), counted, SHAPE(2, 2, 2), x), DUMP_WRONG);
}
END_TEST

/* q_proj's rows: per head, query and then gate. */
START_TEST(form_part) {
    static const double query[8] = { 0, 1, 4, 5, 8, 9, 12, 13 }, gates[8] = { 2, 3, 6, 7, 10, 11, 14, 15 };
    double x[8];
    assert_through(through("attn.q", "L07.attn.q", "[{\"part\": 0, \"of\": 2}]", SHAPE(2, 8), counted, SHAPE(2, 2, 2), x), x, query, 8);
    assert_through(through("attn.gate", "L07.attn.gate", "[{\"part\": 1, \"of\": 2}]", SHAPE(1, 2, 2, 4), counted, SHAPE(2, 2, 2), x), x, gates, 8);
    ck_assert_int_eq(through("attn.q", "L07.attn.q", "[{\"part\": 0, \"of\": 3}]", SHAPE(2, 8), counted, SHAPE(2, 2, 2), x), DUMP_WRONG);
    assert_says(err, "parts");
}
END_TEST

START_TEST(form_columns) {
    static const double expected[6] = { 2, 3, 4, 8, 9, 10 };
    double x[6];
    assert_through(through("gdn.v", "L07.gdn.v", "[{\"columns\": [2, 5]}]", SHAPE(2, 6), counted, SHAPE(2, 1, 3), x), x, expected, 6);
    ck_assert_int_eq(through("gdn.v", "L07.gdn.v", "[{\"columns\": [4, 7]}]", SHAPE(2, 6), counted, SHAPE(2, 1, 3), x), DUMP_WRONG);
    assert_says(err, "columns");
    ck_assert_int_eq(through("gdn.v", "L07.gdn.v", "[{\"columns\": [2, 4]}]", SHAPE(2, 6), counted, SHAPE(2, 1, 3), x), DUMP_WRONG);
}
END_TEST

START_TEST(forms_of_elements) {
    static const double logits[2] = { 0, -2 };
    double x[2];
    assert_through(through("moe.shared_gate", "L07.moe.shared_gate", "[\"negate\"]", SHAPE(2), logits, SHAPE(2, 1), x), x, (const double[]){ 0, 2 }, 2);
    assert_through(through("moe.shared_gate", "L07.moe.shared_gate", "[{\"scale\": -0.5}]", SHAPE(2), logits, SHAPE(2, 1), x), x, (const double[]){ 0, 1 }, 2);
    ck_assert_int_eq(through("moe.shared_gate", "L07.moe.shared_gate", "[\"sigmoid\"]", SHAPE(2), logits, SHAPE(2, 1), x), DUMP_FOUND);
    ck_assert(x[0] == 0.5 && close_to(x[1], 0.11920292202211756, 1e-14, 0));
    ck_assert_int_eq(through("gdn.g", "L07.gdn.g", "[\"exp\"]", SHAPE(2), logits, SHAPE(2, 1), x), DUMP_FOUND);
    ck_assert(x[0] == 1 && close_to(x[1], 0.1353352832366127, 1e-14, 0));
    static const double decay[2] = { 1, 0.1353352832366127 };
    ck_assert_int_eq(through("gdn.g", "L07.gdn.g", "[\"log\"]", SHAPE(2), decay, SHAPE(2, 1), x), DUMP_FOUND);
    ck_assert(x[0] == 0 && close_to(x[1], -2, 1e-14, 0));
}
END_TEST

/* In the order given: transposed and then halved columns; columns and then a transpose would be another thing. */
START_TEST(forms_in_order) {
    static const double expected[4] = { -2, -4, -3, -5 };   /* theirs [3, 2]: 0 1 | 2 3 | 4 5; transposed [2, 3]: 0 2 4 | 1 3 5 */
    double x[4];
    assert_through(through("out", "L07.out", "[\"transpose\", {\"columns\": [1, 3]}, \"negate\"]", SHAPE(3, 2), counted, SHAPE(2, 2), x), x, expected, 4);
}
END_TEST

START_TEST(head_forms_need_a_model) {
    double x[8];
    through("gdn.beta", "L07.gdn.beta", "[\"tiled\"]", SHAPE(2, 4), counted, SHAPE(2, 4), x);
    dump_close(dump);
    assert_ok(dump_open(folder, in_folder(folder, "map.json"), NULL, true, &dump, &err), err);
    ck_assert_int_eq(load("L07.gdn.beta", SHAPE(2, 4), x), DUMP_WRONG);
    assert_says(err, "--model");
}
END_TEST

/* A second name, for where the first is absent. */
START_TEST(or_names) {
    static const double one[1] = { 1 }, two[1] = { 2 };
    const NamedArray arrays[3] = { { "a.7", DT_F64, 1, { 1 }, one }, { "b.7", DT_F64, 1, { 1 }, two }, { "b.8", DT_F64, 1, { 1 }, two } };
    const char map[] = "{\"mixer\": {\"name\": \"a.{layer}\", \"or\": \"b.{layer}\", \"forms\": [\"negate\"]}}";
    double x[1];
    write_file(in_folder(folder, "map.json"), map, strlen(map));
    assert_ok(safetensors_save(in_folder(folder, "s.safetensors"), arrays, 3, NULL, &err), err);
    open_dump(in_folder(folder, "map.json"), true);
    ck_assert_int_eq(load("L07.mixer", SHAPE(1, 1), x), DUMP_FOUND);
    ck_assert(x[0] == -1);
    ck_assert_int_eq(load("L08.mixer", SHAPE(1, 1), x), DUMP_FOUND);
    ck_assert(x[0] == -2);
    ck_assert_int_eq(load("L09.mixer", SHAPE(1, 1), x), DUMP_ABSENT);
}
END_TEST

START_TEST(stages_that_a_map_lacks) {
    double x[8];
    through("out", "L07.out", "[]", SHAPE(2, 4), counted, SHAPE(2, 4), x);
    ck_assert_int_eq(load("L07.mixer", SHAPE(2, 4), x), DUMP_ABSENT);
    ck_assert_int_eq(load("L06.out", SHAPE(2, 4), x), DUMP_ABSENT);
    ck_assert_int_eq(load("block.7.theirs", SHAPE(2, 4), x), DUMP_ABSENT);
}
END_TEST

static const char *const bad_maps[] = {
    "", "[]", "{", "{\"out\": 1}", "{\"out\": {}}", "{\"out\": {\"name\": 1}}", "{\"out\": {\"name\": \"x\", \"form\": []}}", "{\"out\": {\"name\": \"x\", \"forms\": \"tiled\"}}",
    "{\"out\": {\"name\": \"x\", \"forms\": [\"turned\"]}}", "{\"out\": {\"name\": \"x\", \"forms\": [1]}}", "{\"out\": {\"name\": \"x\", \"forms\": [{\"part\": 2, \"of\": 2}]}}",
    "{\"out\": {\"name\": \"x\", \"forms\": [{\"part\": -1, \"of\": 2}]}}", "{\"out\": {\"name\": \"x\", \"forms\": [{\"part\": 0}]}}",
    "{\"out\": {\"name\": \"x\", \"forms\": [{\"columns\": [3, 3]}]}}", "{\"out\": {\"name\": \"x\", \"forms\": [{\"columns\": [1]}]}}", "{\"out\": {\"name\": \"x\", \"forms\": [{\"scale\": 0}]}}",
    "{\"out\": {\"name\": \"x\", \"forms\": [{\"scale\": 1, \"of\": 2}]}}", "{\"out\": {\"name\": \"x\"}, \"out\": {\"name\": \"y\"}}",
    "{\"out\": {\"name\": \"x\", \"forms\": [\"exp\",\"exp\",\"exp\",\"exp\",\"exp\",\"exp\",\"exp\"]}}",
};

START_TEST(bad_map) {
    write_file(in_folder(folder, "map.json"), bad_maps[_i], strlen(bad_maps[_i]));
    assert_status(dump_open(folder, in_folder(folder, "map.json"), &config, true, &dump, &err), CLOVER_BAD_INPUT, err);
    assert_says(err, "map.json");
    dump = NULL;
}
END_TEST

START_TEST(no_map_of_that_name) {
    ck_assert_int_ne(dump_open(folder, in_folder(folder, "nowhere.json"), &config, true, &dump, &err), CLOVER_OK);
    assert_says(err, "nowhere.json");
    dump = NULL;
}
END_TEST

/* The maps that come with the tool are well formed and name known stages. */
START_TEST(maps_that_come_with_the_tool) {
    static const struct { const char *map, *probe, *name; } cases[] = {
        { "transformers", "L12.attn.gate", "model.layers.12.self_attn.q_proj" }, { "transformers", "logits", "lm_head" }, { "transformers", "L00.out", "model.layers.0" },
        { "llama.cpp", "L12.moe.probs", "ffn_moe_probs-12" }, { "llama.cpp", "final_norm", "result_norm" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        DumpMap map;
        int64_t layer;
        char name[128];
        assert_ok(names_map_open(cases[i].map, &map, &err), err);
        const MapEntry *e = names_map_find(&map, cases[i].probe, &layer);
        ck_assert_ptr_nonnull(e);
        names_map_name(e->name, layer, name, sizeof name);
        ck_assert_str_eq(name, cases[i].name);
        names_map_close(&map);
    }
}
END_TEST

Suite *dump_suite(void) {
    Suite *s = suite_create("dump");
    TCase *t = tcase_create("files");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, element_types);
    tcase_add_test(t, steps_lie_in_their_case_or_at_the_top);
    tcase_add_test(t, what_cannot_be_read);
    tcase_add_test(t, types_that_are_no_numbers_of_ours);
    tcase_add_test(t, logits_of_the_last_row);
    tcase_add_test(t, names_that_nothing_asked_for);
    tcase_add_test(t, traces);
    tcase_add_test(t, order_of_dims);
    tcase_add_test(t, transposed_is_not_flattened);
    suite_add_tcase(s, t);

    t = tcase_create("npy");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, npy_types_and_versions);
    tcase_add_test(t, npy_fortran_order);
    tcase_add_loop_test(t, npy_bad_headers, 0, (int)(sizeof bad_headers / sizeof *bad_headers));
    tcase_add_test(t, npy_damaged);
    tcase_add_test(t, npy_not_a_file);
    suite_add_tcase(s, t);

    t = tcase_create("maps");
    tcase_add_checked_fixture(t, count_up, teardown);
    tcase_add_test(t, form_transpose);
    tcase_add_test(t, form_swap_last);
    tcase_add_test(t, form_tiled);
    tcase_add_test(t, form_expanded);
    tcase_add_test(t, form_part);
    tcase_add_test(t, form_columns);
    tcase_add_test(t, forms_of_elements);
    tcase_add_test(t, forms_in_order);
    tcase_add_test(t, head_forms_need_a_model);
    tcase_add_test(t, or_names);
    tcase_add_test(t, stages_that_a_map_lacks);
    tcase_add_loop_test(t, bad_map, 0, (int)(sizeof bad_maps / sizeof *bad_maps));
    tcase_add_test(t, no_map_of_that_name);
    tcase_add_test(t, maps_that_come_with_the_tool);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(dump_suite()); }
