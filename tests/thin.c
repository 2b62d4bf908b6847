/* thin.c - dumps made coarser. */
#include "thin.h"
#include <dirent.h>
#include "../ref/files/safetensors.h"
#include "../tools/diff_parts.h"
#include "../tools/safetensors_write.h"
#include "files.h"

static void thin(const char *path) {
    CloverError err;
    Safetensors *s;
    assert_ok(safetensors_open(path, &s, &err), err);
    const TensorList list = safetensors_tensors(s);
    NamedArray *kept = calloc((size_t)list.n + 1, sizeof *kept);
    int64_t n = 0;
    for (int64_t i = 0; i < list.n; i++) {
        const Tensor *t = &list.tensor[i];
        const char *stage = stage_of(t->name);
        if (strcmp(stage, "out") != 0 && strcmp(stage, "logits") != 0 && strcmp(stage, "ids") != 0) continue;
        kept[n] = (NamedArray){ .name = t->name, .type = t->type, .dims = t->dims, .data = t->data };
        memcpy(kept[n++].shape, t->shape, sizeof t->shape);
    }
    assert_ok(safetensors_save(path, kept, n, NULL, &err), err);   /* beside, then renamed: the mapped file stays whole meanwhile */
    free(kept);
    safetensors_close(s);
}

void thin_folder(const char *folder) {
    DIR *d = opendir(folder);
    ck_assert_msg(d != NULL, "%s", folder);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[2 * TEST_PATH];
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".safetensors") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        thin(path);
    }
    closedir(d);
}
