/* cpu_panels_avx512.c - the panel kernel for AVX-512 F/BW/VL/DQ: one vector a panel. */
#include "cpu/cpu_int.h"
#include "cpu/cpu_vector_avx512.inc"

#include <math.h>

#define ROWS_MAX 12
#define PANELS_FEW 4
#define PANELS_MANY 2
#define PANELS_NAME cpu_panels_avx512

#include "cpu/cpu_panels_body.inc"
