/* test_safetensors.c - safetensors files and folders of them, proper and bad. [SFT-1] [SFT-2] [SFT-3] */
#include "failing_malloc.h"
#include "safetensors_build.h"
#include "../ref/files/safetensors.h"

static char folder[TEST_PATH];

static void setup(void) { make_folder("safetensors", folder); }
static void teardown(void) { remove_folder(folder); }

static CloverError refused_bytes(Bytes file, CloverStatus status) {
    CloverError err;
    Safetensors *none = (Safetensors *)&err, *s = none;
    assert_status(safetensors_open_bytes(file.data, file.n, "FILE", &s, &err), status, err);
    ck_assert_ptr_eq(s, none);
    ck_assert_msg(strncmp(err.text, "FILE: ", 6) == 0, "no file named: %s", err.text);
    free_bytes(&file);
    return err;
}

static CloverError refused(const char *header, size_t data) { return refused_bytes(safetensors_file(header, data), CLOVER_BAD_INPUT); }

static CloverError refused_path(const char *path, CloverStatus status) {
    CloverError err;
    Safetensors *none = (Safetensors *)&err, *s = none;
    assert_status(safetensors_open(path, &s, &err), status, err);
    ck_assert_ptr_eq(s, none);
    return err;
}

static Safetensors *opened(const Bytes *file) {
    CloverError err;
    Safetensors *s = NULL;
    assert_ok(safetensors_open_bytes(file->data, file->n, "FILE", &s, &err), err);
    return s;
}

static Safetensors *opened_path(const char *path) {
    CloverError err;
    Safetensors *s = NULL;
    assert_ok(safetensors_open(path, &s, &err), err);
    return s;
}

/* ---- one file ---------------------------------------------------------------------------------------------------- */

START_TEST(tensors_in_the_order_of_their_data) {
    Bytes file = safetensors_file("{\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[6,14]},"
                                  "\"__metadata__\":{\"format\":\"pt\",\"empty\":\"\"},"
                                  "\"a\":{\"data_offsets\":[0,6],\"shape\":[3],\"dtype\":\"BF16\",\"more\":[1]}}   ", 14);
    Safetensors *s = opened(&file);
    TensorList list = safetensors_tensors(s);
    ck_assert_int_eq(list.n, 2);
    ck_assert_int_eq(safetensors_parts(s), 1);
    ck_assert_uint_eq(safetensors_file_bytes(s), file.n);
    ck_assert_str_eq(list.tensor[0].name, "a");
    ck_assert_str_eq(list.tensor[1].name, "b");
    const Tensor *t = safetensors_tensor(s, "b");
    ck_assert_ptr_eq(t, &list.tensor[1]);
    ck_assert_int_eq(t->type, DT_F32);
    ck_assert_int_eq(t->dims, 2);
    ck_assert_int_eq(t->shape[0], 2);
    ck_assert_int_eq(t->shape[1], 1);
    ck_assert_int_eq(t->elements, 2);
    ck_assert_uint_eq(t->bytes, 8);
    ck_assert_uint_eq(t->offset, file.n - 8);
    ck_assert_ptr_eq(t->data, file.data + file.n - 8);
    ck_assert_mem_eq(t->data, "\x06\x07\x08\x09\x0a\x0b\x0c\x0d", 8);
    ck_assert_str_eq(t->file, "FILE");
    ck_assert_ptr_null(safetensors_tensor(s, "c"));
    ck_assert_ptr_null(safetensors_tensor(s, "__metadata__"));
    ck_assert_str_eq(safetensors_metadata(s, "format"), "pt");
    ck_assert_str_eq(safetensors_metadata(s, "empty"), "");
    ck_assert_ptr_null(safetensors_metadata(s, "other"));
    safetensors_close(s);
    safetensors_close(NULL);
    free_bytes(&file);
}
END_TEST

