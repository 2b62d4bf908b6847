/* names.c - a hash index of names, names in messages, and numbered file names. [GGUF] [SFT] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "names.h"

const char *name_show(const char *bytes, uint64_t length, char out[NAME_SHOWN]) {
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)bytes, *end = p + length;
    size_t n = 0;
    out[n++] = '\'';
    while (p < end && n < 80) {
        utf8proc_int32_t point = *p;
        utf8proc_ssize_t width = *p < 0x80 ? 1 : utf8proc_iterate(p, end - p, &point);
        if (width > 0 && point >= 0x20 && (point < 0x7f || point > 0x9f)) {   /* neither invalid nor a control character */
            memcpy(out + n, p, (size_t)width);
            n += (size_t)width;
            p += width;
        } else {
            n += (size_t)snprintf(out + n, 5, "\\x%02x", *p++);
        }
    }
    snprintf(out + n, NAME_SHOWN - n, p < end ? "...'" : "'");
    return out;
}

/* FNV-1a, 64 bit. */
static uint64_t hash(const char *name) {
    uint64_t h = 14695981039346656037u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 1099511628211u;
    return h;
}

/* The slot that holds the name, or the free one where it would go. room > used. */
static uint64_t slot_of(const Names *names, const char *name) {
    uint64_t i = hash(name) & (names->room - 1);
    while (names->name[i] && strcmp(names->name[i], name) != 0) i = (i + 1) & (names->room - 1);
    return i;
}

int64_t names_find(const Names *names, const char *name) {
    if (names->room == 0) return -1;
    uint64_t i = slot_of(names, name);
    return names->name[i] ? names->place[i] : -1;
}

static bool double_room(Names *names) {
    Names larger = { .room = names->room ? 2 * names->room : 64, .used = names->used };
    larger.name = calloc(larger.room, sizeof *larger.name);
    larger.place = calloc(larger.room, sizeof *larger.place);
    if (!larger.name || !larger.place) {
        names_free(&larger);
        return false;
    }
    for (uint64_t i = 0; i < names->room; i++) {
        if (!names->name[i]) continue;
        uint64_t slot = slot_of(&larger, names->name[i]);
        larger.name[slot] = names->name[i];
        larger.place[slot] = names->place[i];
    }
    names_free(names);
    *names = larger;
    return true;
}

bool names_add(Names *names, const char *name, int64_t place) {
    if (2 * (names->used + 1) > names->room && !double_room(names)) return false;
    uint64_t slot = slot_of(names, name);
    names->name[slot] = name;
    names->place[slot] = place;
    names->used++;
    return true;
}

void names_free(Names *names) {
    free(names->name);
    free(names->place);
    *names = (Names){ 0 };
}

static bool five_digits(const char *text, int *out) {
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *out = 10 * *out + (text[i] - '0');
    }
    return true;
}

bool part_name_parse(const char *path, const char *extension, PartName *out) {
    enum { TAIL = sizeof "-00001-of-00002" - 1 };
    size_t length = strlen(path), end = strlen(extension);
    if (length < TAIL + end || strcmp(path + length - end, extension) != 0) return false;
    const char *tail = path + length - end - TAIL;
    out->stem = (size_t)(tail - path);
    return tail[0] == '-' && five_digits(tail + 1, &out->part) && memcmp(tail + 6, "-of-", 4) == 0 &&
           five_digits(tail + 10, &out->parts);
}

char *part_name_make(const char *path, const PartName *of, int part, const char *extension) {
    size_t room = strlen(path) + 16;
    char *name = malloc(room);
    if (name) snprintf(name, room, "%.*s-%05d-of-%05d%s", (int)of->stem, path, part, of->parts, extension);
    return name;
}
