/* vector.h - sixteen floats at once, in the compiler's own vector type: the same element-wise arithmetic on every machine, whatever
 * registers it has. OPS_CLONES compiles a function for several instruction sets and picks one at start; since contraction to fused
 * multiply-add is off, all give the same bits. Sanitizers do not survive the loader hook behind it, so they get one version. */
#ifndef OPS_VECTOR_H
#define OPS_VECTOR_H

typedef float v16 __attribute__((vector_size(64)));
/* The same with the alignment of a float, for loads and stores anywhere. */
typedef float v16u __attribute__((vector_size(64), aligned(4), may_alias));

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define OPS_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define OPS_CLONES
#endif

#endif
