/* test_gguf_bad.c - what a bad GGUF file gets: the right class, and a message that names the place. [GGUF-4] [ERR-2] */
#include "failing_malloc.h"
#include "gguf_build.h"

static char folder[TEST_PATH];

static void setup(void) { make_folder("gguf-bad", folder); }
static void teardown(void) { remove_folder(folder); }

/* Opening these bytes fails with this status; frees them. What *out was stays. */
static CloverError refused_bytes(Bytes file, CloverStatus status) {
    CloverError err;
    Gguf *none = (Gguf *)&err, *g = none;
    assert_status(gguf_open_bytes(file.data, file.n, "FILE", &g, &err), status, err);
    ck_assert_int_eq(err.status, status);
    ck_assert_ptr_eq(g, none);
    ck_assert_msg(strncmp(err.text, "FILE: ", 6) == 0, "no file named: %s", err.text);
    free_bytes(&file);
    return err;
}

static CloverError refused(GgufBuild *b, CloverStatus status) { return refused_bytes(build_file(b), status); }

static CloverError refused_path(const char *path, CloverStatus status) {
    CloverError err;
    Gguf *none = (Gguf *)&err, *g = none;
    assert_status(gguf_open(path, &g, &err), status, err);
    ck_assert_ptr_eq(g, none);
    ck_assert_msg(strncmp(err.text, path, strlen(path)) == 0, "%s is not named: %s", path, err.text);
    return err;
}

/* A small proper file with every part of the format, which the tests below damage. */
static GgufBuild small(void) {
    GgufBuild b = gguf_build();
    build_string(&b, "general.architecture", "clover_moe");
    build_u32(&b, "clover_moe.block_count", 4);
    build_array(&b, "numbers", GGUF_I16, 3);
    put_bytes(&b.keys, "\1\0\2\0\3\0", 6);
    build_strings(&b, "texts", (const char *const[]){ "a", "bc", "" }, 3);
    build_tensor(&b, "first", DT_F32, 2, (uint64_t[]){ 2, 4 }, "01234567890123456789012345678901", 32);
    build_tensor(&b, "second", DT_Q8_0, 2, (uint64_t[]){ 1, 32 }, "0123456789012345678901234567890123", 34);
    return b;
}

/* ---- truncation -------------------------------------------------------------------------------------------------- */

START_TEST(cut_at_every_byte) {
    GgufBuild b = small();
    Bytes file = build_file(&b);
    CloverError err;
    Gguf *g = NULL;
    assert_ok(gguf_open_bytes(file.data, file.n, "FILE", &g, &err), err);
    gguf_close(g);
    for (size_t n = 0; n < file.n; n++) {
        uint8_t *cut = malloc(n ? n : 1);                            /* of its own, so that a sanitizer sees a step beyond */
        memcpy(cut, file.data, n);
        ck_assert_msg(gguf_open_bytes(cut, n, "FILE", &g, &err) == CLOVER_BAD_INPUT, "%zu bytes: %d %s", n, (int)err.status, err.text);
        assert_says(err, "cut short");
        free(cut);
    }
    free_bytes(&file);
}
END_TEST

/* A real file, cut in place from the end: nothing is left of it, then 1/50, 2/50, ... */
START_TEST(cut_at_every_fiftieth) {
    Bytes file = read_file("tests/vectors/drifts/good.gguf");
    const char *path = in_folder(folder, "cut.gguf");
    write_file(path, file.data, file.n);
    for (size_t i = 50; i-- > 0; ) {
        ck_assert_int_eq(truncate(path, (off_t)(file.n * i / 50)), 0);
        CloverError err = refused_path(path, CLOVER_BAD_INPUT);
        assert_says(err, i ? "cut short" : "is empty (0 bytes)");
        if (i > 0) ck_assert_int_eq(problems(&err), 1);
    }
    free_bytes(&file);
}
END_TEST

START_TEST(cut_data_is_one_problem) {
    Bytes file = read_file("tests/vectors/drifts/good.gguf");
    file.n = 500000;
    CloverError err = refused_bytes(file, CLOVER_BAD_INPUT);
    assert_says(err, "of 88 tensors (the first is 'blk.");
    assert_says(err, "end at byte 500000");
}
END_TEST

/* ---- header ------------------------------------------------------------------------------------------------------ */

