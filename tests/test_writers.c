/* test_writers.c - the streaming writers: the bytes they write, what the readers make of them, and what stays behind
 * when something fails. */
#include <signal.h>
#include <sys/resource.h>
#include "../ref/files/safetensors.h"
#include "../tools/gguf_write.h"
#include "../tools/output.h"
#include "../tools/safetensors_write.h"
#include "failing_malloc.h"
#include "files.h"

static int files_in(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)); ) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static void assert_file(const char *path, const Bytes *expected) {
    Bytes found = read_file(path);
    ck_assert_uint_eq(found.n, expected->n);
    ck_assert_mem_eq(found.data, expected->data, found.n);
    free_bytes(&found);
}

/* ---- GGUF --------------------------------------------------------------------------------------------------------- */

/* One key of every helper, and the tensors a [2,3] of F32 and b [5] of BF16. */
static GgufWriter *small_gguf(void) {
    static const int32_t numbers[] = { 7, -1 };
    static const double real = 0.1;
    GgufWriter *w = gguf_writer_new();
    ck_assert_ptr_nonnull(w);
    gguf_put_string(w, "s", "ab");
    gguf_put_u32(w, "u", 0x01020304);
    gguf_put_f32(w, "f", 1.5f);
    gguf_put_bool(w, "b", true);
    gguf_put_i32s(w, "i", numbers, 2);
    gguf_put_strings(w, "t", 2);
    gguf_add_string(w, "x", 1);
    gguf_add_string(w, "", 0);
    gguf_put_raw(w, "d", GGUF_F64, GGUF_F64, 1, &real, 8);
    gguf_add_tensor(w, "a", DT_F32, 2, (int64_t[]){ 2, 3 });
    gguf_add_tensor(w, "b", DT_BF16, 1, (int64_t[]){ 5 });
    return w;
}

static const float a_values[6] = { 1, 2, 3, 4, 5, -6 };
static const uint16_t b_values[5] = { 0x3f80, 0x4000, 0xc040, 0, 1 };

static void put_name(Bytes *b, const char *name) {
    put_u64(b, strlen(name));
    put_text(b, name);
}

static void put_key(Bytes *b, const char *name, uint32_t type) {
    put_name(b, name);
    put_u32(b, type);
}

/* The same file, byte by byte from the format's description. */
static Bytes small_gguf_by_hand(void) {
    Bytes b = { 0 };
    put_text(&b, "GGUF");
    put_u32(&b, 3);
    put_u64(&b, 2);                                                  /* tensors */
    put_u64(&b, 7);                                                  /* keys */
    put_key(&b, "s", 8), put_name(&b, "ab");
    put_key(&b, "u", 4), put_u32(&b, 0x01020304);
    put_key(&b, "f", 6), put_u32(&b, 0x3fc00000);
    put_key(&b, "b", 7), put_number(&b, 1, 1);
    put_key(&b, "i", 9), put_u32(&b, 5), put_u64(&b, 2), put_u32(&b, 7), put_u32(&b, 0xffffffff);
    put_key(&b, "t", 9), put_u32(&b, 8), put_u64(&b, 2), put_name(&b, "x"), put_name(&b, "");
    put_key(&b, "d", 12), put_u64(&b, 0x3fb999999999999a);
    put_name(&b, "a"), put_u32(&b, 2), put_u64(&b, 3), put_u64(&b, 2), put_u32(&b, 0), put_u64(&b, 0);      /* fastest first */
    put_name(&b, "b"), put_u32(&b, 1), put_u64(&b, 5), put_u32(&b, 30), put_u64(&b, 32);
    put_zeros(&b, (32 - b.n % 32) % 32);
    put_bytes(&b, a_values, 24), put_zeros(&b, 8);
    put_bytes(&b, b_values, 10), put_zeros(&b, 22);
    return b;
}

START_TEST(gguf_bytes_are_the_format) {
    char folder[TEST_PATH];
    CloverError err;
    make_folder("writers", folder);
    const char *path = in_folder(folder, "a.gguf");
    Bytes expected = small_gguf_by_hand(), data = { 0 };
    put_bytes(&data, a_values, 24);
    put_bytes(&data, b_values, 10);
    for (size_t piece = 1; piece <= data.n; piece += 11) {           /* in pieces of 1, 12, 23 and 34 bytes */
        GgufWriter *w = small_gguf();
        assert_ok(gguf_writer_begin(w, path, 0, 0, true, &err), err);
        for (size_t at = 0; at < data.n; at += piece)
            assert_ok(gguf_writer_write(w, data.data + at, data.n - at < piece ? data.n - at : piece, &err), err);
        ck_assert_uint_eq(gguf_writer_bytes(w), 64);
        assert_ok(gguf_writer_finish(w, &err), err);
        gguf_writer_free(w);
        assert_file(path, &expected);
    }
    ck_assert_int_eq(files_in(folder), 1);
    free_bytes(&expected);
    free_bytes(&data);
    remove_folder(folder);
}
END_TEST

