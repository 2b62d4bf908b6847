/* lint.c - clover lint: the command. See lint.h for the parts. [LNT-1] */
#include <string.h>
#include <sys/stat.h>
#include "lint.h"
#include "model_args.h"
#include "tools.h"

/* Whose finding a line of the loader is. */
static LintId id_of(const char *line, size_t n) {
    static const struct { const char *words; LintId id; } kinds[] = {
        { "merge", MERGES_MISSING }, { "pre_tokenizer", TOKENIZER_PRE }, { "split pattern", TOKENIZER_PRE },
        { "the tokenizer has ids up to", TOKEN_TABLE_SIZE },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *found = strstr(line, kinds[i].words);
        if (found && (size_t)(found - line) < n) return kinds[i].id;
    }
    return KEY_CONTRADICTS;
}

/* What no check of ours explains: the loader itself, asked to read it as it is. Its words are the finding. */
static CloverStatus ask_loader(const char *path, Report *r, CloverError *err) {
    CloverOpenOptions o = clover_open_defaults();
    CloverModel *model = NULL;
    o.drifts = CLOVER_AS_IS;
    const CloverStatus status = clover_model_open(path, &o, &model, err);
    clover_model_close(model);
    if (status == CLOVER_SYSTEM || status == CLOVER_BUG) return status;
    for (const char *line = status == CLOVER_OK ? "" : err->text; *line; ) {
        const size_t n = strcspn(line, "\n");
        report_add(r, id_of(line, n), BREAKS, CLOVER, NULL, "clover refuses it: %.*s", (int)n, line);
        report_beyond_fix(r, id_of(line, n), BREAKS);
        line += n + (line[n] == '\n');
    }
    error_clear(err);
    return CLOVER_OK;
}

CloverStatus lint_examine(const char *path, LintFile *f, Report *r, CloverError *err) {
    LintModel m = { 0 };
    struct stat found;
    const bool folder = stat(path, &found) == 0 && S_ISDIR(found.st_mode);
    CloverStatus status = folder ? lint_read_folder(path, f, r, err) : lint_read_gguf(path, f, r, err);
    if (status == CLOVER_OK) status = lint_header(&m, f, r, err);
    if (status == CLOVER_OK) status = lint_values(&m, r, err);
    lint_model_free(&m);
    if (status == CLOVER_OK && report_worst(r) == NOTE) status = ask_loader(path, r, err);
    return status;
}

int cmd_lint(int argc, char **argv) {
    const char *path = NULL;
    bool json = false, deep = false;
    ArgText text = { 0 };
    ArgIds ids = { 0 };
    DeepOptions d = { .rows = 512 };
    const ArgOption options[] = {
        { .name = "MODEL", .kind = ARG_POSITIONAL, .target = &path, .required = true,
          .help = "a .gguf (any part of a split one), or a folder with config.json and *.safetensors" },
        { .name = "json", .kind = ARG_FLAG, .target = &json, .help = "print JSON" },
        { .kind = ARG_HEADING, .help = "What headers and values cannot show" },
        { .name = "deep", .kind = ARG_FLAG, .target = &deep, .help = "try other readings of the weights on a few questions and answers" },
        { .name = "text", .kind = ARG_TEXT, .target = &text, .value = "TEXT", .excludes = 1,
          .help = "the text, or @FILE (questions and answers)" },
        { .name = "ids", .kind = ARG_IDS, .target = &ids, .value = "LIST", .excludes = 1,
          .help = "the text as ids, for a model without a tokenizer" },
        { .name = "rows", .kind = ARG_INT, .target = &d.rows, .value = "N", .min = 16, .max = 4096, .help = "rows of it that are read (512)" },
    };
    const ArgCommand command = { .name = "lint", .usage = "MODEL [options]",
        .summary = "Names what is wrong with a model file, by its header and all its values: what it is, in which tensors, by which numbers,\n"
                   "who is hurt, and what mends it. Nothing is loaded; a damaged or incomplete file is read as far as it goes.\n"
                   "Exit code 0: nothing but notes; 1: findings; 3: it cannot be read at all.",
        .example = "clover lint model.gguf", .options = options, .n = sizeof options / sizeof *options };
    CloverError err;
    const int code = args_begin(&command, argc, argv, &err);
    if (code != ARGS_GO) return code;

    LintFile file = { 0 };
    Report report = { 0 };
    d.text = text.bytes, d.length = text.length, d.ids = ids.ids, d.n_ids = ids.n;
    CloverStatus status = CLOVER_OK;
    if (!deep && (text.bytes || ids.ids)) status = error_set(&err, CLOVER_USAGE, "--text and --ids need --deep");
    if (status == CLOVER_OK && json) status = json_holds_path(path, &err);
    if (status == CLOVER_OK) status = lint_examine(path, &file, &report, &err);
    if (status == CLOVER_OK && deep) status = lint_deep(path, &d, &report, &err);
    if (status == CLOVER_OK && report.no_memory) status = error_memory(&err, "the report", (size_t)report.n * sizeof *report.finding);
    int result = (int)status;
    if (status != CLOVER_OK) command_failed("lint", &err);
    else {
        report_sort(&report);
        if (!json) report_print(stdout, &report, path, file.form);
        else if (!report_json(stdout, &report, path, file.form)) {
            error_set(&err, CLOVER_SYSTEM, "cannot write JSON");
            result = command_failed("lint", &err);
        }
        if (result == 0) result = report_worst(&report) > NOTE;
    }
    report_free(&report);
    lint_file_free(&file);
    args_free(&command);
    return result;
}
