/* wgmma.cuh - the warpgroup's tensor-core product of Hopper: D[64 x N] += A[64 x 16] B[16 x N], BF16 in, fp32 sums, A from registers, B
 * from shared memory.
 *
 * Registers of A and D lie as in mma.sync m16n8k16, warp w of the four holding rows 16 w .. + 15; the bits are those of mma_bf16 too
 * (docs/decisions/0010). B is [N tokens][64 inputs] in atoms of eight tokens, 128 bytes each, whose 16-byte pieces are swizzled: piece c
 * of token t lies at c ^ (t % 8). */
#ifndef CUDA_KERNELS_WGMMA_CUH
#define CUDA_KERNELS_WGMMA_CUH

#include <stdint.h>

/* Of the atoms at a shared address, a multiple of 1024; + 2 for each further 16 inputs. */
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address)
{
    return (uint64_t)(address >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int LEFT>
__device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

template <int REGISTERS>
__device__ __forceinline__ void registers_grow()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void registers_shrink()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int N>
struct wgmma;

#define WGMMA_P0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_P1 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_P2 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_P3 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_P4 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_P5 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_P6 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_P7 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_D(i)                                                                                                                     \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7]),         \
        "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]),            \
        "+f"(d[i + 15])
#define WGMMA(n, list, a_and_b, ...)                                                                                                   \
    template <>                                                                                                                        \
    struct wgmma<n> {                                                                                                                  \
        static __device__ __forceinline__ void add(float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b)                              \
        {                                                                                                                              \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" list "}, " a_and_b ", 1, 1, 1, 0;"                  \
                         : __VA_ARGS__                                                                                                 \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                        \
        }                                                                                                                              \
    };

WGMMA(64, WGMMA_P0 ", " WGMMA_P1,
      "{%32, %33, %34, %35}, %36",
      WGMMA_D(0), WGMMA_D(16))
WGMMA(128, WGMMA_P0 ", " WGMMA_P1 ", " WGMMA_P2 ", " WGMMA_P3,
      "{%64, %65, %66, %67}, %68",
      WGMMA_D(0), WGMMA_D(16), WGMMA_D(32), WGMMA_D(48))
WGMMA(160, WGMMA_P0 ", " WGMMA_P1 ", " WGMMA_P2 ", " WGMMA_P3 ", " WGMMA_P4,
      "{%80, %81, %82, %83}, %84",
      WGMMA_D(0), WGMMA_D(16), WGMMA_D(32), WGMMA_D(48),
      WGMMA_D(64))
WGMMA(192, WGMMA_P0 ", " WGMMA_P1 ", " WGMMA_P2 ", " WGMMA_P3 ", " WGMMA_P4 ", " WGMMA_P5,
      "{%96, %97, %98, %99}, %100",
      WGMMA_D(0), WGMMA_D(16), WGMMA_D(32), WGMMA_D(48),
      WGMMA_D(64), WGMMA_D(80))
WGMMA(256, WGMMA_P0 ", " WGMMA_P1 ", " WGMMA_P2 ", " WGMMA_P3 ", " WGMMA_P4 ", " WGMMA_P5 ", " WGMMA_P6 ", " WGMMA_P7,
      "{%128, %129, %130, %131}, %132",
      WGMMA_D(0), WGMMA_D(16), WGMMA_D(32), WGMMA_D(48),
      WGMMA_D(64), WGMMA_D(80), WGMMA_D(96), WGMMA_D(112))

#undef WGMMA
#undef WGMMA_D
#undef WGMMA_P0
#undef WGMMA_P1
#undef WGMMA_P2
#undef WGMMA_P3
#undef WGMMA_P4
#undef WGMMA_P5
#undef WGMMA_P6
#undef WGMMA_P7

#endif