/* Every tensor type through writer and reader: shape, offset and bytes come back. */
static const DType all_types[] = { DT_F32, DT_F16, DT_BF16, DT_F64, DT_I8, DT_I16, DT_I32, DT_I64, DT_Q4_0, DT_Q4_1, DT_Q5_0,
    DT_Q5_1, DT_Q8_0,
                                   DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_IQ4_NL, DT_IQ4_XS };
enum { N_TYPES = sizeof all_types / sizeof *all_types };

static void all_types_file(const char *path, uint64_t alignment, uint64_t split, CloverError *err) {
    GgufWriter *w = gguf_writer_new();
    gguf_put_string(w, "general.architecture", "none");
    for (int i = 0; i < N_TYPES; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        gguf_add_tensor(w, name, all_types[i], 3, (int64_t[]){ 2, i + 1, 256 });
    }
    assert_ok(gguf_writer_begin(w, path, alignment, split, false, err), *err);
    for (int i = 0; i < N_TYPES; i++) {
        uint8_t row[4096];
        int64_t bytes = dtype_bytes(all_types[i], 256);
        for (int r = 0; r < 2 * (i + 1); r++) {
            memset(row, 16 * i + r, (size_t)bytes);
            assert_ok(gguf_writer_write(w, row, (size_t)bytes, err), *err);
        }
    }
    assert_ok(gguf_writer_finish(w, err), *err);
    gguf_writer_free(w);
}

static void assert_all_types(const Gguf *g, uint64_t alignment) {
    ck_assert_int_eq(gguf_tensors(g).n, N_TYPES);
    ck_assert_uint_eq(gguf_alignment(g), alignment);
    for (int i = 0; i < N_TYPES; i++) {
        const Tensor *t = &gguf_tensors(g).tensor[i];
        uint64_t row = (uint64_t)dtype_bytes(all_types[i], 256);
        ck_assert_int_eq(t->type, all_types[i]);
        ck_assert_int_eq(t->dims, 3);
        ck_assert(t->shape[0] == 2 && t->shape[1] == i + 1 && t->shape[2] == 256);
        ck_assert_uint_eq(t->bytes, row * 2 * (uint64_t)(i + 1));
        ck_assert_uint_eq(t->offset % alignment, 0);
        uint64_t wrong = 0;
        for (uint64_t k = 0; k < t->bytes; k++) wrong += t->data[k] != (uint8_t)(16 * i + (int)(k / row));
        ck_assert_uint_eq(wrong, 0);
    }
}

START_TEST(gguf_every_type_reads_back) {
    static const uint64_t alignments[] = { 32, 64, 8 };
    char folder[TEST_PATH];
    CloverError err;
    make_folder("writers", folder);
    for (int i = 0; i < 3; i++) {
        char name[24];
        Gguf *g;
        snprintf(name, sizeof name, "%d.gguf", i);
        all_types_file(in_folder(folder, name), i == 0 ? 0 : alignments[i], 0, &err);
        assert_ok(gguf_open(in_folder(folder, name), &g, &err), err);
        assert_all_types(g, alignments[i]);
        gguf_close(g);
    }
    remove_folder(folder);
}
END_TEST

