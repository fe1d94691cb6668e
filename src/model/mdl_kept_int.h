/* mdl_kept_int.h - what the reader and the writer of mdl_kept_file.h share. */
#ifndef MODEL_MDL_KEPT_INT_H
#define MODEL_MDL_KEPT_INT_H

#include "model/mdl_kept_file.h"

#define MDL_KEPT_MAGIC "DIWEIGHT"
#define MDL_KEPT_VERSION 1

void mdl_kept_head_sum(const mdl_kept_head *head, const mdl_kept_entry *entries, uint8_t out[DIGEST_SUM_BYTES]);
uint64_t mdl_kept_piece(const uint8_t *form, size_t size);

#endif
