// What all kernels are made of: words of 32 bits, two halves (fp16) or one float each, products of
// them, and how they come into shared memory.
//
// TW_PER_WORD is 2 for fp16 and 1 otherwise; TW_TENSOR says whether sums go to the tensor cores,
// and TW_PARTS how many operands of theirs a float is split into.

typedef unsigned int word;

// Two halves. What is too large for one becomes NaN, not infinity: of that the next layer could
// make minus infinity, and a ReLU zero. Times zero plus itself is NaN for infinity, else itself.
__device__ __forceinline__ word pack(float low, float high)
{
    word both;
    asm("{ .reg .b32 halves; cvt.rn.f16x2.f32 halves, %1, %2;\n"
        "  fma.rn.f16x2 %0, halves, %3, halves; }"
        : "=r"(both) : "f"(high), "f"(low), "r"(0));
    return both;
}

__device__ __forceinline__ float2 unpack(word both)
{
    float2 values;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2;\n"
        "  cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
        : "=f"(values.x), "=f"(values.y) : "r"(both));
    return values;
}

// The larger number, or NaN if either is: fmaxf would prefer the other, and NaN be lost.
__device__ __forceinline__ float maximum(float a, float b)
{
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}

// The hyperbolic tangent in five instructions, off by less than 2^-20, where 11 bits of it are kept:
// tanhf takes some twenty. A power is off by 2^-22 of itself and what its argument was rounded by,
// a quotient by an ulp; the more of either error arrives, the nearer to 1 the other brings it.
__device__ __forceinline__ float near_tanh(float x)
{
    float power, share;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 2.88539008f));  // 2 / ln 2
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(power + 1.0f));
    return fmaf(-2.0f, share, 1.0f);
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The logistic function, in the same classes: off by less than 2^-21. A quotient as exact as above is
// some twenty instructions, with a branch that keeps a thread from computing several at a time.
__device__ __forceinline__ float near_sigmoid(float x)
{
    float power, share;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.44269504f));  // 1 / ln 2
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(power + 1.0f));
    return share;
}

// The error function's complement of what is not negative, in the same classes: off by less than
// 1.15e-6, where erfcf takes some forty instructions (Abramowitz and Stegun, 7.1.26).
__device__ __forceinline__ float near_erfc(float x)
{
    float power, t;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * x * -1.44269504f));  // 1 / ln 2
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(fmaf(0.3275911f, x, 1.0f)));
    float sum = fmaf(1.061405429f, t, -1.453152027f);
    sum = fmaf(sum, t, 1.421413741f);
    sum = fmaf(sum, t, -0.284496736f);
    sum = fmaf(sum, t, 0.254829592f);
    return sum * t * power;
}

// A float as it lies where a sum takes it: rounded to what the tensor cores read, so that they cut
// nothing off, or whole, if it is split then.
__device__ __forceinline__ word operand(float value)
{
#if TW_TENSOR && TW_PER_WORD == 1 && TW_PARTS == 1
    word rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
    return rounded;
#else
    return __float_as_uint(value);
#endif
}

// ---- products --------------------------------------------------------------------------------
//
// A step takes 16 rows (positions) times 8 columns (filters) over some words of the sum. Lane 4g+t
// holds the sums of rows g and g+8, columns 2t and 2t+1. On the tensor cores a step is 8 words, of
// which the lane loads words t and t+4 of its two rows (or 2t and 2t+1, if weights are in that order,
// too: terms of a sum may come in any), or 4, of which it loads the t-th. Otherwise
// it is 2 words, which the lane loads itself, both at once, or 1.

#if TW_TENSOR
#define TW_STEP 8

