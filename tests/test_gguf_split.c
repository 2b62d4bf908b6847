/* test_gguf_split.c - models in several GGUF files. [GGUF-5] */
#include "gguf_build.h"

static char folder[TEST_PATH];

static void setup(void) { make_folder("gguf-split", folder); }
static void teardown(void) { remove_folder(folder); }

/* Each test's files have a stem of their own. */
static const char *part_path(const char *stem, int part, int parts) {
    char name[64];
    snprintf(name, sizeof name, "%s-%05d-of-%05d.gguf", stem, part, parts);
    return in_folder(folder, name);
}

static void build_split_keys(GgufBuild *b, uint64_t no, uint64_t count, uint64_t tensors) {
    build_number(b, "split.no", GGUF_U16, no, 2);
    build_number(b, "split.count", GGUF_U16, count, 2);
    build_number(b, "split.tensors.count", GGUF_I32, tensors, 4);
}

static void write_built(const char *path, GgufBuild *b) {
    Bytes file = build_file(b);
    write_file(path, file.data, file.n);
    free_bytes(&file);
}

/* Parts as llama-gguf-split writes them: the model's keys in the first, tensors tN and uN in part N (the first part
 * with none when bare). */
static void write_parts(const char *stem, int parts, bool bare) {
    for (int i = 1; i <= parts; i++) {
        GgufBuild b = gguf_build();
        char name[16], data[32];
        if (i == 1) build_string(&b, "general.architecture", "clover_moe");
        build_split_keys(&b, (uint64_t)i - 1, (uint64_t)parts, (uint64_t)(bare ? 2 * parts - 2 : 2 * parts));
        snprintf(data, sizeof data, "part%3d", i);
        for (int k = 0; k < (bare && i == 1 ? 0 : 2); k++) {
            snprintf(name, sizeof name, "%c%d", "tu"[k], i);
            build_tensor(&b, name, DT_I8, 1, (uint64_t[]){ 7 }, data, 7);
        }
        write_built(part_path(stem, i, parts), &b);
    }
}

static CloverError refused(const char *path, CloverStatus status) {
    CloverError err;
    Gguf *none = (Gguf *)&err, *g = none;
    assert_status(gguf_open(path, &g, &err), status, err);
    ck_assert_ptr_eq(g, none);
    return err;
}

START_TEST(any_part_opens_all) {
    for (int bare = 0; bare < 2; bare++) {
        const char *stem = bare ? "bare" : "full";
        write_parts(stem, 3, bare == 1);
        for (int given = 1; given <= 3; given++) {
            CloverError err;
            Gguf *g = NULL;
            assert_ok(gguf_open(part_path(stem, given, 3), &g, &err), err);
            TensorList list = gguf_tensors(g);
            ck_assert_int_eq(gguf_parts(g), 3);
            ck_assert_int_eq(list.n, bare ? 4 : 6);
            ck_assert_str_eq(list.tensor[0].name, bare ? "t2" : "t1");
            ck_assert_str_eq(list.tensor[list.n - 1].name, "u3");
            const Tensor *t = gguf_tensor(g, "u2");
            ck_assert_mem_eq(t->data, "part  2", 7);
            ck_assert_str_eq(t->file, part_path(stem, 2, 3));
            ck_assert_str_eq(gguf_path(g), part_path(stem, 1, 3));
            ck_assert_int_eq(gguf_n_keys(g), 4);
            ck_assert_ptr_nonnull(gguf_key(g, "general.architecture"));
            uint64_t bytes = 0;
            for (int i = 1; i <= 3; i++) {
                Bytes part = read_file(part_path(stem, i, 3));
                bytes += part.n;
                free_bytes(&part);
            }
            ck_assert_uint_eq(gguf_file_bytes(g), bytes);
            gguf_close(g);
        }
    }
}
END_TEST