START_TEST(wrong_magic) {
    static const struct { const char *bytes, *says; } cases[] = {
        { "GGUG\3\0\0\0........", "is no GGUF file: it starts with 'GGUG', expected 'GGUF'" },
        { "\x7f" "ELF............", "starts with '\\x7fELF'" },
        { "version https://git-lfs.github.com/spec/v1\n", "git lfs pull" },
        { "<!DOCTYPE html><html>", "web page" },
        { "PK\003\004........", "ZIP" },
        { "tjgg\1\0\0\0........", "before GGUF" },
        { "\x40\0\0\0\0\0\0\0{\"a\":1}....", "it starts with '@\\x00\\x00\\x00'" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Bytes file = { 0 };
        put_bytes(&file, cases[i].bytes, i == 6 ? 20 : strlen(cases[i].bytes));
        CloverError err = refused_bytes(file, CLOVER_BAD_INPUT);
        assert_says(err, cases[i].says);
        if (i == 6) assert_says(err, "may be a safetensors file");
    }
}
END_TEST

START_TEST(wrong_version) {
    static const struct { uint32_t version; CloverStatus status; const char *says; } cases[] = {
        { 1, CLOVER_UNSUPPORTED, "version 1, expected 3" }, { 2, CLOVER_UNSUPPORTED, "version 2, expected 3" },
        { 4, CLOVER_UNSUPPORTED, "version 4, expected 3" }, { 0, CLOVER_BAD_INPUT, "version 0, expected 3" },
        { 0xdeadbeef, CLOVER_BAD_INPUT, "version 3735928559, expected 3" }, { 0x03000000, CLOVER_UNSUPPORTED, "big-endian" },
        { 0x02000000, CLOVER_UNSUPPORTED, "big-endian" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        GgufBuild b = small();
        b.version = cases[i].version;
        CloverError err = refused(&b, cases[i].status);
        assert_says(err, cases[i].says);
    }
}
END_TEST

/* A count that cannot fit in the file is refused before anything is reserved. */
START_TEST(huge_counts) {
    static const uint64_t counts[] = { 1000, 1u << 31, 1ull << 40, 1ull << 60, 1ull << 63, UINT64_MAX };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char says[64];
        GgufBuild b = small();
        b.n_keys = counts[i];
        CloverError err = refused(&b, CLOVER_BAD_INPUT);
        snprintf(says, sizeof says, "announces %llu keys", (unsigned long long)counts[i]);
        assert_says(err, says);
        b = small();
        b.n_tensors = counts[i];
        err = refused(&b, CLOVER_BAD_INPUT);
        snprintf(says, sizeof says, "announces %llu tensors", (unsigned long long)counts[i]);
        assert_says(err, says);
    }
}
END_TEST

/* One more than there are: the next bytes are read as one, and make no sense. */
START_TEST(counts_off_by_one) {
    GgufBuild b = small();
    b.n_keys++;
    refused(&b, CLOVER_BAD_INPUT);
    b = small();
    b.n_keys--;
    refused(&b, CLOVER_BAD_INPUT);
    b = small();
    b.n_tensors++;
    refused(&b, CLOVER_BAD_INPUT);
}
END_TEST

/* ---- keys -------------------------------------------------------------------------------------------------------- */

START_TEST(key_types) {
    GgufBuild b = gguf_build();
    build_key(&b, "odd", 13);
    put_zeros(&b.keys, 40);
    CloverError err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "key 'odd' has value type 13, expected 0 to 12");
    b = gguf_build();
    build_array(&b, "odd", 0xffffffff, 1);
    put_zeros(&b.keys, 40);
    err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "key 'odd' has value type 4294967295");
    b = gguf_build();
    build_array(&b, "nested", GGUF_ARRAY, 1);
    put_zeros(&b.keys, 40);
    err = refused(&b, CLOVER_UNSUPPORTED);
    assert_says(err, "key 'nested' is an array of arrays");
}
END_TEST