/* Every dtype by name and size; one of another name is kept with the bytes it has. */
START_TEST(dtypes) {
    static const struct { const char *name; DType type; size_t bytes;
    } types[] = { { "F64", DT_F64, 8 },   { "F32", DT_F32, 4 },         { "F16", DT_F16, 2 },         { "BF16", DT_BF16, 2 },
                  { "I64", DT_I64, 8 },   { "I32", DT_I32, 4 },         { "I16", DT_I16, 2 },         { "I8", DT_I8, 1 },
                  { "U64", DT_U64, 8 },   { "U32", DT_U32, 4 },         { "U16", DT_U16, 2 },         { "U8", DT_U8, 1 },
                  { "BOOL", DT_BOOL, 1 }, { "F8_E4M3", DT_F8_E4M3, 1 }, { "F8_E5M2", DT_F8_E5M2, 1 }, { "F4", DT_UNKNOWN, 5 } };
    uint8_t data[32] = { 0 };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        SafetensorsBuild b = { 0 };
        build_safetensor(&b, "t", types[i].name, 1, (int64_t[]){ 3 }, data, 3 * types[i].bytes);
        Bytes file = build_safetensors(&b);
        Safetensors *s = opened(&file);
        const Tensor *t = safetensors_tensor(s, "t");
        ck_assert_int_eq(t->type, types[i].type);
        ck_assert_uint_eq(t->bytes, 3 * types[i].bytes);
        bool real = strcmp(types[i].name, "F64") == 0 || strcmp(types[i].name, "F32") == 0 ||
                    strcmp(types[i].name, "F16") == 0 || strcmp(types[i].name, "BF16") == 0;
        if (types[i].type == DT_UNKNOWN) ck_assert_ptr_null(dtype_info(t->type));
        else
            ck_assert_msg(dtype_info(t->type)->decodable == real && strcmp(dtype_info(t->type)->name, types[i].name) == 0, "%s",
                          types[i].name);
        safetensors_close(s);
        free_bytes(&file);
        if (types[i].type == DT_UNKNOWN) continue;
        build_safetensor(&b, "t", types[i].name, 1, (int64_t[]){ 3 }, data, 3 * types[i].bytes + 1);
        CloverError err = refused_bytes(build_safetensors(&b), CLOVER_BAD_INPUT);
        assert_says(err, "tensor 't' has");
        assert_says(err, "expected");
    }
}
END_TEST

/* The format allows scalars and tensors without elements, and a file without tensors. */
START_TEST(scalars_and_nothing) {
    Bytes file = safetensors_file(
        "{\"none\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[4,4]},"
        "\"one\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"first\":{\"dtype\":\"F64\",\"shape\":[0,9223372036854775807,9223372036854775807],\"data_offsets\":[0,0]}}",
        4);
    Safetensors *s = opened(&file);
    ck_assert_int_eq(safetensors_tensors(s).n, 3);
    ck_assert_int_eq(safetensors_tensor(s, "one")->dims, 0);
    ck_assert_int_eq(safetensors_tensor(s, "one")->elements, 1);
    ck_assert_int_eq(safetensors_tensor(s, "none")->elements, 0);
    ck_assert_int_eq(safetensors_tensor(s, "first")->elements, 0);
    ck_assert_str_eq(safetensors_tensors(s).tensor[0].name, "first");
    safetensors_close(s);
    free_bytes(&file);
    file = safetensors_file("{}", 0);
    s = opened(&file);
    ck_assert_int_eq(safetensors_tensors(s).n, 0);
    ck_assert_ptr_null(safetensors_metadata(s, "format"));
    safetensors_close(s);
    free_bytes(&file);
}
END_TEST

