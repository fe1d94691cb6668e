/* launch.cuh - one way to start a kernel: as a programmatic dependent of the one in front, so that its prologue overlaps with that
 * one's end. Every kernel of this room calls pdl_wait() before it touches what others write, so the attribute is always safe. */
#ifndef CUDA_KERNELS_LAUNCH_CUH
#define CUDA_KERNELS_LAUNCH_CUH

#include <cuda_runtime.h>

#include <stddef.h>

/* `cluster` blocks with consecutive numbers form a cluster; 1 = no clusters. */
template <typename... FORMAL, typename... ACTUAL>
static inline int cu_launch_clusters(void (*kernel)(FORMAL...), int cluster, dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream, ACTUAL... args)
{
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = (unsigned)cluster;
    attributes[1].val.clusterDim.y = 1;
    attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = cluster > 1 ? 2 : 1;
    return (int)cudaLaunchKernelEx(&config, kernel, FORMAL(args)...);
}

template <typename... FORMAL, typename... ACTUAL>
static inline int cu_launch(void (*kernel)(FORMAL...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, ACTUAL... args)
{
    return cu_launch_clusters(kernel, 1, grid, block, shared_bytes, stream, args...);
}

#endif
