/* args.c - command lines from a table of options. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "args.h"

/* ---- values ------------------------------------------------------------------------------------------------------ */

bool arg_int(const char *text, int64_t *out) {
    char *end;
    if (!isdigit((unsigned char)text[text[0] == '-' || text[0] == '+'])) return false;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    *out = v;
    return *end == '\0' && errno == 0;
}

bool arg_real(const char *text, double *out) {
    char *end;
    if (text[0] == '\0' || strspn(text, "0123456789+-.eE") != strlen(text)) return false;   /* no hex, nan or inf */
    *out = strtod(text, &end);
    return *end == '\0' && isfinite(*out);
}

static bool arg_seed(const char *text, uint64_t *out) {
    char *end;
    if (!isdigit((unsigned char)text[0])) return false;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    *out = v;
    return *end == '\0' && errno == 0;
}

/* 4096, 64K, 8M, 2G */
static bool arg_bytes(const char *text, int64_t *out) {
    char *end;
    if (!isdigit((unsigned char)text[0])) return false;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift) end++;
    if (*end != '\0' || errno != 0 || v > INT64_MAX >> shift) return false;
    *out = (int64_t)v << shift;
    return true;
}

enum { MOST_BYTES = 1 << 28 };

CloverStatus read_whole_file(const char *path, char **out, size_t *length, CloverError *err) {
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!f) return error_set(err, errno == ENOENT ? CLOVER_USAGE : CLOVER_SYSTEM, "%s: %s", path, strerror(errno));
    size_t n = 0, room = 4096;
    char *bytes = malloc(room);
    while (bytes) {
        n += fread(bytes + n, 1, room - n - 1, f);
        if (n < room - 1) break;
        if (room > MOST_BYTES) {   /* a device without end, or the wrong file */
            free(bytes);
            if (f != stdin) fclose(f);
            return error_set(err, CLOVER_USAGE, "%s: larger than %d MiB, no text or list of ids", path, MOST_BYTES >> 20);
        }
        char *larger = realloc(bytes, room *= 2);
        if (!larger) free(bytes);
        bytes = larger;
    }
    int failed = ferror(f) ? errno : 0;
    if (f != stdin) fclose(f);
    if (!bytes) return error_memory(err, path, room);
    if (failed) {
        free(bytes);
        return error_set(err, failed == EISDIR ? CLOVER_USAGE : CLOVER_SYSTEM, "%s: %s", path, strerror(failed));
    }
    bytes[n] = '\0';
    *out = bytes;
    *length = n;
    return CLOVER_OK;
}

/* "text", "@FILE", "@-" or "@@text" */
static CloverStatus read_text(const char *flag, const char *value, ArgText *out, CloverError *err) {
    if (value[0] == '@' && value[1] != '@') {
        CloverError inner;
        if (read_whole_file(value + 1, &out->bytes, &out->length, &inner) != CLOVER_OK)
            return error_set(err, inner.status, "%s: %s", flag, inner.text);
        return CLOVER_OK;
    }
    if (value[0] == '@') value++;
    out->length = strlen(value);
    out->bytes = malloc(out->length + 1);
    if (!out->bytes) return error_memory(err, flag, out->length + 1);
    memcpy(out->bytes, value, out->length + 1);
    return CLOVER_OK;
}