START_TEST(gguf_split_reads_back) {
    char folder[TEST_PATH], name[64];
    CloverError err;
    Gguf *g;
    make_folder("writers", folder);
    all_types_file(in_folder(folder, "m.gguf"), 0, 30000, &err);
    int parts = files_in(folder);
    ck_assert(parts > 4 && parts <= 8);
    snprintf(name, sizeof name, "m-00001-of-%05d.gguf", parts);
    ck_assert_int_eq(rename(in_folder(folder, name), in_folder(folder, "away")), 0);
    GgufWriter *w = gguf_writer_new();                               /* a later part exists: said before anything is written */
    for (int i = 0; i < parts; i++)
        gguf_add_tensor(w, (const char *[]){ "a", "b", "c", "d", "e", "f", "g", "h" }[i % 8], DT_F32, 1, (int64_t[]){ 8 });
    assert_status(gguf_writer_begin(w, in_folder(folder, "m.gguf"), 0, 1, false, &err), CLOVER_USAGE, err);
    assert_says(err, "m-00002-of-");
    gguf_writer_free(w);
    ck_assert_int_eq(files_in(folder), parts);
    ck_assert_int_eq(rename(in_folder(folder, "away"), in_folder(folder, name)), 0);
    snprintf(name, sizeof name, "m-00001-of-%05d.gguf", parts);
    assert_ok(gguf_open(in_folder(folder, name), &g, &err), err);
    ck_assert_int_eq(gguf_parts(g), parts);
    assert_all_types(g, 32);
    int64_t count, tensors;
    ck_assert(gguf_int(gguf_key(g, "split.count"), 0, &count) && count == parts);
    ck_assert(gguf_int(gguf_key(g, "split.tensors.count"), 0, &tensors) && tensors == N_TYPES);
    gguf_close(g);
    /* no part is larger than asked for, but for one tensor alone */
    for (int i = 1; i <= parts; i++) {
        struct stat info;
        snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", i, parts);
        ck_assert_int_eq(stat(in_folder(folder, name), &info), 0);
        Bytes b = read_file(in_folder(folder, name));
        ck_assert(info.st_size < 31000 || b.data[8] == 1);
        free_bytes(&b);
    }
    remove_folder(folder);
}
END_TEST

/* A part is closed before the next is opened: there may be more parts than a process may have files open. */
START_TEST(gguf_more_parts_than_open_files) {
    char folder[TEST_PATH];
    CloverError err;
    struct rlimit old, limit;
    make_folder("writers", folder);
    getrlimit(RLIMIT_NOFILE, &old);
    limit = old;
    limit.rlim_cur = 16;
    setrlimit(RLIMIT_NOFILE, &limit);
    all_types_file(in_folder(folder, "m.gguf"), 0, 1, &err);
    setrlimit(RLIMIT_NOFILE, &old);
    ck_assert_int_eq(files_in(folder), N_TYPES);
    remove_folder(folder);
}
END_TEST

START_TEST(gguf_mistakes_of_ours) {
    char folder[TEST_PATH];
    CloverError err;
    make_folder("writers", folder);
    const char *path = in_folder(folder, "a.gguf");
    GgufWriter *w = small_gguf();
    gguf_put_u32(w, "u", 1);
    assert_status(gguf_writer_begin(w, path, 0, 0, false, &err), CLOVER_BUG, err);
    assert_says(err, "key u: written twice");
    gguf_writer_free(w);

    w = small_gguf();
    gguf_add_tensor(w, "a", DT_F32, 1, (int64_t[]){ 1 });
    assert_status(gguf_writer_begin(w, path, 0, 0, false, &err), CLOVER_BUG, err);
    assert_says(err, "tensor a: written twice");
    gguf_writer_free(w);

    w = small_gguf();
    gguf_add_tensor(w, "c", DT_Q4_0, 1, (int64_t[]){ 33 });
    assert_status(gguf_writer_begin(w, path, 0, 0, false, &err), CLOVER_BUG, err);
    assert_says(err, "tensor c: its shape");
    gguf_writer_free(w);

    w = small_gguf();
    gguf_put_strings(w, "more", 2);
    gguf_add_string(w, "one", 3);
    assert_status(gguf_writer_begin(w, path, 0, 0, false, &err), CLOVER_BUG, err);
    gguf_writer_free(w);

    w = small_gguf();
    assert_ok(gguf_writer_begin(w, path, 0, 0, false, &err), err);
    assert_ok(gguf_writer_write(w, a_values, 24, &err), err);
    assert_status(gguf_writer_finish(w, &err), CLOVER_BUG, err);
    assert_says(err, "tensor b: 10 bytes were not written");
    gguf_writer_free(w);

    w = small_gguf();
    assert_ok(gguf_writer_begin(w, path, 0, 0, false, &err), err);
    uint8_t too_much[40] = { 0 };
    assert_status(gguf_writer_write(w, too_much, 35, &err), CLOVER_BUG, err);
    assert_says(err, "1 bytes more");
    gguf_writer_free(w);
    ck_assert_int_eq(files_in(folder), 0);
    remove_folder(folder);
}
END_TEST

/* ---- safetensors -------------------------------------------------------------------------------------------------- */