START_TEST(lengths_beyond_the_end) {
    static const uint64_t lengths[] = { 1000, 1ull << 32, 1ull << 61, 1ull << 62, 1ull << 63, UINT64_MAX };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        GgufBuild b = gguf_build();
        build_array(&b, "numbers", GGUF_U32, lengths[i]);
        put_zeros(&b.keys, 100);
        CloverError err = refused(&b, CLOVER_BAD_INPUT);
        assert_says(err, "key 'numbers' at byte");
        b = gguf_build();
        build_array(&b, "bytes", GGUF_BOOL, lengths[i]);
        put_zeros(&b.keys, 100);
        err = refused(&b, CLOVER_BAD_INPUT);
        assert_says(err, "key 'bytes' at byte");
        b = gguf_build();
        build_array(&b, "texts", GGUF_STRING, lengths[i]);
        put_zeros(&b.keys, 100);
        err = refused(&b, CLOVER_BAD_INPUT);
        assert_says(err, "key 'texts' at byte");
        b = gguf_build();
        build_key(&b, "text", GGUF_STRING);
        put_u64(&b.keys, lengths[i]);
        put_zeros(&b.keys, 100);
        err = refused(&b, CLOVER_BAD_INPUT);
        assert_says(err, "key 'text' at byte");
        b = gguf_build();
        put_u64(&b.keys, lengths[i]);
        put_zeros(&b.keys, 100);
        b.n_keys = 1;
        err = refused(&b, CLOVER_BAD_INPUT);
        assert_says(err, "the name of key 1 at byte 32 needs");
        b = gguf_build();
        build_array(&b, "texts", GGUF_STRING, 2);                    /* the second element leaves the file */
        put_string(&b.keys, "ok", 2);
        put_u64(&b.keys, lengths[i]);
        err = refused(&b, CLOVER_BAD_INPUT);
        assert_says(err, "key 'texts' at byte");
    }
}
END_TEST

START_TEST(names) {
    static const struct { const char *bytes; size_t length; const char *says; } cases[] = {
        { "", 0, "the name of key 1, '', is empty" }, { "a\0b", 3, "the name of key 1, 'a\\x00b', is not a plain text" },
        { "a\xff", 2, "the name of key 1, 'a\\xff', is not valid UTF-8" }, { "\xc0\xaf", 2, "'\\xc0\\xaf', is not valid UTF-8" },
        { "\xed\xa0\x80", 3, "is not valid UTF-8" }, { "\xe2\x82", 2, "is not valid UTF-8" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        GgufBuild b = gguf_build();
        put_string(&b.keys, cases[i].bytes, cases[i].length);
        put_u32(&b.keys, GGUF_U8);
        put_number(&b.keys, 1, 1);
        b.n_keys = 1;
        CloverError err = refused(&b, CLOVER_BAD_INPUT);
        assert_says(err, cases[i].says);
        ck_assert_int_eq(problems(&err), 1);                         /* reading went on, and found nothing else */

        b = gguf_build();
        put_string(&b.tensors, cases[i].bytes, cases[i].length);
        put_u32(&b.tensors, 1);
        put_u64(&b.tensors, 1);
        put_u32(&b.tensors, DT_F32);
        put_u64(&b.tensors, 0);
        put_zeros(&b.data, 4);
        b.n_tensors = 1;
        err = refused(&b, CLOVER_BAD_INPUT);
        assert_says(err, "the name of tensor 1, ");
        ck_assert_int_eq(problems(&err), 1);
    }
    char *name = malloc(65537);
    memset(name, 'n', 65536);
    name[65536] = '\0';
    GgufBuild b = gguf_build();
    build_u32(&b, name, 1);
    CloverError err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "nnn...', is longer than 65535 bytes");
    ck_assert_uint_lt(strlen(err.text), 300);
    free(name);
}
END_TEST

START_TEST(duplicate_names) {
    GgufBuild b = small();
    build_u32(&b, "clover_moe.block_count", 4);
    CloverError err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "key 'clover_moe.block_count' occurs twice");
    b = small();
    build_tensor(&b, "first", DT_F32, 1, (uint64_t[]){ 1 }, "0123", 4);
    err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "tensor 'first' occurs twice");
}
END_TEST

START_TEST(texts_and_bools) {
    GgufBuild b = small();
    build_string(&b, "tokenizer.chat_template", "fine \xe2\x82\xac, not fine \xfe");
    CloverError err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "the text of key 'tokenizer.chat_template' is not valid UTF-8 from its byte 19 on");
    b = small();
    build_number(&b, "flag", GGUF_BOOL, 2, 1);
    err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "key 'flag' has the bool 2 at element 0, expected 0 or 1");
    b = small();
    build_array(&b, "flags", GGUF_BOOL, 3);
    put_bytes(&b.keys, "\0\1\xff", 3);
    err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "key 'flags' has the bool 255 at element 2");
}
END_TEST

