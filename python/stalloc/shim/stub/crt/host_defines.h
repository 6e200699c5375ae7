// Stands in for the CUDA toolkit's header of the same name where only pip's runtime headers are installed. The shim is
// host code for GCC or Clang: the runtime's declarations need these markers to exist, not to do anything.
#pragma once
#define __no_return__ __attribute__((noreturn))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __location__(a)
#define __annotate__(a)
#define __specialization_static
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __grid_constant__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define CUDARTAPI
#define CUDARTAPI_CDECL
#ifndef _CRTIMP
#define _CRTIMP
#endif