START_TEST(safetensors_bytes_are_the_format) {
    static const double x[] = { 1, -2 };
    static const int64_t ids[] = { 3 };
    static const char *const metadata[] = { "format", "pt", "note", "a \"quote\"\n", NULL };
    char folder[TEST_PATH];
    CloverError err;
    make_folder("writers", folder);
    const NamedArray arrays[] = { { "x", DT_F64, 2, { 2, 1 }, x }, { "none", DT_F32, 1, { 0 }, NULL },
        { "ids", DT_I64, 1, { 1 }, ids }, { "scalar", DT_BF16, 0, { 0 }, b_values } };
    const char *path = in_folder(folder, "a.safetensors");
    assert_ok(safetensors_save(path, arrays, 4, metadata, &err), err);

    char json[512];
    int n = snprintf(json, sizeof json, "%s", "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"a \\\"quote\\\"\\n\"},"
        "\"x\":{\"dtype\":\"F64\",\"shape\":[2,1],\"data_offsets\":[0,16]},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[16,16]},"
        "\"ids\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[16,24]},"
        "\"scalar\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]}}");
    while (n % 8 != 0) json[n++] = ' ';
    Bytes expected = { 0 };
    put_u64(&expected, (uint64_t)n);
    put_bytes(&expected, json, (size_t)n);
    put_bytes(&expected, x, 16);
    put_bytes(&expected, ids, 8);
    put_bytes(&expected, b_values, 2);
    assert_file(path, &expected);
    free_bytes(&expected);

    Safetensors *s;
    assert_ok(safetensors_open(path, &s, &err), err);
    ck_assert_int_eq(safetensors_tensors(s).n, 4);
    ck_assert_str_eq(safetensors_metadata(s, "note"), "a \"quote\"\n");
    ck_assert_mem_eq(safetensors_tensor(s, "x")->data, x, 16);
    ck_assert_int_eq(safetensors_tensor(s, "none")->elements, 0);
    safetensors_close(s);
    remove_folder(folder);
}
END_TEST

START_TEST(safetensors_shards_read_back) {
    char folder[TEST_PATH];
    CloverError err;
    Safetensors *s;
    make_folder("writers", folder);
    SafetensorsWriter *w = safetensors_writer_new();
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "t.%d", i);
        safetensors_writer_add(w, name, DT_F32, 1, (int64_t[]){ i + 1 });
    }
    ck_assert_uint_eq(safetensors_writer_bytes(w), 220);
    assert_ok(safetensors_writer_begin(w, folder, 64, false, &err), err);        /* 4+8+12+16+20 | 24+28 | 32 | 36 | 40 */
    for (int i = 0; i < 10; i++)
        for (int k = 0; k <= i; k++) assert_ok(safetensors_writer_write(w, &(float){ (float)(100 * i + k) }, 4, &err), err);
    assert_ok(safetensors_writer_finish(w, &err), err);
    safetensors_writer_free(w);
    ck_assert_int_eq(files_in(folder), 6);
    ck_assert_int_eq(access(in_folder(folder, "model-00005-of-00005.safetensors"), R_OK), 0);
    assert_ok(safetensors_open(folder, &s, &err), err);
    ck_assert_int_eq(safetensors_parts(s), 5);
    for (int i = 0; i < 10; i++) {
        char name[16];
        float last;
        snprintf(name, sizeof name, "t.%d", i);
        const Tensor *t = safetensors_tensor(s, name);
        ck_assert_ptr_nonnull(t);
        ck_assert_int_eq(t->elements, i + 1);
        memcpy(&last, t->data + 4 * i, 4);
        ck_assert(last == (float)(101 * i));
    }
    safetensors_close(s);
    remove_folder(folder);
}
END_TEST

START_TEST(safetensors_has_no_block_types) {
    CloverError err;
    SafetensorsWriter *w = safetensors_writer_new();
    safetensors_writer_add(w, "q", DT_Q4_0, 1, (int64_t[]){ 32 });
    assert_status(safetensors_writer_begin(w, "build/tmp/never.safetensors", 0, false, &err), CLOVER_BUG, err);
    assert_says(err, "tensor q");
    safetensors_writer_free(w);
    ck_assert_int_ne(access("build/tmp/never.safetensors", F_OK), 0);
}
END_TEST

/* ---- files that appear whole or not at all ------------------------------------------------------------------------- */

