/* spec_example.c - see spec_example.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "harness.h"
#include "spec_example.h"

static const char fence[] = "```example ";

static FILE *open_spec(void) {
    FILE *f = fopen("SPEC.md", "r");
    ck_assert_msg(f != NULL, "SPEC.md cannot be read; tests run in the repository's root");
    return f;
}

/* The next line without its newline; false at the end. */
static bool next_line(FILE *f, char *line, int room) {
    if (!fgets(line, room, f)) return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

static void add_pair(Example *e, const char *text, size_t length) {
    const char *sign = strstr(text, " = ");
    ck_assert_msg(sign && sign < text + length, "example %s: no \" = \" in \"%.*s\"", e->name, (int)length, text);
    const size_t key = (size_t)(sign - text), value = length - key - 3;
    ck_assert_msg(e->n < EXAMPLE_KEYS && key < sizeof e->pair[0].key && value < EXAMPLE_TEXT, "example %s: \"%.*s\" is too long", e->name, (int)length, text);
    memcpy(e->pair[e->n].key, text, key);
    memcpy(e->pair[e->n].text, sign + 3, value);
    e->n++;
}

static void add_line(Example *e, const char *line) {
    for (const char *end; (end = strstr(line, "; ")); line = end + 2) add_pair(e, line, (size_t)(end - line));
    add_pair(e, line, strlen(line));
}

/* Appends the pairs of the example `name`, so that earlier ones win. */
static void read_pairs(Example *e, const char *name) {
    char line[4096];
    bool found = false;
    FILE *f = open_spec();
    while (!found && next_line(f, line, sizeof line))
        found = strncmp(line, fence, strlen(fence)) == 0 && strcmp(line + strlen(fence), name) == 0;
    ck_assert_msg(found, "SPEC.md has no example %s", name);
    while (next_line(f, line, sizeof line) && strcmp(line, "```") != 0) add_line(e, line);
    fclose(f);
}

void example_load(Example *e, const char *name) {
    memset(e, 0, sizeof *e);
    snprintf(e->name, sizeof e->name, "%s", name);
    read_pairs(e, name);
    if (example_has(e, "as")) read_pairs(e, example_text(e, "as"));
}

static const char *find(const Example *e, const char *key) {
    for (int i = 0; i < e->n; i++) if (strcmp(e->pair[i].key, key) == 0) return e->pair[i].text;
    return NULL;
}

bool example_has(const Example *e, const char *key) { return find(e, key) != NULL; }

const char *example_text(const Example *e, const char *key) {
    const char *text = find(e, key);
    ck_assert_msg(text != NULL, "example %s has no %s", e->name, key);
    return text;
}

int64_t example_numbers(const Example *e, const char *key, double numbers[EXAMPLE_NUMBERS]) {
    const char *text = example_text(e, key);
    int64_t n = 0;
    for (char *end; *text; text = end) {
        ck_assert_int_lt(n, EXAMPLE_NUMBERS);
        numbers[n++] = strtod(text, &end);
        ck_assert_msg(end != text && (*end == ' ' || *end == '\0'), "example %s: %s is no list of numbers", e->name, key);
    }
    return n;
}

double example_number(const Example *e, const char *key) {
    double numbers[EXAMPLE_NUMBERS];
    ck_assert_msg(example_numbers(e, key, numbers) == 1, "example %s: %s is not one number", e->name, key);
    return numbers[0];
}

int64_t example_int(const Example *e, const char *key) {
    const double x = example_number(e, key);
    const int64_t i = (int64_t)x;
    ck_assert_msg((double)i == x, "example %s: %s is no integer", e->name, key);
    return i;
}

void example_expect(const Example *e, const char *key, const double *actual, int64_t n) {
    double expected[EXAMPLE_NUMBERS];
    const int64_t count = example_numbers(e, key, expected);
    ck_assert_msg(count == n, "example %s: %s has %lld numbers, computed were %lld", e->name, key, (long long)count, (long long)n);
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(close_to(actual[i], expected[i], 1e-14, 1e-15), "example %s: %s[%lld] is %.17g, SPEC.md says %.17g", e->name, key, (long long)i,
                      actual[i], expected[i]);
}

int example_names(char names[][32], int room) {
    char line[4096];
    int n = 0;
    FILE *f = open_spec();
    while (next_line(f, line, sizeof line))
        if (strncmp(line, fence, strlen(fence)) == 0) {
            ck_assert_int_lt(n, room);
            snprintf(names[n++], sizeof names[0], "%.31s", line + strlen(fence));
        }
    fclose(f);
    return n;
}
