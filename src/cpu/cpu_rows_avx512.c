/* cpu_rows_avx512.c - kernels over rows of the caches for AVX-512, and the table of this instruction set. */
#include "cpu/cpu_int.h"
#include "cpu/cpu_vector_avx512.inc"

#define ROWS_VECTORS 4
#define ROWS_ROWS 8
#define ADD_VECTORS 4
#define KERNELS_NAME cpu_kernels_avx512
#define PANELS_FN cpu_panels_avx512
#define BLOCKS &cpu_blocks_avx512
#define ISA_NAME "AVX-512"

#include "cpu/cpu_rows_body.inc"
