/* identity.h - what tells one model from another: its numbers as JSON, and a hash (model_identity in bundle.h). [BND-4] */
#ifndef CLOVER_IDENTITY_H
#define CLOVER_IDENTITY_H

#include <jansson.h>
#include "../ref/clover.h"

/* A config as clover inspect --json and manifests show it; a real that is not known is null. NULL: no memory. */
json_t *config_json(const CloverConfig *c);

#endif
