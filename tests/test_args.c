/* test_args.c - command lines from a table of options. */
#include "../tools/args.h"
#include "files.h"

static const char *const colours[] = { "red", "green", NULL };

typedef struct Values {
    const char *model, *name;
    bool json, think, mend, as_is, layers_given;
    int64_t layers, size;
    int32_t mask;
    uint64_t seed;
    double top_p, coreset;
    int colour;
    ArgText prompt;
    ArgIds ids;
} Values;

enum { N_OPTIONS = 16 };

/* The table that all tests use; its targets lie in *v. */
static ArgCommand table(Values *v, ArgOption options[N_OPTIONS]) {
    *v = (Values){ .think = true, .layers = 4, .top_p = 1 };
    const ArgOption all[N_OPTIONS] = {
        { .name = "MODEL", .kind = ARG_POSITIONAL, .target = &v->model, .required = true },
        { .kind = ARG_HEADING, .help = "sizes" },
        { .name = "layers", .letter = 'l', .kind = ARG_INT, .target = &v->layers, .min = 1, .max = 1024,
            .given = &v->layers_given, .value = "N" },
        { .name = "size", .kind = ARG_BYTES, .target = &v->size },
        { .name = "mask", .kind = ARG_ID, .target = &v->mask },
        { .name = "seed", .kind = ARG_SEED, .target = &v->seed },
        { .name = "top-p", .kind = ARG_REAL, .target = &v->top_p, .min = 0, .max = 1 },
        { .name = "coreset", .kind = ARG_REAL_OR_OFF, .target = &v->coreset, .min = 0, .max = 1 },
        { .name = "colour", .kind = ARG_CHOICE, .target = &v->colour, .choices = colours },
        { .name = "name", .kind = ARG_STRING, .target = &v->name },
        { .name = "prompt", .kind = ARG_TEXT, .target = &v->prompt, .excludes = 1, .help = "the\ntext" },
        { .name = "ids", .kind = ARG_IDS, .target = &v->ids, .excludes = 1 },
        { .name = "json", .letter = 'j', .kind = ARG_FLAG, .target = &v->json },
        { .name = "no-think", .kind = ARG_FLAG, .target = &v->think, .off = true },
        { .name = "mend", .kind = ARG_FLAG, .target = &v->mend, .excludes = 2 },
        { .name = "as-is", .kind = ARG_FLAG, .target = &v->as_is, .excludes = 2 },
    };
    memcpy(options, all, sizeof all);
    return (ArgCommand){ .name = "test", .usage = "MODEL", .summary = "s", .example = "clover test a\nclover test b",
        .options = options, .n = N_OPTIONS };
}

/* Splits line at each '|', so that an argument may hold spaces. */
static int split(char *line, char *argv[32]) {
    int n = 0;
    argv[n++] = (char[]){ "test" };
    for (char *p = line; p && *p; ) {
        ck_assert_int_lt(n, 31);
        argv[n++] = p;
        p = strchr(p, '|');
        if (p) *p++ = '\0';
    }
    argv[n] = NULL;
    return n;
}

static CloverStatus parse(const char *line, Values *v, CloverError *err) {
    char copy[1024], name[] = "test", *argv[32];
    ArgOption options[N_OPTIONS];
    ArgCommand c = table(v, options);
    bool help;
    snprintf(copy, sizeof copy, "%s", line);
    int argc = split(copy, argv);
    argv[0] = name;
    CloverStatus status = args_parse(&c, argc, argv, &help, err);
    ck_assert(!help);
    v->name = v->name ? "set" : NULL;                    /* what they point to is gone */
    v->model = v->model ? "set" : NULL;
    return status;
}

static void release(Values *v) {
    free(v->prompt.bytes);
    free(v->ids.ids);
}

START_TEST(every_kind) {
    Values v;
    CloverError err;
    assert_ok(parse("a.gguf|--layers|12|--size=3K|--mask|7|--seed|18446744073709551615|"
        "--top-p=0.25|--coreset|off|--colour|green|--name|x|--prompt|hi|-j|--no-think|--mend", &v, &err), err);
    ck_assert_str_eq(v.model, "set");
    ck_assert_int_eq(v.layers, 12);
    ck_assert(v.layers_given);
    ck_assert_int_eq(v.size, 3072);
    ck_assert_int_eq(v.mask, 7);
    ck_assert_uint_eq(v.seed, UINT64_MAX);
    ck_assert(v.top_p == 0.25);
    ck_assert(v.coreset == -1);
    ck_assert_int_eq(v.colour, 1);
    ck_assert_str_eq(v.name, "set");
    ck_assert_str_eq(v.prompt.bytes, "hi");
    ck_assert_uint_eq(v.prompt.length, 2);
    ck_assert(v.json && !v.think && v.mend && !v.as_is);
    release(&v);
}
END_TEST