/* A file of another writer; expected values from Python's json over its header, the hash as in test_gguf.c. */
START_TEST(a_real_folder) {
    Safetensors *s = opened_path("tests/vectors/drifts/hf");
    TensorList list = safetensors_tensors(s);
    ck_assert_int_eq(list.n, 84);
    ck_assert_uint_eq(safetensors_file_bytes(s), 1134456);
    ck_assert_str_eq(safetensors_metadata(s, "format"), "pt");
    uint64_t hash = 14695981039346656037u;
    for (int64_t i = 0; i < list.n; i++) {
        const Tensor *t = &list.tensor[i];
        char line[256];
        int n = snprintf(line, sizeof line, "%s %d", t->name, (int)t->type);
        for (int d = 0; d < t->dims; d++) n += snprintf(line + n, sizeof line - (size_t)n, " %lld", (long long)t->shape[d]);
        snprintf(line + n, sizeof line - (size_t)n, " %llu %llu\n", (unsigned long long)t->offset, (unsigned long long)t->bytes);
        for (const char *p = line; *p; p++) hash = (hash ^ (uint8_t)*p) * 1099511628211u;
        ck_assert_ptr_eq(safetensors_tensor(s, t->name), t);
    }
    ck_assert_uint_eq(hash, 0x6d2236f442e457c9);
    safetensors_close(s);
}
END_TEST

/* ---- bad headers ------------------------------------------------------------------------------------------------- */

START_TEST(cut_anywhere) {
    SafetensorsBuild b = { 0 };
    build_safetensor(&b, "a", "F32", 1, (int64_t[]){ 2 }, "01234567", 8);
    build_safetensor(&b, "b", "F32", 1, (int64_t[]){ 2 }, "01234567", 8);
    Bytes file = build_safetensors(&b);
    for (size_t n = 0; n < file.n; n++) {
        Bytes cut = { 0 };
        put_bytes(&cut, file.data, n);
        cut.data = realloc(cut.data, n ? n : 1);                     /* no room behind, so that a sanitizer sees a step beyond */
        refused_bytes(cut, CLOVER_BAD_INPUT);
    }
    free_bytes(&file);

    file = read_file("tests/vectors/drifts/hf/model.safetensors");
    const char *path = in_folder(folder, "cut.safetensors");
    write_file(path, file.data, file.n);
    for (size_t i = 50; i-- > 0; ) {
        ck_assert_int_eq(truncate(path, (off_t)(file.n * i / 50)), 0);
        CloverError err = refused_path(path, CLOVER_BAD_INPUT);
        assert_says(err, i ? "cut short" : "is empty (0 bytes)");
        ck_assert_int_eq(problems(&err), 1);
    }
    free_bytes(&file);
    unlink(path);
}
END_TEST

START_TEST(header_length) {
    static const uint64_t lengths[] = { 0, 1, 1000, 1ull << 31, 1ull << 63, UINT64_MAX - 7, UINT64_MAX };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        Bytes file = { 0 };
        char says[80];
        put_u64(&file, lengths[i]);
        put_text(&file, "{}     ");
        CloverError err = refused_bytes(file, CLOVER_BAD_INPUT);
        snprintf(says, sizeof says, "give a header of %llu bytes of JSON, expected 2 to 7", (unsigned long long)lengths[i]);
        assert_says(err, says);
    }
    /* The format's own limit, in a file that has the bytes. */
    const char *path = in_folder(folder, "long.safetensors");
    Bytes file = { 0 };
    put_u64(&file, 100000001);
    put_text(&file, "{");
    write_file(path, file.data, file.n);
    free_bytes(&file);
    ck_assert_int_eq(truncate(path, 200000000), 0);
    CloverError err = refused_path(path, CLOVER_BAD_INPUT);
    assert_says(err, "expected 2 to 100000000");
    unlink(path);
    err = refused("GGUF", 0);
    assert_says(err, "that begin with '{'");
    Bytes gguf = { 0 };
    put_text(&gguf, "GGUF\3");
    put_zeros(&gguf, 30);
    err = refused_bytes(gguf, CLOVER_BAD_INPUT);
    assert_says(err, "it is a GGUF file: give it a name that ends in .gguf");
}
END_TEST