/* Numbers separated by one comma, by white space, or by both; a trailing newline is fine. */
static CloverStatus parse_ids(const char *flag, const ArgText *text, ArgIds *out, CloverError *err) {
    static const char space[] = " \t\r\n";
    if (strlen(text->bytes) != text->length)
        return error_set(err, CLOVER_USAGE, "%s: holds a NUL byte; ids are written 1,2,3", flag);
    out->ids = malloc((text->length / 2 + 1) * sizeof *out->ids);    /* an id and a separator are two bytes at least */
    if (!out->ids) return error_memory(err, flag, text->length * 2);
    const char *at = text->bytes + strspn(text->bytes, space);
    out->n = 0;
    while (*at) {
        char word[32];
        size_t length = strcspn(at, ", \t\r\n");
        int64_t id;
        snprintf(word, sizeof word, "%.*s", (int)(length < 31 ? length : 31), at);
        if (length > 31 || !arg_int(word, &id) || id < 0 || id > INT32_MAX)
            return error_set(err, CLOVER_USAGE, "%s: \"%s\" (number %lld of the list) is not a token id; ids are written 1,2,3",
                flag, word, (long long)out->n + 1);
        out->ids[out->n++] = (int32_t)id;
        at += length;
        at += strspn(at, space);
        if (*at == ',') {
            at++;
            at += strspn(at, space);
            if (*at == '\0') return error_set(err, CLOVER_USAGE, "%s: the list of ids ends with a comma", flag);
        }
    }
    if (out->n == 0) return error_set(err, CLOVER_USAGE, "%s: the list of ids is empty; ids are written 1,2,3", flag);
    return CLOVER_OK;
}

static CloverStatus read_ids(const char *flag, const char *value, ArgIds *out, CloverError *err) {
    ArgText text = { 0 };
    CloverStatus status = read_text(flag, value, &text, err);
    if (status == CLOVER_OK) status = parse_ids(flag, &text, out, err);
    free(text.bytes);
    return status;
}

/* ---- one option ---------------------------------------------------------------------------------------------------- */

static CloverStatus check_range(const ArgOption *o, const char *flag, const char *value, double v, CloverError *err) {
    if ((o->min == 0 && o->max == 0) || (v >= o->min && v <= o->max)) return CLOVER_OK;
    return error_set(err, CLOVER_USAGE, "%s: %s is out of range; allowed is %.15g to %.15g", flag, value, o->min, o->max);
}

static CloverStatus not_a(const char *what, const char *flag, const char *value, CloverError *err) {
    return error_set(err, CLOVER_USAGE, "%s: \"%s\" is not %s", flag, value, what);
}

static CloverStatus choose(const ArgOption *o, const char *flag, const char *value, CloverError *err) {
    char all[512] = "";
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(o->choices[i], value) == 0) {
            *(int *)o->target = i;
            return CLOVER_OK;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", o->choices[i]);
    }
    return error_set(err, CLOVER_USAGE, "%s: \"%s\" is none of %s", flag, value, all);
}

static CloverStatus set_value(const ArgOption *o, const char *flag, const char *value, CloverError *err) {
    switch (o->kind) {
    case ARG_HEADING: break;
    case ARG_FLAG: *(bool *)o->target = !o->off; return CLOVER_OK;
    case ARG_POSITIONAL:
    case ARG_STRING: *(const char **)o->target = value; return CLOVER_OK;
    case ARG_INT: {
        int64_t v;
        if (!arg_int(value, &v)) return not_a("a whole number", flag, value, err);
        *(int64_t *)o->target = v;
        return check_range(o, flag, value, (double)v, err);
    }
    case ARG_ID: {
        int64_t v;
        if (!arg_int(value, &v) || v < 0 || v > INT32_MAX) return not_a("a token id", flag, value, err);
        *(int32_t *)o->target = (int32_t)v;
        return check_range(o, flag, value, (double)v, err);
    }
    case ARG_SEED: return arg_seed(value, o->target) ? CLOVER_OK : not_a("a whole number from 0 to 2^64-1", flag, value, err);
    case ARG_BYTES:
        if (!arg_bytes(value, o->target)) return not_a("a size (4096, 64K, 8M, 2G)", flag, value, err);
        return check_range(o, flag, value, (double)*(int64_t *)o->target, err);
    case ARG_REAL_OR_OFF:
        if (strcmp(value, "off") == 0) {
            *(double *)o->target = -1;
            return CLOVER_OK;
        }
        if (!arg_real(value, o->target)) return not_a("a number or off", flag, value, err);
        return check_range(o, flag, value, *(double *)o->target, err);
    case ARG_REAL:
        if (!arg_real(value, o->target)) return not_a("a number", flag, value, err);
        return check_range(o, flag, value, *(double *)o->target, err);
    case ARG_CHOICE: return choose(o, flag, value, err);
    case ARG_TEXT: return read_text(flag, value, o->target, err);
    case ARG_IDS: return read_ids(flag, value, o->target, err);
    }
    return error_set(err, CLOVER_BUG, "%s: an option of no kind", flag);
}

