/* mdl_config_int.h - between the two halves of the configuration reader. */
#ifndef MODEL_MDL_CONFIG_INT_H
#define MODEL_MDL_CONFIG_INT_H

#include "model/mdl_config.h"

#define MDL_CONFIG_NAME "config.json"

/* Checks what involves several values, and fills the derived ones (kv_source, index_source). All single values are already inside
 * their limits. */
di_status mdl_config_relate(mdl_config *c, di_error *err);

#endif