__device__ __forceinline__ void multiply_parts(
    float (&c)[4], word a0, word a1, word a2, word a3, word b0, word b1)
{
#if TW_PER_WORD == 2
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
#endif
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply_half_parts(float (&c)[4], word a0, word a1, word b)
{
#if TW_PER_WORD == 2
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
#else
    asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
#endif
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
}

// A float as two operands: the nearest number of 11 bits, which is what the tensor cores read, and
// what that leaves, which is exact, and of which they cut off one bit at most. If the float is not
// finite, the second is NaN whatever the first is: cvt.rna, which would keep that, too, is four
// instructions on sm_90, and this two.
__device__ __forceinline__ word high(word value) { return (value + 0x1000) & 0xffffe000; }

__device__ __forceinline__ word low(word value)
{
    return __float_as_uint(__uint_as_float(value) - __uint_as_float(high(value)));
}

// Of two parts the smaller products come first; that of both low ones is too small to count.
__device__ __forceinline__ void multiply(
    float (&c)[4], word a0, word a1, word a2, word a3, uint2 b)
{
#if TW_PARTS == 2
    multiply_parts(c, low(a0), low(a1), low(a2), low(a3), high(b.x), high(b.y));
    multiply_parts(c, high(a0), high(a1), high(a2), high(a3), low(b.x), low(b.y));
    multiply_parts(c, high(a0), high(a1), high(a2), high(a3), high(b.x), high(b.y));
#else
    multiply_parts(c, a0, a1, a2, a3, b.x, b.y);
#endif
}

__device__ __forceinline__ void multiply_half(float (&c)[4], word a0, word a1, word b)
{
#if TW_PARTS == 2
    multiply_half_parts(c, low(a0), low(a1), high(b));
    multiply_half_parts(c, high(a0), high(a1), low(b));
    multiply_half_parts(c, high(a0), high(a1), high(b));
#else
    multiply_half_parts(c, a0, a1, b);
#endif
}

#else
#define TW_STEP 2
#endif

// ---- everything else ---------------------------------------------------------------------------

// Scores, as floats, into probabilities; by one warp. Few are held, one by each lane.
template <int SIZE>
__device__ __forceinline__ void softmax(const float* scores, float* out)
{
    const int lane = threadIdx.x & 31;
    if constexpr (SIZE <= 32) {
        constexpr int HALF = SIZE > 16 ? 16 : SIZE > 8 ? 8 : SIZE > 4 ? 4 : 2;
        const float score = lane < SIZE ? scores[lane] : -3.402823466e38f;
        float most = score;
#pragma unroll
        for (int reach = HALF; reach; reach /= 2)
            most = maximum(most, __shfl_xor_sync(0xffffffff, most, reach));
        const float own = lane < SIZE ? expf(score - most) : 0.0f;
        float total = own;
#pragma unroll
        for (int reach = HALF; reach; reach /= 2)
            total += __shfl_xor_sync(0xffffffff, total, reach);
        if (lane < SIZE)
            out[lane] = own / total;
        return;
    }
    float most = -3.402823466e38f, total = 0.0f;
    for (int i = lane; i < SIZE; i += 32)
        most = maximum(most, scores[i]);
#pragma unroll
    for (int reach = 16; reach; reach /= 2)
        most = maximum(most, __shfl_xor_sync(0xffffffff, most, reach));
    for (int i = lane; i < SIZE; i += 32)
        total += expf(scores[i] - most);
#pragma unroll
    for (int reach = 16; reach; reach /= 2)
        total += __shfl_xor_sync(0xffffffff, total, reach);
    for (int i = lane; i < SIZE; i += 32)
        out[i] = expf(scores[i] - most) / total;
}

// ---- moving things -------------------------------------------------------------------------------

__device__ __forceinline__ void fetch_16(void* to, const void* from)
{
    const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}

__device__ __forceinline__ void fetch_4(void* to, const void* from)
{
    const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(from) : "memory");
}

// Four words of device memory by one instruction, of which the compiler otherwise made four where
// some of them were known to be zero: making words of pixels took 93 us instead of 29 so
// (200 channels of 9 x 9 in TF32, 1,000 images, H200, 2026-11-19).
__device__ __forceinline__ void write_four(word* to, word a, word b, word c, word d)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

__device__ __forceinline__ void fetched() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ void commit_fetches()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

__device__ __forceinline__ void fetched_but_last()
{
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

template <int BYTES, int THREADS>
__device__ __forceinline__ void fetch(void* to, const void* from, int thread)
{
    if constexpr (BYTES % 16) {
        for (int i = thread; i < BYTES / 4; i += THREADS)
            fetch_4(static_cast<char*>(to) + 4 * i, static_cast<const char*>(from) + 4 * i);
        return;
    }
    for (int i = thread; i < BYTES / 16; i += THREADS)
        fetch_16(static_cast<char*>(to) + 16 * i, static_cast<const char*>(from) + 16 * i);
}

// The warps of one picture wait for each other; those of other pictures go on.
template <int THREADS>
__device__ __forceinline__ void together(int group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(THREADS) : "memory");
}
