/* The dialect: one kernel source is CUDA C++ and OpenCL C. docs/dialect.md has the rules.
 *
 * Before this come the kernel's own constants: TW_NAME, the block size TW_THREADS_X, _Y and _Z,
 * TW_CONSTANT_FLOATS (0: no constant memory) and the shapes it is made for.
 */
#ifdef __OPENCL_VERSION__

#define TW_ENTRY \
    __kernel __attribute__((reqd_work_group_size(TW_THREADS_X, TW_THREADS_Y, TW_THREADS_Z))) void
#define TW_GLOBAL __global
#define TW_SHARED __local __attribute__((aligned(16)))
#define TW_IN_SHARED __local
#define TW_RESTRICT restrict
#define TW_UNROLL __attribute__((opencl_unroll_hint))
#define TW_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)

#define TW_THREAD_X ((int)get_local_id(0))
#define TW_THREAD_Y ((int)get_local_id(1))
#define TW_THREAD_Z ((int)get_local_id(2))
#define TW_BLOCK_X ((int)get_group_id(0))
#define TW_BLOCK_Y ((int)get_group_id(1))
#define TW_BLOCK_Z ((int)get_group_id(2))

typedef long tw_index;
typedef uchar tw_byte;

#ifdef FP_FAST_FMAF
#define TW_FMA(a, b, c) fma(a, b, c)
#else /* without the hardware, fma is a slow function; PoCL says so even where there is hardware */
#define TW_FMA(a, b, c) ((a) * (b) + (c))
#endif
#define TW_TANH(a) tanh(a)
#define TW_EXP(a) exp(a)
#define TW_ERFC(a) erfc(a)
#define TW_LOG1P(a) log1p(a)
#define TW_SIGMOID(a) (1.0f / (1.0f + TW_EXP(-(a))))
#define TW_INFINITY INFINITY
/* Four neighbours at once; the first must lie on a multiple of 16 bytes. */
#define TW_LOAD4(pointer) vload4(0, pointer)
#define TW_STORE4(value, pointer) vstore4(value, 0, pointer)
#define TW_FLOAT4(a, b, c, d) ((float4)(a, b, c, d))

#if TW_CONSTANT_FLOATS
#define TW_CONSTANT_ARGUMENT , __constant float *tw_constant
#else
#define TW_CONSTANT_ARGUMENT
#endif

/* OpenCL C 1.2 adds no floats atomically. The loop starts from a guess: a plain load would race. */
#define TW_DEFINE_ATOMIC_ADD \
    void tw_atomic_add(volatile __global float *place, float value) { \
        uint seen = 0, expected; \
        do { \
            expected = seen; \
            seen = atomic_cmpxchg((volatile __global uint *)place, expected, \
                                  as_uint(as_float(expected) + value)); \
        } while (seen != expected); \
    }

#else

#define TW_ENTRY \
    extern "C" __global__ void __launch_bounds__(TW_THREADS_X * TW_THREADS_Y * TW_THREADS_Z)
#define TW_GLOBAL
#define TW_SHARED __shared__ __align__(16)
#define TW_IN_SHARED
#define TW_RESTRICT __restrict__
#define TW_UNROLL _Pragma("unroll")
#define TW_BARRIER() __syncthreads()

#define TW_THREAD_X ((int)threadIdx.x)
#define TW_THREAD_Y ((int)threadIdx.y)
#define TW_THREAD_Z ((int)threadIdx.z)
#define TW_BLOCK_X ((int)blockIdx.x)
#define TW_BLOCK_Y ((int)blockIdx.y)
#define TW_BLOCK_Z ((int)blockIdx.z)

typedef long long tw_index;
typedef unsigned char tw_byte;

#define TW_FMA(a, b, c) fmaf(a, b, c)
#define TW_TANH(a) tanhf(a)
#define TW_EXP(a) expf(a)
#define TW_ERFC(a) erfcf(a)
#define TW_LOG1P(a) log1pf(a)
#define TW_SIGMOID(a) (1.0f / (1.0f + TW_EXP(-(a))))
#define TW_INFINITY __int_as_float(0x7f800000)
#define TW_LOAD4(pointer) (*(const float4 *)(pointer))
#define TW_STORE4(value, pointer) (*(float4 *)(pointer) = (value))
#define TW_FLOAT4(a, b, c, d) make_float4(a, b, c, d)

#define TW_CONSTANT_ARGUMENT
#if TW_CONSTANT_FLOATS
__constant__ float tw_constant[TW_CONSTANT_FLOATS];
#endif

#define TW_DEFINE_ATOMIC_ADD \
    __device__ void tw_atomic_add(float *place, float value) { atomicAdd(place, value); }

#endif

/* The larger of two, or NaN if either is: fmax would lose it. Arguments are evaluated repeatedly. */
#define TW_MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define TW_CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
