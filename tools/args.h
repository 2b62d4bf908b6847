/* args.h - what every command shares on the command line: a table of options, and how a failure is told.
 *
 * A command declares one table; it is the parser, the checks and the --help text at once:
 *
 *     int64_t layers = 4;  bool json = false;
 *     const ArgOption options[] = {
 *         { .name = "MODEL", .kind = ARG_POSITIONAL, .target = &path, .required = true, .help = "a .gguf or a folder" },
 *         { .name = "layers", .letter = 'l', .kind = ARG_INT, .target = &layers, .value = "N",
 *           .min = 1, .max = 1024, .help = "layers (4)" },
 *         { .name = "json", .kind = ARG_FLAG, .target = &json, .help = "print JSON" } };
 *     const ArgCommand command = { .name = "run", .usage = "MODEL [options]", .summary = "…", .example = "clover run …",
 *                                  .options = options, .n = sizeof options / sizeof *options };
 *     CloverError err;
 *     int code = args_begin(&command, argc, argv, &err);
 *     if (code != ARGS_GO) return code;
 *     …
 *     args_free(&command);
 *
 * Written --name VALUE, --name=VALUE or -n VALUE; `--` ends the options. A value that begins with -- needs the = form. */
#ifndef CLOVER_ARGS_H
#define CLOVER_ARGS_H

#include "../ref/clover.h"

typedef enum ArgKind {
    ARG_HEADING,             /* no option: a line of --help (help) */
    ARG_POSITIONAL,          /* const char *; in the table's order; name in capitals */
    ARG_FLAG,                /* bool: set to true, or to false when .off */
    ARG_INT,                 /* int64_t */
    ARG_ID,                  /* int32_t: a token id */
    ARG_SEED,                /* uint64_t */
    ARG_BYTES,               /* int64_t: a size; 4096, 64K, 8M, 2G (powers of 1024) */
    ARG_REAL,                /* double, finite */
    ARG_REAL_OR_OFF,         /* double; the word off gives -1 */
    ARG_CHOICE,              /* int: the index in .choices (NULL-terminated) */
    ARG_STRING,              /* const char *: the argument as it stands */
    /* ArgText: text, or @FILE (whole file), @- (standard input); a text that begins with @ is written @@ */
    ARG_TEXT,
    ARG_IDS                  /* ArgIds: 1,2,3 (commas, spaces, newlines), or @FILE, @- */
} ArgKind;

typedef struct ArgText { char *bytes; size_t length; } ArgText;      /* NUL-terminated as well; bytes NULL: not given */
typedef struct ArgIds { int32_t *ids; int64_t n; } ArgIds;           /* ids NULL: not given */

typedef struct ArgOption {
    const char *name;        /* without dashes */
    char letter;             /* 0: none */
    ArgKind kind;
    void *target;            /* holds the default; text and ids start zeroed; never NULL but for a heading */
    const char *value;       /* what --help calls the value: "N" */
    double min, max;         /* numbers: the allowed range, ends included; both 0: any (ids and bytes: not negative) */
    const char *const *choices;
    bool off;                /* a flag that clears its target: --no-think */
    bool required;
    int excludes;            /* options of the same number, not 0, exclude each other */
    bool *given;             /* NULL, or set to whether it was on the command line */
    const char *help;        /* one line or several; says the default */
} ArgOption;

typedef struct ArgCommand {
    const char *name, *usage, *summary, *example;
    const ArgOption *options;
    size_t n;
} ArgCommand;

enum { ARGS_GO = -1, ARGS_MAX_OPTIONS = 128 };

/* Parses, and on --help or -h prints the help on standard output (code 0), on a mistake the message on standard error
 * (code 2; 71 when an @FILE cannot be read). ARGS_GO: go on. */
int args_begin(const ArgCommand *command, int argc, char **argv, CloverError *err);

/* The same without printing; *help: --help was asked for. */
CloverStatus args_parse(const ArgCommand *command, int argc, char **argv, bool *help, CloverError *err);
void args_free(const ArgCommand *command);           /* frees the texts and ids in the targets */

/* Single values, for what a table cannot say (--accept 0.9,0.6): the whole text must be a number. */
bool arg_int(const char *text, int64_t *out);
bool arg_real(const char *text, double *out);        /* decimal, finite */

/* Prints "clover NAME: text" on standard error and returns the exit code, err->status. */
int command_failed(const char *name, const CloverError *err);

/* A whole file, or standard input for "-", NUL-terminated; free(*out). */
CloverStatus read_whole_file(const char *path, char **out, size_t *length, CloverError *err);

#endif
