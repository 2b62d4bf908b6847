/* convert_roles.h - the tensors of a file by role, whatever its form: what convert, compare and fix see.
 *
 * A view shows one role as it should be read: value heads and columns in Hugging Face's order, norms as the factor 1 + w and
 * the rate as -exp(A_log), as a GGUF holds them. The standing differences of the two formats vanish here; what is left is
 * either a fault or another quantisation. Unlike the binder of ref/files/weights.h a view asks for one tensor alone, so that
 * files can be looked at which no loader takes. [TEN-1, TEN-5, TEN-6, TEN-7] */
#ifndef CLOVER_CONVERT_ROLES_H
#define CLOVER_CONVERT_ROLES_H

#include "../ref/files/gguf.h"
#include "../ref/files/names.h"
#include "../ref/files/safetensors.h"
#include "../ref/files/weights.h"

typedef struct ModelFile {
    const char *path;
    Gguf *gguf;                      /* one of these two is NULL */
    Safetensors *safetensors;
    TensorList tensors;
    Names names;                     /* tensor's name -> its place in tensors */
    NameForm form;
    CloverConfig config;
    bool has_config;
    CloverError why;                 /* why it has not */
    bool diffusion_tiled;            /* as its key says, else a GGUF is tiled [CFG-12] */
} ModelFile;

/* path: a .gguf, a .safetensors file, or a folder. A file whose numbers cannot be read opens all the same. */
CloverStatus model_file_open(const char *path, ModelFile *out, CloverError *err);
void model_file_close(ModelFile *f);
const Tensor *model_file_tensor(const ModelFile *f, const char *name);   /* NULL when absent */

/* ---- the roles a model has, in the order in which a GGUF of this project holds them ------------------------------ */

enum { ROLE_NAME = 96 };

typedef struct RoleOf {
    WeightRole what;
    int64_t layer;                   /* -1: of no layer */
    char name[ROLE_NAME];            /* its usual name in a GGUF, whole */
} RoleOf;

typedef struct RoleList { RoleOf *role; int64_t n; } RoleList;
CloverStatus role_list(const CloverConfig *c, RoleList *out, CloverError *err);   /* free(out->role) */
int64_t role_find(const RoleList *list, const char *name);                        /* -1 when absent */

/* ---- one role in one file ---------------------------------------------------------------------------------------- */

typedef enum ValueForm { VALUE_AS_IT_IS, VALUE_PLUS_1, VALUE_MINUS_1, VALUE_NEG_EXP, VALUE_LOG_NEG, VALUE_NEG_EXP_NEG, VALUE_NEG_LOG_NEG } ValueForm;
float value_in_form(ValueForm form, float x);      /* computed in double, rounded once */
ValueForm value_back(ValueForm form);              /* the form that undoes it */

typedef struct RoleView {
    const RoleOf *role;
    const Tensor *tensor;            /* NULL: absent, or one tensor an expert */
    const Tensor **single;           /* [experts], of HF's separate experts; NULL else */
    int64_t experts, rows, cols;     /* a vector is one row; experts 1 for what has none */
    int64_t stride, first;           /* rows of an expert in the tensor, and where this role's begin */
    int64_t row_bytes;
    DType type;
    HeadMap row_map, col_map;        /* from HF's index to the file's */
    ValueForm value;                 /* from the file's value to the GGUF's */
    bool fits;                       /* shape and bytes are as the role needs */
    bool transposed;                 /* they would be, the other way round */
    bool decodable;
} RoleView;

/* False: the file has no such tensor. view->single is malloc'ed (role_view_free). config: of the model. */
CloverStatus role_view(const ModelFile *f, const RoleOf *role, const CloverConfig *config, RoleView *out, CloverError *err);
void role_view_free(RoleView *v);
bool role_view_present(const RoleView *v);
const char *role_view_name(const RoleView *v);     /* of its (first) tensor */

/* The bytes of HF's row r of expert e. The view must fit, or be transposed: then [cols, rows]. */
const uint8_t *role_row_bytes(const RoleView *v, int64_t e, int64_t r);
/* The row's values [cols], in HF's order and the GGUF's form. scratch: [cols]. */
void role_row(const RoleView *v, int64_t e, int64_t r, float *out, float *scratch);
/* A vector's or small matrix's element; for transposed views. */
float role_element(const RoleView *v, int64_t e, int64_t r, int64_t c);

/* All values as a GGUF keeps them, in its order and as blocks of a type, through sink(self, ...). A value that is no number is
 * CLOVER_BAD_INPUT. rows, cols: role_maps' for a right file. */
typedef CloverStatus RoleSink(void *self, const void *bytes, size_t n, CloverError *err);
CloverStatus role_write(const RoleView *v, const HeadMap *rows, const HeadMap *cols, DType type, RoleSink *sink, void *self, CloverError *err);
/* Did values that are finite stay so in blocks of this type? Half floats and scales end at 65504. scratch: [n] */
bool role_fits_in(DType type, const uint8_t *packed, int64_t n, float *scratch);
/* The type of a role's tensor in a file whose matrices are of this type; its rows must be whole blocks, else F16. */
DType role_type(const RoleOf *role, DType matrices);
/* Its shape there; returns the number of dims. */
int role_shape(const RoleOf *role, int64_t out[3]);

/* The rows and columns of a role that move together: heads. n 0: none. Columns when `cols`. */
typedef struct Slots { int64_t start, width, n; bool cols; } Slots;
Slots role_heads(const RoleOf *role, const CloverConfig *c);            /* of GDN value heads, or of attention heads */

/* Where a GGUF keeps what a HF view shows, as the map of a right file. tiled: of diffusion roles */
void role_maps(const RoleOf *role, const CloverConfig *c, HeadMap *rows, HeadMap *cols);
int64_t head_unmap(const HeadMap *m, int64_t i);   /* HF's index of the file's index i */

#endif