START_TEST(the_old_file_stays_until_the_new_one_is_whole) {
    char folder[TEST_PATH];
    CloverError err;
    Output o;
    make_folder("writers", folder);
    const char *path = in_folder(folder, "f");
    write_file(path, "old", 3);
    assert_status(output_open(&o, path, false, &err), CLOVER_USAGE, err);
    assert_says(err, "f: exists; --force replaces it");
    assert_ok(output_open(&o, path, true, &err), err);
    assert_ok(output_write(&o, "newer", 5, &err), err);
    Bytes expected = { 0 };
    put_text(&expected, "old");
    assert_file(path, &expected);
    output_discard(&o);                                              /* given up: the old one is still there, alone */
    assert_file(path, &expected);
    ck_assert_int_eq(files_in(folder), 1);

    assert_ok(output_open(&o, path, true, &err), err);
    assert_ok(output_write(&o, "newer", 5, &err), err);
    assert_ok(output_close(&o, &err), err);
    assert_file(path, &expected);
    assert_ok(output_commit(&o, &err), err);
    output_discard(&o);
    free_bytes(&expected);
    put_text(&expected, "newer");
    assert_file(path, &expected);
    ck_assert_int_eq(files_in(folder), 1);
    free_bytes(&expected);
    remove_folder(folder);
}
END_TEST

START_TEST(paths_that_cannot_be_written) {
    char folder[TEST_PATH];
    CloverError err;
    Output o;
    bool made;
    make_folder("writers", folder);
    assert_status(output_open(&o, folder, true, &err), CLOVER_USAGE, err);
    assert_says(err, "is a folder");
    assert_status(output_open(&o, in_folder(folder, "no/such/f"), false, &err), CLOVER_SYSTEM, err);
    assert_says(err, "No such file");
    write_file(in_folder(folder, "f"), "x", 1);
    assert_status(output_folder(in_folder(folder, "f"), false, &made, &err), CLOVER_USAGE, err);
    assert_says(err, "is a file");
    assert_status(output_folder(folder, false, &made, &err), CLOVER_USAGE, err);
    assert_says(err, "not empty");
    assert_ok(output_folder(folder, true, &made, &err), err);
    ck_assert(!made);
    assert_ok(output_folder(in_folder(folder, "new"), false, &made, &err), err);
    ck_assert(made);
    assert_ok(output_folder(in_folder(folder, "new"), false, &made, &err), err);     /* an empty one is fine */
    assert_status(output_folder(in_folder(folder, "no/such"), false, &made, &err), CLOVER_SYSTEM, err);
    remove_folder(folder);
}
END_TEST

START_TEST(a_full_device) {
    CloverError err;
    const NamedArray array = { "a", DT_F32, 2, { 2, 3 }, a_values };
    if (access("/dev/full", W_OK) != 0) return;
    assert_status(output_file("/dev/full", "abc", 3, false, &err), CLOVER_SYSTEM, err);
    assert_says(err, "/dev/full: disk full");
    assert_status(safetensors_save("/dev/full", &array, 1, NULL, &err), CLOVER_SYSTEM, err);
    assert_says(err, "/dev/full: disk full");
    ck_assert_int_eq(access("/dev/full", W_OK), 0);                  /* and nobody removed it */
}
END_TEST

/* A file size limit stands in for a disk that fills up on the way: at the first flush, at the last, in a later part. */
START_TEST(a_disk_that_fills_up) {
    static const rlim_t limits[] = { 0, 1000, 1 << 20, 3 << 20 };
    char folder[TEST_PATH];
    CloverError err;
    make_folder("writers", folder);
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 8; i++) {
        struct rlimit old, limit;
        getrlimit(RLIMIT_FSIZE, &old);
        limit = old;
        limit.rlim_cur = limits[i / 2];
        uint8_t *zeros = calloc(1, 1 << 20);
        GgufWriter *w = gguf_writer_new();
        for (int k = 0; k < 4; k++)
            gguf_add_tensor(w, (const char *[]){ "a", "b", "c", "d" }[k], DT_F32, 1, (int64_t[]){ (k + 1) << 18 });
        setrlimit(RLIMIT_FSIZE, &limit);
        CloverStatus status = gguf_writer_begin(w, in_folder(folder, "m.gguf"), 0, i % 2 ? 1 << 20 : 0, false, &err);
        for (int k = 0; k < 10 && status == CLOVER_OK; k++) status = gguf_writer_write(w, zeros, 1 << 20, &err);
        if (status == CLOVER_OK) status = gguf_writer_finish(w, &err);
        setrlimit(RLIMIT_FSIZE, &old);
        gguf_writer_free(w);
        free(zeros);
        assert_status(status, CLOVER_SYSTEM, err);
        assert_says(err, "disk full");
        assert_says(err, i % 2 ? "m-0000" : "m.gguf");
        ck_assert_int_eq(files_in(folder), 0);
    }
    remove_folder(folder);
}
END_TEST

