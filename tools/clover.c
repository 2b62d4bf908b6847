/* clover.c - the command line: finds the command and runs it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "../ref/clover.h"
#include "tools.h"

typedef struct Command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} Command;

static const Command commands[] = {
    { "run", "answer a prompt: token by token, block by block, or drafting for itself", cmd_run },
    { "logits", "exact logits and every intermediate value of a step, as safetensors", cmd_logits },
    { "golden", "expected values of cases, step by step, as a bundle for clover diff", cmd_golden },
    { "inspect", "what a model file holds, lacks and can run", cmd_inspect },
    { "lint", "what is wrong with a model file, and what mends it", cmd_lint },
    { "synth", "write a random model of any shape, type and file form", cmd_synth },
    { "diff", "where an engine first leaves the reference", cmd_diff },
    { "hypotheses", "the catalogue of known mistakes, and engines that make them", cmd_hypotheses },
    { "explain", "walk one row through one layer: clauses, formulas, shapes, numbers", cmd_explain },
    { "convert", "write a right GGUF of a Hugging Face folder", cmd_convert },
    { "compare", "tell two model files apart by meaning, tensor by tensor", cmd_compare },
    { "fix", "write a right GGUF of a drifted one, nothing quantised again", cmd_fix },
    { "ask", "ask what is known, and judge the answers", cmd_ask },
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out) {
    fprintf(out, "usage: clover COMMAND ... | clover COMMAND --help | clover --version\n\n"
                 "The Clover reference: runs and explains clover_moe models as they are.\n\n");
    for (int i = 0; i < N_COMMANDS; i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\nexit codes: 0 fine, 1 differs or finding, 2 usage, 3 bad input, 4 unsupported, 70 bug of ours, 71 system (memory, disk)\n\n"
                 "example:\n  clover synth -o tiny.gguf --preset tiny && clover run tiny.gguf --prompt 'Hello' -n 16\n");
}

/* A full disk behind standard output must not look like success. */
static int finish(int code) {
    errno = 0;
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    if (!failed) return code;
    fprintf(stderr, "clover: cannot write standard output: %s\n", errno ? strerror(errno) : "write error");
    return code == CLOVER_OK ? CLOVER_SYSTEM : code;
}

int main(int argc, char **argv) {
    signal(SIGXFSZ, SIG_IGN);                            /* a file size limit is then an error of write, like a full disk */
    if (argc < 2) {
        print_help(stderr);
        return CLOVER_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        printf("clover %s\n", CLOVER_VERSION);
        return finish(CLOVER_OK);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return finish(CLOVER_OK);
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0) return finish(commands[i].run(argc - 1, argv + 1));
    fprintf(stderr, "clover: no command \"%s\"; clover --help lists them\n", name);
    return CLOVER_USAGE;
}
