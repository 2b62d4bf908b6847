/* map.h - a whole file as bytes in memory, read-only, brought in page by page when touched. [GGUF] [SFT] */
#ifndef CLOVER_MAP_H
#define CLOVER_MAP_H

#include "../clover.h"

typedef struct Map {
    char *path;              /* for messages; owned */
    const uint8_t *data;     /* [bytes] */
    uint64_t bytes;
    bool mapped;             /* false: data belongs to the caller (map_bytes) */
} Map;

/* Adds one problem to *err (error_add) and leaves *out empty when the file cannot be mapped: CLOVER_BAD_INPUT when it
 * is not there, is a folder, is empty or is no plain file (a pipe); CLOVER_SYSTEM when the machine refuses. */
CloverStatus map_open(const char *path, Map *out, CloverError *err);

/* The same over bytes that the caller keeps for as long as the map. */
CloverStatus map_bytes(const uint8_t *data, uint64_t bytes, const char *label, Map *out, CloverError *err);
void map_close(Map *map);    /* an empty one is fine */

/* What a file that is not the expected kind seems to be, as an advice that ends a message; "" when nothing is known. */
const char *map_advice(const Map *map);

/* What to do, as messages end. */
#define FILE_CUT_SHORT "; it is cut short or damaged: download or copy it again"
#define FILE_WRONG "; the file is damaged or its writer is wrong"

/* Little-endian numbers at any address, on any machine. */
static inline uint16_t le16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t le32(const uint8_t *p) { return le16(p) | (uint32_t)le16(p + 2) << 16; }
static inline uint64_t le64(const uint8_t *p) { return le32(p) | (uint64_t)le32(p + 4) << 32; }

#endif