START_TEST(json) {
    static const struct { const char *header, *says;
    } cases[] = {
        { "{\"a\":", "its header is no proper JSON at byte" },
        { "{\"a\":1} x", "no proper JSON" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_"
          "offsets\":[4,8]}}",
          "duplicate object key" },
        { "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,4]}}", "duplicate object key" },
        { "{\"\xff\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", "no proper JSON" },
        { "{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", "no proper JSON" },
        { "{\"a\":7}", "tensor 'a' has no text \"dtype\"" },
        { "{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", "tensor 'a' has no text \"dtype\"" },
        { "{\"a\":{\"dtype\":5,\"shape\":[],\"data_offsets\":[0,4]}}", "tensor 'a' has no text \"dtype\"" },
        { "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", "tensor 'a' has no \"shape\"" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]}}", "tensor 'a' has no \"shape\"" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "tensor 'a' has no \"shape\"" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", "tensor 'a' has no \"shape\"" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}", "tensor 'a' has no \"shape\"" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}}", "no proper JSON" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "tensor 'a' has no \"data_offsets\"" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]}}", "tensor 'a' has no \"data_offsets\"" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", "tensor 'a' has no \"data_offsets\"" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "with 0 <= begin <= end" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", "with 0 <= begin <= end" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", "more than 2^63 bytes" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,4]}}", "more than 2^63 bytes" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
          "tensor 'a' has 4 bytes by its data_offsets, expected 8 by its shape and type F32" },
        { "{\"__metadata__\":{\"a\":\"b\",\"n\":7},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          "__metadata__ has the key 'n' with a value that is no text" },
        { "{\"__metadata__\":[],\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          "__metadata__ is no JSON object" }
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CloverError err = refused(cases[i].header, 4);
        ck_assert_msg(strstr(err.text, cases[i].says) != NULL, "case %zu: expected \"%s\" in: %s", i, cases[i].says, err.text);
        ck_assert_msg(problems(&err) == 1, "case %zu: %s", i, err.text);
    }
    CloverError err =
        refused_bytes(safetensors_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4),
                      CLOVER_UNSUPPORTED);
    assert_says(err, "has 9 dimensions, supported are at most 8");
}
END_TEST

/* Two tensors a and b, each of n bytes from begin, over `data` bytes. */
static CloverError refused_pair(int begin_a, int n_a, int begin_b, int n_b, size_t data) {
    char header[256];
    snprintf(header, sizeof header,
             "{\"a\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%d,%d]},\"b\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_"
             "offsets\":[%d,%d]}}",
             n_a, begin_a, begin_a + n_a, n_b, begin_b, begin_b + n_b);
    return refused(header, data);
}

START_TEST(holes_overlaps_and_ends) {
    CloverError err = refused_pair(0, 4, 5, 4, 9);
    assert_says(err, "tensor 'b' begins at byte 5 of the data, expected 4, where the ones before it end: there is a hole");
    err = refused_pair(0, 4, 3, 4, 7);
    assert_says(err, "tensor 'b' begins at byte 3 of the data, expected 4, where the ones before it end: they overlap");
    err = refused_pair(0, 4, 0, 4, 4);
    assert_says(err, "they overlap");
    err = refused_pair(0, 8, 2, 2, 8);
    assert_says(err, "tensor 'b' begins at byte 2 of the data, expected 8");
    err = refused_pair(1, 3, 4, 4, 8);
    assert_says(err, "tensor 'a' begins at byte 1 of the data, expected 0");
    err = refused_pair(0, 4, 4, 4, 7);
    assert_says(err, "its tensors need 8 bytes of data, but 7 follow the header; it is cut short");
    err = refused_pair(0, 4, 4, 4, 10);
    assert_says(err, "2 bytes follow the last tensor, expected none");
    err = refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,9223372036854775807]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[9223372036854775807,9223372036854775807]}}",
        0);
    assert_says(err, "tensor 'b' has 0 bytes by its data_offsets");
    err = refused("{\"a\":{\"dtype\":\"X\",\"shape\":[9223372036854775807,9],\"data_offsets\":[0,9223372036854775807]}}", 8);
    assert_says(err, "its tensors need 9223372036854775807 bytes of data, but 8 follow");
}
END_TEST