/* ---- the whole line ------------------------------------------------------------------------------------------------ */

typedef struct Seen { const char *value; bool given; } Seen;

static bool is_option(const ArgOption *o) { return o->kind != ARG_HEADING && o->kind != ARG_POSITIONAL; }

/* argument: "--name", "--name=value" or "-n"; *value: what stands after =, else NULL. */
static const ArgOption *find_option(const ArgCommand *c, const char *argument, const char **value) {
    const char *equals = strchr(argument, '=');
    bool is_long = argument[1] == '-';
    size_t length = equals && is_long ? (size_t)(equals - argument) : strlen(argument);
    *value = equals && is_long ? equals + 1 : NULL;
    for (size_t i = 0; i < c->n; i++) {
        const ArgOption *o = &c->options[i];
        if (!is_option(o)) continue;
        if (is_long && length == strlen(o->name) + 2 && strncmp(argument + 2, o->name, length - 2) == 0) return o;
        if (!is_long && length == 2 && o->letter && argument[1] == o->letter) return o;
    }
    return NULL;
}

static const ArgOption *next_positional(const ArgCommand *c, const Seen *seen) {
    for (size_t i = 0; i < c->n; i++)
        if (c->options[i].kind == ARG_POSITIONAL && !seen[i].given) return &c->options[i];
    return NULL;
}

static const char *display(const ArgOption *o, char name[80]) {
    snprintf(name, 80, "%s%s", o->kind == ARG_POSITIONAL ? "" : "--", o->name);
    return name;
}

static CloverStatus take(const ArgCommand *c, const ArgOption *o, const char *value, Seen *seen, CloverError *err) {
    char flag[80], other[80];
    Seen *s = &seen[o - c->options];
    display(o, flag);
    if (s->given) {
        if (o->kind == ARG_FLAG || strcmp(s->value, value) == 0) return CLOVER_OK;    /* said twice, but the same */
        return error_set(err, CLOVER_USAGE, "%s: given twice, as \"%s\" and as \"%s\"", flag, s->value, value);
    }
    for (size_t i = 0; i < c->n; i++)
        if (o->excludes && c->options[i].excludes == o->excludes && seen[i].given)
            return error_set(err, CLOVER_USAGE, "%s and %s exclude each other", display(&c->options[i], other), flag);
    s->given = true;
    s->value = value;
    return set_value(o, flag, value, err);
}