START_TEST(bad_alignment) {
    static const uint32_t bad[] = { 0, 1, 2, 4, 7, 24, 33, 48, 0xffffffff };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char says[100];
        GgufBuild b = small();
        build_u32(&b, "general.alignment", bad[i]);
        CloverError err = refused(&b, CLOVER_BAD_INPUT);
        snprintf(says, sizeof says, "key general.alignment is %u, expected a power of two and at least 8", bad[i]);
        assert_says(err, says);
        ck_assert_int_eq(problems(&err), 1);
    }
    GgufBuild b = small();
    build_string(&b, "general.alignment", "32");
    CloverError err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "key general.alignment has type string, expected u32");
    b = small();
    build_number(&b, "general.alignment", GGUF_U64, 32, 8);
    err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "key general.alignment has type u64, expected u32");
}
END_TEST

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* A file with one tensor entry over 64 bytes of data. */
static CloverError refused_entry(uint32_t type, uint32_t dims, const uint64_t *shape, uint64_t offset) {
    GgufBuild b = gguf_build();
    build_entry(&b, "t", type, dims, shape, offset);
    put_zeros(&b.data, 64);
    return refused(&b, CLOVER_BAD_INPUT);
}

START_TEST(absurd_shapes) {
    const uint64_t big = 1ull << 32;
    CloverError err = refused_entry(DT_F32, 0, NULL, 0);
    assert_says(err, "tensor 't' has 0 dimensions, expected 1 to 4");
    err = refused_entry(DT_F32, 5, (uint64_t[]){ 1, 1, 1, 1, 1 }, 0);
    assert_says(err, "tensor 't' has 5 dimensions, expected 1 to 4");
    ck_assert_int_eq(problems(&err), 1);
    err = refused_entry(DT_F32, 2, (uint64_t[]){ 0, 4 }, 0);
    assert_says(err, "tensor 't' has dimension 2 of size 0");
    err = refused_entry(DT_F32, 2, (uint64_t[]){ big, big }, 0);
    assert_says(err, "tensor 't' has more than 2^63 elements");
    err = refused_entry(DT_F32, 4, (uint64_t[]){ big, big, big, big }, 0);
    assert_says(err, "more than 2^63 elements");
    err = refused_entry(DT_F32, 1, (uint64_t[]){ 1ull << 63 }, 0);
    assert_says(err, "more than 2^63 elements");
    err = refused_entry(DT_F32, 2, (uint64_t[]){ 1ull << 31, 1ull << 31 }, 0);   /* 2^62 elements, 2^64 bytes */
    assert_says(err, "more than 2^63 bytes");
    err = refused_entry(DT_Q4_0, 2, (uint64_t[]){ 32, 33 }, 0);
    assert_says(err, "tensor 't' has rows of 33 elements, expected a multiple of 32, the block of its type Q4_0");
    err = refused_entry(DT_Q4_K, 2, (uint64_t[]){ 8, 32 }, 0);       /* 256 elements, but not in a row */
    assert_says(err, "multiple of 256");
    GgufBuild b = gguf_build();
    put_string(&b.tensors, "t", 1);
    put_u32(&b.tensors, 0xffffffff);                                 /* dimensions that the file cannot hold */
    put_zeros(&b.tensors, 100);
    b.n_tensors = 1;
    err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "tensor 't' at byte");
}
END_TEST

START_TEST(offsets) {
    CloverError err = refused_entry(DT_F32, 1, (uint64_t[]){ 4 }, 4);
    assert_says(err, "tensor 't' has offset 4, expected a multiple of the alignment 32");
    static const uint64_t beyond[] = { 64, 96, 1ull << 40, 1ull << 63, UINT64_MAX - 31 };
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        err = refused_entry(DT_F32, 1, (uint64_t[]){ 4 }, beyond[i]);
        assert_says(err, "the data of 1 of 1 tensors (the first is 't') lies beyond the file's end");
    }
    err = refused_entry(DT_F32, 1, (uint64_t[]){ 17 }, 0);           /* 68 bytes of 64 */
    assert_says(err, "beyond the file's end");
    err = refused_entry(DT_F32, 1, (uint64_t[]){ 9 }, 32);
    assert_says(err, "beyond the file's end");
    GgufBuild b = gguf_build();
    build_entry(&b, "fine", DT_F32, 1, (uint64_t[]){ 8 }, 0);
    build_entry(&b, "far", DT_F32, 1, (uint64_t[]){ 8 }, 64);
    build_entry(&b, "farther", DT_F32, 1, (uint64_t[]){ 8 }, 96);
    put_zeros(&b.data, 32);
    err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "the data of 2 of 3 tensors (the first is 'far') lies beyond the file's end");
}
END_TEST