/* The keys are optional, where the names say it all; each part has its own alignment. */
START_TEST(without_keys) {
    GgufBuild b = gguf_build();
    b.alignment = 64;
    build_u32(&b, "general.alignment", 64);
    build_tensor(&b, "a", DT_I8, 1, (uint64_t[]){ 1 }, "a", 1);
    build_tensor(&b, "b", DT_I8, 1, (uint64_t[]){ 1 }, "b", 1);
    write_built(part_path("keyless", 1, 2), &b);
    b = gguf_build();
    b.alignment = 16;
    build_u32(&b, "general.alignment", 16);
    build_tensor(&b, "c", DT_I8, 1, (uint64_t[]){ 1 }, "c", 1);
    build_tensor(&b, "d", DT_I8, 1, (uint64_t[]){ 1 }, "d", 1);
    write_built(part_path("keyless", 2, 2), &b);
    CloverError err;
    Gguf *g = NULL;
    assert_ok(gguf_open(part_path("keyless", 2, 2), &g, &err), err);
    ck_assert_int_eq(gguf_tensors(g).n, 4);
    ck_assert_uint_eq(gguf_alignment(g), 64);
    ck_assert_mem_eq(gguf_tensor(g, "b")->data, "b", 1);
    ck_assert_mem_eq(gguf_tensor(g, "d")->data, "d", 1);
    gguf_close(g);
}
END_TEST

/* One part of one is a file like any other. */
START_TEST(one_of_one) {
    GgufBuild b = gguf_build();
    build_tensor(&b, "a", DT_I8, 1, (uint64_t[]){ 1 }, "a", 1);
    write_built(part_path("whole", 1, 1), &b);
    CloverError err;
    Gguf *g = NULL;
    assert_ok(gguf_open(part_path("whole", 1, 1), &g, &err), err);
    ck_assert_int_eq(gguf_parts(g), 1);
    gguf_close(g);
}
END_TEST

START_TEST(missing_parts_are_all_named) {
    write_parts("missing", 5, false);
    unlink(part_path("missing", 1, 5));
    unlink(part_path("missing", 4, 5));
    CloverError err = refused(part_path("missing", 2, 5), CLOVER_BAD_INPUT);
    ck_assert_int_eq(problems(&err), 2);
    assert_says(err, "missing-00001-of-00005.gguf: is missing: it is part 1 of 5");
    assert_says(err, "missing-00004-of-00005.gguf: is missing: it is part 4 of 5");
}
END_TEST

START_TEST(more_parts_than_there_can_be) {
    write_parts("extra", 2, false);
    ck_assert_int_eq(link(part_path("extra", 2, 2), part_path("extra", 3, 2)), 0);
    CloverError err = refused(part_path("extra", 3, 2), CLOVER_BAD_INPUT);
    assert_says(err, "is part 3 of 2, expected 1 to 2");
    ck_assert_int_eq(link(part_path("extra", 2, 2), part_path("extra", 0, 2)), 0);
    err = refused(part_path("extra", 0, 2), CLOVER_BAD_INPUT);
    assert_says(err, "is part 0 of 2");
}
END_TEST

START_TEST(keys_against_names) {
    write_parts("swapped", 2, true);
    ck_assert_int_eq(rename(part_path("swapped", 2, 2), in_folder(folder, "kept")), 0);
    ck_assert_int_eq(rename(part_path("swapped", 1, 2), part_path("swapped", 2, 2)), 0);
    ck_assert_int_eq(rename(in_folder(folder, "kept"), part_path("swapped", 1, 2)), 0);
    CloverError err = refused(part_path("swapped", 1, 2), CLOVER_BAD_INPUT);
    assert_says(err, "key split.no is 1, expected 0 by its name");
    assert_says(err, "key split.no is 0, expected 1 by its name");

    write_parts("count", 3, false);
    for (int i = 1; i <= 2; i++) ck_assert_int_eq(rename(part_path("count", i, 3), part_path("count", i, 2)), 0);
    err = refused(part_path("count", 1, 2), CLOVER_BAD_INPUT);
    assert_says(err, "key split.count is 3, but the name says 2 parts");

    write_parts("renamed", 2, false);
    ck_assert_int_eq(rename(part_path("renamed", 1, 2), in_folder(folder, "renamed.gguf")), 0);
    err = refused(in_folder(folder, "renamed.gguf"), CLOVER_BAD_INPUT);
    assert_says(err, "is one of 2 parts by its key split.count, but its name does not end in -00001-of-00002.gguf");
}
END_TEST

START_TEST(keys_that_make_no_sense) {
    GgufBuild b = gguf_build();
    build_string(&b, "split.count", "two");
    build_number(&b, "split.no", GGUF_I32, 0xffffffff, 4);           /* -1 */
    build_f32(&b, "split.tensors.count", 1);
    write_built(part_path("senseless", 1, 2), &b);
    b = gguf_build();
    write_built(part_path("senseless", 2, 2), &b);
    CloverError err = refused(part_path("senseless", 1, 2), CLOVER_BAD_INPUT);
    assert_says(err, "key split.count is no whole number");
    assert_says(err, "key split.no is no whole number");
    assert_says(err, "key split.tensors.count is no whole number");
}
END_TEST