CloverStatus args_parse(const ArgCommand *c, int argc, char **argv, bool *help, CloverError *err) {
    Seen seen[ARGS_MAX_OPTIONS] = { { 0 } };
    bool options_ended = false;
    error_clear(err);
    *help = false;
    if (c->n > ARGS_MAX_OPTIONS) return error_set(err, CLOVER_BUG, "more than %d options", ARGS_MAX_OPTIONS);

    for (int i = 1; i < argc; i++)                       /* help wins over mistakes elsewhere on the line */
        if (strcmp(argv[i], "--") == 0) break;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) *help = true;
    if (*help) return CLOVER_OK;

    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = a;
        const ArgOption *o;
        if (!options_ended && strcmp(a, "--") == 0) {
            options_ended = true;
            continue;
        }
        if (options_ended || a[0] != '-' || a[1] == '\0') {
            o = next_positional(c, seen);
            if (!o) return error_set(err, CLOVER_USAGE, "\"%s\": one argument too many; clover %s --help", a, c->name);
        } else {
            o = find_option(c, a, &value);
            if (!o) return error_set(err, CLOVER_USAGE, "%s: no such flag; clover %s --help lists them", a, c->name);
            if (o->kind == ARG_FLAG && value) return error_set(err, CLOVER_USAGE, "--%s: takes no value", o->name);
            if (o->kind != ARG_FLAG && !value) {
                if (i + 1 == argc || strncmp(argv[i + 1], "--", 2) == 0)
                    return error_set(err, CLOVER_USAGE, "%s: needs a value (%s)%s", a, o->value ? o->value : "VALUE",
                                     i + 1 < argc ? "; write one that begins with -- as FLAG=VALUE" : "");
                value = argv[++i];
            }
        }
        if (take(c, o, value, seen, err) != CLOVER_OK) return err->status;
    }
    for (size_t i = 0; i < c->n; i++) {
        char flag[80];
        if (c->options[i].given) *c->options[i].given = seen[i].given;
        if (c->options[i].required && !seen[i].given)
            error_add(err, CLOVER_USAGE, "%s is missing; clover %s --help", display(&c->options[i], flag), c->name);
    }
    return err->status;
}

void args_free(const ArgCommand *c) {
    for (size_t i = 0; i < c->n; i++) {
        const ArgOption *o = &c->options[i];
        if (o->kind == ARG_TEXT) {
            free(((ArgText *)o->target)->bytes);
            *(ArgText *)o->target = (ArgText){ 0 };
        }
        if (o->kind == ARG_IDS) {
            free(((ArgIds *)o->target)->ids);
            *(ArgIds *)o->target = (ArgIds){ 0 };
        }
    }
}

/* ---- help and failure ---------------------------------------------------------------------------------------------- */

enum { HELP_COLUMN = 34 };

static void print_option(const ArgOption *o) {
    char left[160] = "";
    if (o->kind == ARG_HEADING) {
        printf("\n%s\n", o->help);
        return;
    }
    if (o->kind == ARG_POSITIONAL) snprintf(left, sizeof left, "  %s", o->name);
    else {
        const char *value = o->kind == ARG_FLAG ? "" : o->value ? o->value : "VALUE";
        char letter[8] = "";
        if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "  %s--%s%s%s", letter, o->name, value[0] ? " " : "", value);
    }
    printf("%-*s ", HELP_COLUMN - 1, left);
    if (strlen(left) > HELP_COLUMN - 1) printf("\n%*s", HELP_COLUMN, "");
    if (o->kind == ARG_CHOICE) {
        for (int i = 0; o->choices[i]; i++) printf("%s%s", i ? ", " : "", o->choices[i]);
        printf("\n%*s", HELP_COLUMN, "");
    }
    for (const char *p = o->help ? o->help : ""; *p; p++) {
        putchar(*p);
        if (*p == '\n') printf("%*s", HELP_COLUMN, "");
    }
    putchar('\n');
}

static void print_help(const ArgCommand *c) {
    printf("usage: clover %s %s\n\n%s\n\n", c->name, c->usage, c->summary);
    for (size_t i = 0; i < c->n; i++) print_option(&c->options[i]);
    printf("%-*s this text\n", HELP_COLUMN - 1, "  -h, --help");
    printf("\nexample:\n  ");
    for (const char *p = c->example; *p; p++) {
        putchar(*p);
        if (*p == '\n') printf("  ");
    }
    putchar('\n');
}

int command_failed(const char *name, const CloverError *err) {
    fflush(stdout);
    fprintf(stderr, "clover %s: %s\n", name, err->text);
    return (int)err->status;
}

int args_begin(const ArgCommand *c, int argc, char **argv, CloverError *err) {
    bool help;
    if (args_parse(c, argc, argv, &help, err) != CLOVER_OK) {
        args_free(c);
        return command_failed(c->name, err);
    }
    if (!help) return ARGS_GO;
    print_help(c);
    return CLOVER_OK;
}