START_TEST(all_problems_at_once) {
    CloverError err = refused(
        "{\"__metadata__\":{\"n\":7},\"a\":{\"shape\":[1]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]},"
        "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9,0]}}",
        4);
    ck_assert_int_eq(problems(&err), 4);
    assert_says(err, "key 'n'");
    assert_says(err, "tensor 'a'");
    assert_says(err, "tensor 'b'");
    assert_says(err, "tensor 'c'");
}
END_TEST

START_TEST(paths) {
    CloverError err = refused_path(in_folder(folder, "none.safetensors"), CLOVER_BAD_INPUT);
    assert_says(err, "no such file");
    ck_assert_int_eq(mkfifo(in_folder(folder, "pipe.safetensors"), 0600), 0);
    err = refused_path(in_folder(folder, "pipe.safetensors"), CLOVER_BAD_INPUT);
    assert_says(err, "is a pipe");
    unlink(in_folder(folder, "pipe.safetensors"));
    ck_assert_int_eq(symlink("ring", in_folder(folder, "ring")), 0);
    err = refused_path(in_folder(folder, "ring"), CLOVER_SYSTEM);
    assert_says(err, "cannot open the file");
}
END_TEST

/* ---- folders ----------------------------------------------------------------------------------------------------- */

/* A new folder in the test's own. */
static void new_folder(const char *name, char path[4 * TEST_PATH]) {
    strcpy(path, in_folder(folder, name));
    ck_assert_int_eq(mkdir(path, 0777), 0);
}

/* A shard whose tensors are named by the letters of `names`, each one byte: the letter. */
static void write_shard(const char *in, const char *file_name, const char *names) {
    SafetensorsBuild b = { 0 };
    for (const char *p = names; *p; p++) build_safetensor(&b, (char[]){ *p, 0 }, "U8", 1, (int64_t[]){ 1 }, p, 1);
    Bytes file = build_safetensors(&b);
    write_file(in_folder(in, file_name), file.data, file.n);
    free_bytes(&file);
}

static void write_index(const char *in, const char *text) { write_file(in_folder(in, "model.safetensors.index.json"), text, strlen(text)); }

static const char two_shards[] = "{\"metadata\":{\"total_size\":4},\"weight_map\":{\"c\":\"model-00002-of-00002.safetensors\","
                                 "\"a\":\"model-00001-of-00002.safetensors\","
                                 "\"b\":\"model-00001-of-00002.safetensors\",\"d\":\"model-00002-of-00002.safetensors\"}}";

START_TEST(an_index_and_its_shards) {
    char in[4 * TEST_PATH];
    new_folder("index", in);
    write_shard(in, "model-00001-of-00002.safetensors", "ab");
    write_shard(in, "model-00002-of-00002.safetensors", "dc");
    write_shard(in, "consolidated.safetensors", "abcd");             /* not named by the index */
    write_index(in, two_shards);
    Safetensors *s = opened_path(in);
    ck_assert_int_eq(safetensors_parts(s), 2);
    ck_assert_int_eq(safetensors_tensors(s).n, 4);
    ck_assert_str_eq(safetensors_tensors(s).tensor[2].name, "d");
    ck_assert_mem_eq(safetensors_tensor(s, "c")->data, "c", 1);
    ck_assert_str_eq(safetensors_tensor(s, "c")->file, in_folder(in, "model-00002-of-00002.safetensors"));
    safetensors_close(s);
}
END_TEST