START_TEST(parts_of_different_models) {
    write_parts("mixed", 2, false);
    GgufBuild b = gguf_build();
    build_string(&b, "general.architecture", "llama");
    build_split_keys(&b, 1, 2, 4);
    build_tensor(&b, "t2", DT_I8, 1, (uint64_t[]){ 1 }, "a", 1);
    build_tensor(&b, "u2", DT_I8, 1, (uint64_t[]){ 1 }, "a", 1);
    write_built(part_path("mixed", 2, 2), &b);
    CloverError err = refused(part_path("mixed", 1, 2), CLOVER_BAD_INPUT);
    assert_says(err, "mixed-00002-of-00002.gguf: key 'general.architecture' differs from that of");
    assert_says(err, "parts of different models");

    write_parts("number", 2, false);
    b = gguf_build();
    build_split_keys(&b, 1, 2, 5);
    build_tensor(&b, "t2", DT_I8, 1, (uint64_t[]){ 1 }, "a", 1);
    write_built(part_path("number", 2, 2), &b);
    err = refused(part_path("number", 1, 2), CLOVER_BAD_INPUT);
    assert_says(err, "key 'split.tensors.count' differs");

    write_parts("total", 2, false);
    b = gguf_build();
    build_split_keys(&b, 1, 2, 4);
    build_tensor(&b, "t2", DT_I8, 1, (uint64_t[]){ 1 }, "a", 1);
    write_built(part_path("total", 2, 2), &b);
    err = refused(part_path("total", 1, 2), CLOVER_BAD_INPUT);
    assert_says(err, "key split.tensors.count is 4, but the 2 parts hold 3 tensors");

    write_parts("double", 2, false);
    b = gguf_build();
    build_split_keys(&b, 1, 2, 4);
    build_tensor(&b, "t1", DT_I8, 1, (uint64_t[]){ 1 }, "a", 1);
    build_tensor(&b, "u2", DT_I8, 1, (uint64_t[]){ 1 }, "a", 1);
    write_built(part_path("double", 2, 2), &b);
    err = refused(part_path("double", 1, 2), CLOVER_BAD_INPUT);
    assert_says(err, "double-00002-of-00002.gguf: tensor 't1' occurs twice");
}
END_TEST

/* Two damaged parts: both are named, whichever was given. */
START_TEST(problems_of_all_parts_at_once) {
    write_parts("damaged", 3, false);
    write_file(part_path("damaged", 2, 3), "GGML", 4);
    ck_assert_int_eq(truncate(part_path("damaged", 3, 3), 100), 0);
    CloverError err = refused(part_path("damaged", 1, 3), CLOVER_BAD_INPUT);
    ck_assert_int_eq(problems(&err), 2);
    assert_says(err, "damaged-00002-of-00003.gguf: is no GGUF file");
    assert_says(err, "damaged-00003-of-00003.gguf: ");
}
END_TEST

/* Names that only look like a part's. */
START_TEST(other_names) {
    static const char *const names[] = { "a-1-of-2.gguf",        "b-00001-of-0002.gguf", "c-00001_of_00002.gguf",
                                         "d00001-of-00002.gguf", "-00001-of-0000x.gguf", "e-00001-of-00002.bin",
                                         "00001-of-00002.gguf" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        GgufBuild b = gguf_build();
        build_tensor(&b, "a", DT_I8, 1, (uint64_t[]){ 1 }, "a", 1);
        write_built(in_folder(folder, names[i]), &b);
        CloverError err;
        Gguf *g = NULL;
        assert_ok(gguf_open(in_folder(folder, names[i]), &g, &err), err);
        ck_assert_int_eq(gguf_parts(g), 1);
        gguf_close(g);
    }
}
END_TEST

static Suite *gguf_split_suite(void) {
    Suite *s = suite_create("gguf_split");
    TCase *t = tcase_create("gguf_split");
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_add_test(t, any_part_opens_all);
    tcase_add_test(t, without_keys);
    tcase_add_test(t, one_of_one);
    tcase_add_test(t, missing_parts_are_all_named);
    tcase_add_test(t, more_parts_than_there_can_be);
    tcase_add_test(t, keys_against_names);
    tcase_add_test(t, keys_that_make_no_sense);
    tcase_add_test(t, parts_of_different_models);
    tcase_add_test(t, problems_of_all_parts_at_once);
    tcase_add_test(t, other_names);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(gguf_split_suite()); }
