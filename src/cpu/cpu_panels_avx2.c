/* cpu_panels_avx2.c - the panel kernel for AVX2 + FMA + F16C: two vectors a panel. */
#include "cpu/cpu_int.h"
#include "cpu/cpu_vector_avx2.inc"

#include <math.h>

#define ROWS_MAX 4
#define PANELS_FEW 1
#define PANELS_MANY 1
#define PANELS_NAME cpu_panels_avx2

#include "cpu/cpu_panels_body.inc"
