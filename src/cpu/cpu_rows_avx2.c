/* cpu_rows_avx2.c - kernels over rows of the caches for AVX2, and the table of this instruction set. */
#include "cpu/cpu_int.h"
#include "cpu/cpu_vector_avx2.inc"

#define ROWS_VECTORS 2
#define ROWS_ROWS 4
#define ADD_VECTORS 2
#define KERNELS_NAME cpu_kernels_avx2
#define PANELS_FN cpu_panels_avx2
#define BLOCKS NULL
#define ISA_NAME "AVX2"

#include "cpu/cpu_rows_body.inc"
