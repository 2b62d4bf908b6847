/* judged.c - models, their goldens, and one diff after the other of what test engines dump. */
#include "judged.h"
#include <fcntl.h>
#include <math.h>
#include "../tools/tools.h"

/* ---- models and their goldens: made once, used by every test -------------------------------------------------------- */

const Shape shapes[SHAPES] = {
    { "a-hf", "--form hf --layers 4 --interval 4 --hidden 48 --heads 4 --kv-heads 2 --head-width 16 --rotary-dims 8 --key-heads 2 --value-heads 4 --key-width 16 "
              "--value-width 16 --experts 8 --experts-used 2 --expert-width 24 --shared-width 32 --vocab 280 --seed 11", 0.6 },
    { "b-hf", "--form hf --layers 2 --interval 2 --hidden 40 --heads 2 --kv-heads 2 --head-width 24 --rotary-dims 24 --key-heads 2 --value-heads 6 --key-width 8 "
              "--value-width 12 --taps 3 --experts 5 --experts-used 3 --expert-width 16 --shared-width 16 --vocab 270 --seed 12 --type bf16", -1 },
    { "c.gguf", "--layers 3 --interval 3 --hidden 64 --heads 3 --kv-heads 1 --head-width 32 --rotary-dims 16 --key-heads 4 --value-heads 8 --key-width 8 "
                "--value-width 8 --experts 12 --experts-used 4 --expert-width 32 --shared-width 32 --vocab 300 --seed 13 --type q8_0 --tied", 0.52 },
};
char judged_root[TEST_PATH], judged_folder[TEST_PATH];

/* Runs a command, its words separated by spaces, with both outputs in FOLDER/said. */
int command(int (*cmd)(int, char **), const char *text) {
    char copy[2048], *argv[96];
    int argc = 0;
    ck_assert_int_lt(snprintf(copy, sizeof copy, "%s", text), (int)sizeof copy);
    for (char *p = strtok(copy, " "); p; p = strtok(NULL, " ")) argv[argc++] = p;
    argv[argc] = NULL;
    fflush(stdout), fflush(stderr);
    const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO), file = open(in_folder(judged_root, "said"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ck_assert(out >= 0 && err >= 0 && file >= 0);
    dup2(file, STDOUT_FILENO), dup2(file, STDERR_FILENO);
    const int code = cmd(argc, argv);
    fflush(stdout), fflush(stderr);
    dup2(out, STDOUT_FILENO), dup2(err, STDERR_FILENO);
    close(out), close(err), close(file);
    return code;
}

void must(int (*cmd)(int, char **), const char *text) {
    const int code = command(cmd, text);
    if (code == 0) return;
    Bytes said = read_file(in_folder(judged_root, "said"));
    ck_abort_msg("%s: code %d: %.*s", text, code, (int)said.n, (const char *)said.data);
}

void make_golden(const char *model, const char *name, double coreset_top_p) {
    char text[1024];
    engine_cases(in_folder(judged_root, "cases.json"), coreset_top_p);
    snprintf(text, sizeof text, "golden %s --cases %s -o %s/%s-golden", model, in_folder(judged_root, "cases.json"), judged_root, name);
    must(cmd_golden, text);
}

static void make(int n) {
    char text[1024];
    make_folder("diff", judged_root);
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "synth -o %s/%s %s", judged_root, shapes[i].name, shapes[i].flags);
        must(cmd_synth, text);
        make_golden(in_folder(judged_root, shapes[i].name), shapes[i].name, shapes[i].coreset_top_p);
    }
}
void judged_make_all(void) { make(SHAPES); }
void judged_make_two(void) { make(2); }
void judged_remove(void) { remove_folder(judged_root); }

void judged_setup(void) { make_folder("diff-dump", judged_folder); }
void judged_teardown(void) { remove_folder(judged_folder); }

/* ---- one diff ------------------------------------------------------------------------------------------------------- */


Judged *judged_at(const char *model, const char *golden) {
    Judged *j = calloc(1, sizeof *j);
    assert_ok(clover_model_open(model, NULL, &j->model, &j->err), j->err);
    assert_ok(bundle_open(in_folder(judged_root, golden), &j->bundle, &j->err), j->err);
    j->options = (DiffOptions){ .dump = judged_folder, .profile = CLOVER_F32, .no_diagnosis = true, .margin_rms = DIFF_MARGIN_RMS, .margin_max = DIFF_MARGIN_MAX };
    return j;
}

/* name: of a model in root; its golden is NAME-golden. */
Judged *judged_new(const char *name) {
    char golden[64];
    snprintf(golden, sizeof golden, "%s-golden", name);
    return judged_at(in_folder(judged_root, name), golden);
}

DiffResult *judge(Judged *j) {
    diff_free(&j->result);
    j->status = diff_run(&j->options, &j->bundle, &j->result, &j->err);
    return &j->result;
}

void judged_free(Judged *j) {
    diff_free(&j->result);
    bundle_close(&j->bundle);
    clover_model_close(j->model);
    free(j);
}

const char *first_probe(const DiffResult *r) { return r->first < 0 ? "" : r->probe[r->first].probe; }
const char *first_step(const DiffResult *r) { return r->first < 0 ? "" : r->probe[r->first].step; }

bool says(char *const *lines, int64_t n, const char *text) {
    for (int64_t i = 0; i < n; i++)
        if (strstr(lines[i], text)) return true;
    return false;
}
bool notes(const DiffResult *r, const char *text) { return says(r->note, r->n_notes, text); }

void assert_conforms(const Judged *j, const char *what) {
    const DiffResult *r = &j->result;
    ck_assert_msg(j->status == CLOVER_OK, "%s: %s", what, j->err.text);
    ck_assert_msg(r->verdict == DIFF_CONFORMS, "%s: differs at %s %s: added %.3g and %.3g, budget %.3g and %.3g, %s", what, first_step(r), first_probe(r),
                  r->first < 0 ? 0 : r->probe[r->first].added.rms, r->first < 0 ? 0 : r->probe[r->first].added.max, r->first < 0 ? 0 : r->probe[r->first].budget_rms,
                  r->first < 0 ? 0 : r->probe[r->first].budget_max, r->first < 0 ? "" : r->probe[r->first].note);
    ck_assert_int_gt(r->n_probes, 0);
}

void assert_first(const Judged *j, const char *what, const char *step, const char *probe) {
    const DiffResult *r = &j->result;
    ck_assert_msg(j->status == CLOVER_OK, "%s: %s", what, j->err.text);
    ck_assert_msg(r->verdict == DIFF_DIFFERS && strcmp(first_step(r), step) == 0 && strcmp(first_probe(r), probe) == 0, "%s: %s at %s %s, expected %s %s", what,
                  verdict_name(r->verdict), first_step(r), first_probe(r), step, probe);
}

Engine engine_of(const Shape *s, const Fault *f, DType type) { return (Engine){ .fault = f, .type = type, .coreset_top_p = s->coreset_top_p }; }

const Fault *fault_named(const char *name) {
    for (int i = 0; i < n_engine_faults; i++)
        if (strcmp(engine_faults[i].name, name) == 0) return &engine_faults[i];
    ck_abort_msg("no fault %s", name);
    return NULL;
}

bool layers_only(void *user, const char *step, const char *probe) {
    (void)user, (void)step;
    return *probe == '\0' || strcmp(probe, "ids") == 0 || strcmp(stage_of(probe), "out") == 0 || strcmp(probe, "logits") == 0;
}