START_TEST(an_index_that_is_wrong) {
    char in[4 * TEST_PATH];
    new_folder("wrong", in);
    write_shard(in, "model-00001-of-00002.safetensors", "ab");
    write_index(in, two_shards);
    CloverError err = refused_path(in, CLOVER_BAD_INPUT);
    assert_says(err, "model-00002-of-00002.safetensors: is missing: model.safetensors.index.json names it");
    write_shard(in, "model-00002-of-00002.safetensors", "c");
    err = refused_path(in, CLOVER_BAD_INPUT);
    assert_says(err, "tensor 'd' is said to be in model-00002-of-00002.safetensors, but is in no shard");
    write_shard(in, "model-00002-of-00002.safetensors", "cdx");
    err = refused_path(in, CLOVER_BAD_INPUT);
    assert_says(err, "tensor 'x' is not in the index");
    write_shard(in, "model-00001-of-00002.safetensors", "ad");
    write_shard(in, "model-00002-of-00002.safetensors", "cb");
    err = refused_path(in, CLOVER_BAD_INPUT);
    assert_says(err, "tensor 'b' is said to be in model-00001-of-00002.safetensors, but is in model-00002-of-00002.safetensors");
    assert_says(err, "tensor 'd' is said to be in model-00002-of-00002.safetensors, but is in model-00001-of-00002.safetensors");
    ck_assert_int_eq(problems(&err), 2);
    write_shard(in, "model-00002-of-00002.safetensors", "cda");
    err = refused_path(in, CLOVER_BAD_INPUT);
    assert_says(err, "tensor 'a' is also in");
    static const struct { const char *text, *says;
    } cases[] = { { "", "is empty" },
                  { "[]", "the index is JSON, but no object" },
                  { "{\"weight_map\":", "the index is no proper JSON" },
                  { "{}", "has no object \"weight_map\"" },
                  { "{\"weight_map\":[1]}", "has no object \"weight_map\"" },
                  { "{\"weight_map\":{}}", "weight_map names no tensor" },
                  { "{\"weight_map\":{\"a\":7}}", "tensor 'a' is said to be in no text" },
                  { "{\"weight_map\":{\"a\":\"\"}}", "tensor 'a' is said to be in ''" },
                  { "{\"weight_map\":{\"a\":\"../x.safetensors\"}}",
                    "tensor 'a' is said to be in '../x.safetensors', expected the name of a file in the same folder" },
                  { "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\",\"a\":\"b\"}}", "duplicate object key" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_index(in, cases[i].text);
        err = refused_path(in, CLOVER_BAD_INPUT);
        assert_says(err, cases[i].says);
    }
}
END_TEST

START_TEST(a_folder_without_index) {
    char in[4 * TEST_PATH];
    new_folder("plain", in);
    CloverError err = refused_path(in, CLOVER_BAD_INPUT);
    assert_says(err, "the folder has no weights: expected *.safetensors files");
    write_file(in_folder(in, "config.json"), "{}", 2);
    write_file(in_folder(in, ".hidden.safetensors"), "x", 1);
    write_file(in_folder(in, ".safetensors"), "x", 1);
    err = refused_path(in, CLOVER_BAD_INPUT);
    assert_says(err, "has no weights");
    write_shard(in, "b.safetensors", "ba");
    write_shard(in, "a.safetensors", "c");
    char slash[TEST_PATH * 5];
    snprintf(slash, sizeof slash, "%s/", in);
    Safetensors *s = opened_path(slash);
    ck_assert_int_eq(safetensors_parts(s), 2);
    ck_assert_str_eq(safetensors_tensors(s).tensor[0].name, "c");
    ck_assert_str_eq(safetensors_tensors(s).tensor[1].name, "b");
    ck_assert_str_eq(safetensors_tensor(s, "c")->file, in_folder(in, "a.safetensors"));
    safetensors_close(s);
    static const char *const notes[] = { "{\"__metadata__\":{\"of\":\"m\"}}", "{\"__metadata__\":{\"of\":\"n\"}}" };
    for (int i = 0; i < 2; i++) {                                    /* metadata: the first file's */
        Bytes file = safetensors_file(notes[i], 0);
        write_file(in_folder(in, i == 0 ? "0.safetensors" : "n.safetensors"), file.data, file.n);
        free_bytes(&file);
    }
    s = opened_path(in);
    ck_assert_str_eq(safetensors_metadata(s, "of"), "m");
    safetensors_close(s);
    write_shard(in, "c.safetensors", "xb");
    write_file(in_folder(in, "d.safetensors"), "damaged!!", 9);
    err = refused_path(in, CLOVER_BAD_INPUT);
    ck_assert_int_eq(problems(&err), 2);
    assert_says(err, "c.safetensors: tensor 'b' is also in");
    assert_says(err, "d.safetensors: its first 8 bytes");
}
END_TEST

/* Without an index, numbered names tell what is missing and what does not belong. */
START_TEST(numbered_names) {
    char in[4 * TEST_PATH];
    new_folder("numbered", in);
    write_shard(in, "model-00002-of-00003.safetensors", "b");
    CloverError err = refused_path(in, CLOVER_BAD_INPUT);
    assert_says(err, "model-00001-of-00003.safetensors: is missing: it is part 1 of 3");
    assert_says(err, "model-00003-of-00003.safetensors: is missing: it is part 3 of 3");
    write_shard(in, "model-00001-of-00003.safetensors", "a");
    write_shard(in, "model-00003-of-00003.safetensors", "c");
    safetensors_close(opened_path(in));
    write_shard(in, "model-00004-of-00003.safetensors", "d");
    err = refused_path(in, CLOVER_BAD_INPUT);
    assert_says(err, "model-00004-of-00003.safetensors: by its name is part 4 of 3");
}
END_TEST

START_TEST(no_memory) {
    if (!malloc_can_fail()) {
        puts("skip safetensors_no_memory (a sanitizer or valgrind has its own allocator)");
        return;
    }
    char in[4 * TEST_PATH];
    new_folder("memory", in);
    write_shard(in, "model-00001-of-00002.safetensors", "ab");
    write_shard(in, "model-00002-of-00002.safetensors", "cd");
    for (int indexed = 0; indexed < 2; indexed++) {
        if (indexed) write_index(in, two_shards);
        for (int all = 0; all < 2; all++) {
            long n = 0;
            for (;; n++) {
                CloverError err;
                Safetensors *none = (Safetensors *)&err, *s = none;
                long live = malloc_live;
                malloc_fail_after(n, all == 1);
                CloverStatus status = safetensors_open(in, &s, &err);
                if (!malloc_recover()) {
                    assert_ok(status, err);
                    safetensors_close(s);
                    break;
                }
                ck_assert_int_eq(malloc_live, live);
                assert_status(status, CLOVER_SYSTEM, err);
                assert_says(err, "out of memory");
                ck_assert_ptr_eq(s, none);
            }
            ck_assert_int_gt(n, 30);
        }
    }
}
END_TEST

static Suite *safetensors_suite(void) {
    Suite *s = suite_create("safetensors");
    TCase *t = tcase_create("safetensors");
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, tensors_in_the_order_of_their_data);
    tcase_add_test(t, dtypes);
    tcase_add_test(t, scalars_and_nothing);
    tcase_add_test(t, a_real_folder);
    tcase_add_test(t, cut_anywhere);
    tcase_add_test(t, header_length);
    tcase_add_test(t, json);
    tcase_add_test(t, holes_overlaps_and_ends);
    tcase_add_test(t, all_problems_at_once);
    tcase_add_test(t, paths);
    tcase_add_test(t, an_index_and_its_shards);
    tcase_add_test(t, an_index_that_is_wrong);
    tcase_add_test(t, a_folder_without_index);
    tcase_add_test(t, numbered_names);
    tcase_add_test(t, no_memory);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(safetensors_suite()); }