START_TEST(defaults_stay) {
    Values v;
    CloverError err;
    assert_ok(parse("-l|5|a.gguf", &v, &err), err);
    ck_assert_int_eq(v.layers, 5);
    ck_assert(v.think && !v.json && v.top_p == 1 && !v.prompt.bytes && !v.ids.ids);
    assert_ok(parse("a.gguf", &v, &err), err);
    ck_assert_int_eq(v.layers, 4);
    ck_assert(!v.layers_given);
}
END_TEST

START_TEST(values_that_look_like_flags) {
    Values v;
    CloverError err;
    assert_ok(parse("a|--prompt=--json", &v, &err), err);
    ck_assert_str_eq(v.prompt.bytes, "--json");
    release(&v);
    assert_ok(parse("a|--prompt|-j", &v, &err), err);
    ck_assert_str_eq(v.prompt.bytes, "-j");
    release(&v);
    assert_ok(parse("--|--help", &v, &err), err);        /* after -- everything is positional */
    ck_assert_str_eq(v.model, "set");
    assert_ok(parse("-", &v, &err), err);
    ck_assert_str_eq(v.model, "set");
    assert_ok(parse("a|--prompt=", &v, &err), err);
    ck_assert_str_eq(v.prompt.bytes, "");
    release(&v);
}
END_TEST

/* A line, and what its error must name. */
static const struct { const char *line, *says; } mistakes[] = {
    { "", "MODEL is missing" },
    { "a|b", "\"b\": one argument too many" },
    { "a|--nonsense", "--nonsense: no such flag" },
    { "a|--layer|3", "--layer: no such flag" },                      /* no abbreviations */
    { "a|-x", "-x: no such flag" },
    { "a|-jl", "-jl: no such flag" },
    { "a|--layers", "--layers: needs a value (N)" },
    { "a|--layers|--json", "--layers: needs a value (N)" },
    { "a|--layers|12x", "--layers: \"12x\" is not a whole number" },
    { "a|--layers|", "--layers: needs a value" },
    { "a|--layers=", "--layers: \"\" is not a whole number" },
    { "a|--layers|1.5", "--layers: \"1.5\" is not" },
    { "a|--layers|0x10", "--layers: \"0x10\" is not" },
    { "a|--layers| 3", "--layers: \" 3\" is not" },
    { "a|--layers|99999999999999999999", "--layers: \"99999999999999999999\" is not" },
    { "a|--layers|0", "--layers: 0 is out of range; allowed is 1 to 1024" },
    { "a|--layers|1025", "--layers: 1025 is out of range" },
    { "a|--layers|3|--layers|4", "--layers: given twice, as \"3\" and as \"4\"" },
    { "a|--layers|3|-l|4", "--layers: given twice" },
    { "a|--size|3X", "--size: \"3X\" is not a size" },
    { "a|--size|-1", "--size: \"-1\" is not a size" },
    { "a|--size|9999999999G", "--size: \"9999999999G\" is not a size" },
    { "a|--mask|-1", "--mask: \"-1\" is not a token id" },
    { "a|--mask|2147483648", "--mask: \"2147483648\" is not a token id" },
    { "a|--seed|-1", "--seed: \"-1\" is not" },
    { "a|--seed|18446744073709551616", "--seed: " },
    { "a|--top-p|nan", "--top-p: \"nan\" is not a number" },
    { "a|--top-p|0x1p-1", "--top-p: \"0x1p-1\" is not a number" },
    { "a|--top-p|1e999", "--top-p: \"1e999\" is not a number" },
    { "a|--top-p|1.5", "--top-p: 1.5 is out of range; allowed is 0 to 1" },
    { "a|--coreset|on", "--coreset: \"on\" is not a number or off" },
    { "a|--colour|blue", "--colour: \"blue\" is none of red, green" },
    { "a|--json=1", "--json: takes no value" },
    { "a|--prompt|x|--ids|1", "--prompt and --ids exclude each other" },
    { "a|--as-is|--mend", "--as-is and --mend exclude each other" },
    { "a|--ids|1,x,3", "--ids: \"x\" (number 2 of the list) is not a token id" },
    { "a|--ids|1,,3", "--ids: \"\" (number 2 of the list)" },
    { "a|--ids|1,2,", "--ids: the list of ids ends with a comma" },
    { "a|--ids|-4", "--ids: \"-4\" (number 1 of the list)" },
    { "a|--ids|2147483648", "--ids: \"2147483648\"" },
    { "a|--ids=", "--ids: the list of ids is empty" },
    { "a|--prompt|@build/tmp/there-is-no-such-file", "--prompt: build/tmp/there-is-no-such-file: No such file" },
    { "a|--prompt|@build", "--prompt: build: Is a directory" },
};