START_TEST(overlaps) {
    static const struct { uint64_t bytes_a, offset_a, bytes_b, offset_b; } cases[] = {
        { 33, 0, 4, 32 }, { 4, 0, 4, 0 }, { 4, 64, 65, 0 }, { 128, 0, 4, 64 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        GgufBuild b = gguf_build();
        build_entry(&b, "a", DT_I8, 1, &cases[i].bytes_a, cases[i].offset_a);
        build_entry(&b, "b", DT_I8, 1, &cases[i].bytes_b, cases[i].offset_b);
        put_zeros(&b.data, 256);
        CloverError err = refused(&b, CLOVER_BAD_INPUT);
        assert_says(err, "overlap");
        assert_says(err, "'a'");
        assert_says(err, "'b'");
        ck_assert_int_eq(problems(&err), 1);
    }
    /* A long one over two that are well between themselves: two problems. */
    GgufBuild b = gguf_build();
    build_entry(&b, "long", DT_I8, 1, (uint64_t[]){ 256 }, 0);
    build_entry(&b, "a", DT_I8, 1, (uint64_t[]){ 4 }, 32);
    build_entry(&b, "b", DT_I8, 1, (uint64_t[]){ 4 }, 64);
    put_zeros(&b.data, 256);
    CloverError err = refused(&b, CLOVER_BAD_INPUT);
    ck_assert_int_eq(problems(&err), 2);
}
END_TEST

/* A tensor of a type nobody knows needs at least a byte, and one of its own. */
START_TEST(unknown_types_have_bytes) {
    GgufBuild b = gguf_build();
    build_entry(&b, "t", 77, 1, (uint64_t[]){ 3 }, 0);
    CloverError err = refused(&b, CLOVER_BAD_INPUT);                 /* the padding ends the file */
    assert_says(err, "'t') lies beyond the file's end");
    b = gguf_build();
    build_entry(&b, "t", 77, 1, (uint64_t[]){ 3 }, 0);
    Bytes file = build_file(&b);
    file.n -= 5;                                                     /* the data would start beyond the end */
    err = refused_bytes(file, CLOVER_BAD_INPUT);
    assert_says(err, "'t') lies beyond the file's end");
    b = gguf_build();
    build_entry(&b, "t", 77, 1, (uint64_t[]){ 3 }, 0);
    build_entry(&b, "u", 78, 1, (uint64_t[]){ 3 }, 0);
    put_zeros(&b.data, 32);
    err = refused(&b, CLOVER_BAD_INPUT);
    assert_says(err, "overlap");
}
END_TEST

START_TEST(all_problems_at_once) {
    GgufBuild b = gguf_build();
    build_u32(&b, "twice", 1);
    build_u32(&b, "twice", 2);
    build_string(&b, "text", "\xff");
    build_number(&b, "flag", GGUF_BOOL, 9, 1);
    build_entry(&b, "zero", DT_F32, 1, (uint64_t[]){ 0 }, 0);
    build_entry(&b, "row", DT_Q8_0, 1, (uint64_t[]){ 31 }, 0);
    build_entry(&b, "fine", DT_F32, 1, (uint64_t[]){ 1 }, 0);
    build_entry(&b, "fine", DT_F32, 1, (uint64_t[]){ 1 }, 32);
    build_entry(&b, "odd", DT_F32, 1, (uint64_t[]){ 1 }, 33);
    build_entry(&b, "far", DT_F32, 1, (uint64_t[]){ 1 }, 3200);
    put_zeros(&b.data, 64);
    CloverError err = refused(&b, CLOVER_BAD_INPUT);
    ck_assert_int_eq(problems(&err), 8);
    static const char *const says[] = { "'twice' occurs",       "text of key 'text'", "bool 9",
                                        "'zero' has dimension", "'row' has rows",     "'fine' occurs",
                                        "'odd' has offset 33",  "'far') lies beyond" };
    for (size_t i = 0; i < sizeof says / sizeof says[0]; i++) assert_says(err, says[i]);
}
END_TEST

/* ---- paths ------------------------------------------------------------------------------------------------------- */

START_TEST(paths) {
    CloverError err = refused_path(in_folder(folder, "none.gguf"), CLOVER_BAD_INPUT);
    assert_says(err, "no such file");
    err = refused_path(in_folder(folder, "none/none.gguf"), CLOVER_BAD_INPUT);
    assert_says(err, "no such file");
    err = refused_path(folder, CLOVER_BAD_INPUT);
    assert_says(err, "is a folder, expected a file");
    write_file(in_folder(folder, "empty.gguf"), "", 0);
    err = refused_path(in_folder(folder, "empty.gguf"), CLOVER_BAD_INPUT);
    assert_says(err, "is empty (0 bytes)");
    ck_assert_int_eq(mkfifo(in_folder(folder, "pipe.gguf"), 0600), 0);
    err = refused_path(in_folder(folder, "empty.gguf/x.gguf"), CLOVER_BAD_INPUT);
    assert_says(err, "no such file");
    err = refused_path(in_folder(folder, "pipe.gguf"), CLOVER_BAD_INPUT);
    assert_says(err, "is a pipe");
    err = refused_path("/dev/null", CLOVER_BAD_INPUT);
    assert_says(err, "device");
}
END_TEST

/* Not ours to mend: a ring of links, a file without permission. Root may read everything, so it is someone else here. */
START_TEST(the_machine_refuses) {
    ck_assert_int_eq(symlink("ring.gguf", in_folder(folder, "ring.gguf")), 0);
    CloverError err = refused_path(in_folder(folder, "ring.gguf"), CLOVER_SYSTEM);
    assert_says(err, "cannot open the file");
    write_file(in_folder(folder, "locked.gguf"), "GGUF", 4);
    ck_assert_int_eq(chmod(in_folder(folder, "locked.gguf"), 0), 0);
    bool root = geteuid() == 0;
    if (root && seteuid(65534) != 0) {
        puts("skip gguf_permission (root may read everything)");
        return;
    }
    err = refused_path(in_folder(folder, "locked.gguf"), CLOVER_SYSTEM);
    if (root) ck_assert_int_eq(seteuid(0), 0);
    assert_says(err, "cannot open the file: Permission denied");
}
END_TEST

/* Whichever allocation fails, alone or with all after it: the class is right, nothing leaks, *out stays. */
START_TEST(no_memory) {
    if (!malloc_can_fail()) {
        puts("skip gguf_no_memory (a sanitizer or valgrind has its own allocator)");
        return;
    }
    GgufBuild b = small();
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "key.%d", i);
        build_u32(&b, name, 1);
        build_tensor(&b, name, DT_F32, 1, (uint64_t[]){ 1 }, "0123", 4);
    }
    Bytes file = build_file(&b);
    const char *path = in_folder(folder, "memory.gguf");
    write_file(path, file.data, file.n);
    free_bytes(&file);
    CloverError err;
    for (int all = 0; all < 2; all++) {
        long n = 0;
        for (;; n++) {
            Gguf *none = (Gguf *)&err, *g = none;
            long live = malloc_live;
            malloc_fail_after(n, all == 1);
            CloverStatus status = gguf_open(path, &g, &err);
            if (!malloc_recover()) {
                assert_ok(status, err);
                gguf_close(g);
                break;
            }
            if (status == CLOVER_OK) {                               /* sorting goes on without */
                gguf_close(g);
                continue;
            }
            ck_assert_int_eq(malloc_live, live);
            assert_status(status, CLOVER_SYSTEM, err);
            assert_says(err, "out of memory");
            ck_assert_ptr_eq(g, none);
        }
        ck_assert_int_gt(n, 400);
    }
}
END_TEST

static Suite *gguf_bad_suite(void) {
    Suite *s = suite_create("gguf_bad");
    TCase *t = tcase_create("gguf_bad");
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, cut_at_every_byte);
    tcase_add_test(t, cut_at_every_fiftieth);
    tcase_add_test(t, cut_data_is_one_problem);
    tcase_add_test(t, wrong_magic);
    tcase_add_test(t, wrong_version);
    tcase_add_test(t, huge_counts);
    tcase_add_test(t, counts_off_by_one);
    tcase_add_test(t, key_types);
    tcase_add_test(t, lengths_beyond_the_end);
    tcase_add_test(t, names);
    tcase_add_test(t, duplicate_names);
    tcase_add_test(t, texts_and_bools);
    tcase_add_test(t, bad_alignment);
    tcase_add_test(t, absurd_shapes);
    tcase_add_test(t, offsets);
    tcase_add_test(t, overlaps);
    tcase_add_test(t, unknown_types_have_bytes);
    tcase_add_test(t, all_problems_at_once);
    tcase_add_test(t, paths);
    tcase_add_test(t, the_machine_refuses);
    tcase_add_test(t, no_memory);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(gguf_bad_suite()); }