START_TEST(room_is_checked_before_anything_is_written) {
    char folder[TEST_PATH];
    CloverError err;
    make_folder("writers", folder);
    GgufWriter *w = gguf_writer_new();
    gguf_add_tensor(w, "huge", DT_F32, 2, (int64_t[]){ 1 << 28, 1 << 28 });
    assert_status(gguf_writer_begin(w, in_folder(folder, "m.gguf"), 0, 0, false, &err), CLOVER_SYSTEM, err);
    assert_says(err, "disk full: 288230376151711744 bytes are needed");
    gguf_writer_free(w);
    ck_assert_int_eq(files_in(folder), 0);
    remove_folder(folder);
}
END_TEST

START_TEST(no_memory_at_any_point) {
    char folder[TEST_PATH];
    CloverError err;
    if (!malloc_can_fail()) {
        puts("skip writers_no_memory (a sanitizer or valgrind has its own allocator)");
        return;
    }
    make_folder("writers", folder);
    const char *path = in_folder(folder, "a.gguf");
    bool failed = true;
    for (long i = 0; failed; i++) {
        ck_assert_int_lt(i, 1000);
        malloc_fail_after(i, false);
        GgufWriter *w = gguf_writer_new();
        CloverStatus status = CLOVER_SYSTEM;
        if (w) {
            gguf_put_string(w, "k", "v");
            gguf_add_tensor(w, "a", DT_F32, 2, (int64_t[]){ 2, 3 });
            gguf_add_tensor(w, "b", DT_F32, 2, (int64_t[]){ 2, 3 });
            status = gguf_writer_begin(w, path, 0, i % 2 ? 24 : 0, true, &err);
            for (int k = 0; k < 2 && status == CLOVER_OK; k++) status = gguf_writer_write(w, a_values, 24, &err);
            if (status == CLOVER_OK) status = gguf_writer_finish(w, &err);
            gguf_writer_free(w);
        }
        failed = malloc_recover();
        ck_assert_int_eq(status, failed ? CLOVER_SYSTEM : CLOVER_OK);
        if (failed) ck_assert_int_eq(files_in(folder), 0);
    }
    remove_folder(folder);
    make_folder("writers", folder);
    failed = true;
    for (long i = 0; failed; i++) {
        ck_assert_int_lt(i, 1000);
        malloc_fail_after(i, false);
        SafetensorsWriter *w = safetensors_writer_new();
        CloverStatus status = CLOVER_SYSTEM;
        if (w) {
            safetensors_writer_metadata(w, "k", "v");
            safetensors_writer_add(w, "a", DT_F32, 2, (int64_t[]){ 2, 3 });
            status = safetensors_writer_begin(w, folder, 24, true, &err);
            if (status == CLOVER_OK) status = safetensors_writer_write(w, a_values, 24, &err);
            if (status == CLOVER_OK) status = safetensors_writer_finish(w, &err);
            safetensors_writer_free(w);
        }
        failed = malloc_recover();
        ck_assert_int_eq(status, failed ? CLOVER_SYSTEM : CLOVER_OK);
        if (failed) ck_assert_int_eq(files_in(folder), 0);
    }
    ck_assert_int_eq(files_in(folder), 2);
    remove_folder(folder);
}
END_TEST

Suite *writers_suite(void) {
    Suite *s = suite_create("writers");
    TCase *t = tcase_create("writers");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, gguf_bytes_are_the_format);
    tcase_add_test(t, gguf_every_type_reads_back);
    tcase_add_test(t, gguf_split_reads_back);
    tcase_add_test(t, gguf_more_parts_than_open_files);
    tcase_add_test(t, gguf_mistakes_of_ours);
    tcase_add_test(t, safetensors_bytes_are_the_format);
    tcase_add_test(t, safetensors_shards_read_back);
    tcase_add_test(t, safetensors_has_no_block_types);
    tcase_add_test(t, the_old_file_stays_until_the_new_one_is_whole);
    tcase_add_test(t, paths_that_cannot_be_written);
    tcase_add_test(t, a_full_device);
    tcase_add_test(t, a_disk_that_fills_up);
    tcase_add_test(t, room_is_checked_before_anything_is_written);
    tcase_add_test(t, no_memory_at_any_point);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(writers_suite()); }