START_TEST(a_mistake_names_its_flag) {
    Values v;
    CloverError err;
    assert_status(parse(mistakes[_i].line, &v, &err), CLOVER_USAGE, err);
    assert_says(err, mistakes[_i].says);
    release(&v);
}
END_TEST

START_TEST(said_twice_the_same) {
    Values v;
    CloverError err;
    assert_ok(parse("a|--layers|3|-l|3|--json|--json", &v, &err), err);
    ck_assert_int_eq(v.layers, 3);
}
END_TEST

START_TEST(id_lists) {
    static const char *const lists[] = { "1,2,3", "1 2 3", " 1, 2 ,3\n", "1\n2\t3\r\n" };
    Values v;
    CloverError err;
    char line[64];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        snprintf(line, sizeof line, "a|--ids|%s", lists[i]);
        assert_ok(parse(line, &v, &err), err);
        ck_assert_int_eq(v.ids.n, 3);
        for (int k = 0; k < 3; k++) ck_assert_int_eq(v.ids.ids[k], k + 1);
        release(&v);
    }
}
END_TEST

START_TEST(values_from_files) {
    char folder[TEST_PATH], line[2 * TEST_PATH];
    Values v;
    CloverError err;
    make_folder("args", folder);
    enum { LONG = 20000 };                               /* more than one read's worth */
    char *text = malloc(LONG);
    memset(text, 'a', LONG);
    text[7] = '\0';                                      /* a text may hold any byte */
    write_file(in_folder(folder, "text"), text, LONG);
    snprintf(line, sizeof line, "a|--prompt|@%s", in_folder(folder, "text"));
    assert_ok(parse(line, &v, &err), err);
    ck_assert_uint_eq(v.prompt.length, LONG);
    ck_assert_mem_eq(v.prompt.bytes, text, LONG);
    release(&v);

    snprintf(line, sizeof line, "a|--ids|@%s", in_folder(folder, "text"));
    assert_status(parse(line, &v, &err), CLOVER_USAGE, err);
    assert_says(err, "--ids: holds a NUL byte");
    release(&v);

    write_file(in_folder(folder, "ids"), "5,\n6\n", 5);
    snprintf(line, sizeof line, "a|--ids|@%s", in_folder(folder, "ids"));
    assert_ok(parse(line, &v, &err), err);
    ck_assert_int_eq(v.ids.n, 2);
    ck_assert_int_eq(v.ids.ids[1], 6);
    release(&v);

    assert_ok(parse("a|--prompt|@@home", &v, &err), err);            /* a text that begins with @ */
    ck_assert_str_eq(v.prompt.bytes, "@home");
    release(&v);

    ck_assert_ptr_nonnull(freopen(in_folder(folder, "ids"), "rb", stdin));
    assert_ok(parse("a|--ids|@-", &v, &err), err);
    ck_assert_int_eq(v.ids.n, 2);
    release(&v);
    free(text);
    remove_folder(folder);
}
END_TEST

START_TEST(help_wins) {
    Values v;
    CloverError err;
    ArgOption options[N_OPTIONS];
    ArgCommand c = table(&v, options);
    char name[] = "test", wrong[] = "--nonsense", flag[] = "--help", *argv[] = { name, wrong, flag, NULL };
    bool help;
    assert_ok(args_parse(&c, 3, argv, &help, &err), err);
    ck_assert(help);

    char folder[TEST_PATH];
    make_folder("args", folder);
    const char *path = in_folder(folder, "help");
    int out = dup(STDOUT_FILENO);
    ck_assert_ptr_nonnull(freopen(path, "wb", stdout));
    int code = args_begin(&c, 3, argv, &err);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    close(out);
    ck_assert_int_eq(code, 0);
    Bytes text = read_file(path);
    put_number(&text, 0, 1);
    static const char *const parts[] = { "usage: clover test MODEL\n", "  -l, --layers N ", "\nsizes\n", "red, green",
        "example:\n  clover test a\n  clover test b\n", "  -h, --help" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_msg(strstr((char *)text.data, parts[i]) != NULL, "no \"%s\" in\n%s", parts[i], (char *)text.data);
    free_bytes(&text);
    remove_folder(folder);
}
END_TEST

Suite *args_suite(void) {
    Suite *s = suite_create("args");
    TCase *t = tcase_create("args");
    tcase_add_test(t, every_kind);
    tcase_add_test(t, defaults_stay);
    tcase_add_test(t, values_that_look_like_flags);
    tcase_add_loop_test(t, a_mistake_names_its_flag, 0, sizeof mistakes / sizeof *mistakes);
    tcase_add_test(t, said_twice_the_same);
    tcase_add_test(t, id_lists);
    tcase_add_test(t, values_from_files);
    tcase_add_test(t, help_wins);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(args_suite()); }
