// Fully connected layers over the batch: a product of many images' features with large weights, and
// the smaller layers after it, in one kernel. Needs sums.cuh.
//
// A block takes 16 * MORE images (rows) and all outputs of the first layer. Features and weights
// come in chunks through a ring of buffers in shared memory while earlier chunks are multiplied.
// Where images are few, several blocks share a sum: each leaves its part in device memory, and the
// one that comes last adds the parts up, always in the same order, and goes on.

template <int COUNT>
__device__ __forceinline__ void all_but_fetched()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}

__device__ __forceinline__ void fetch_ends() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// A lane's two words of a row in a full step.
__device__ __forceinline__ uint2 read_two(const word* row)
{
#if TW_TENSOR
    const int t = threadIdx.x & 3;
    return make_uint2(row[t], row[t + 4]);
#else
    return *reinterpret_cast<const uint2*>(row);
#endif
}

// The products of one step: two words of two rows.
#if TW_TENSOR
__device__ __forceinline__ void multiply_rows(float (&sum)[4], uint2 even, uint2 odd, uint2 b)
{
    multiply(sum, even.x, odd.x, even.y, odd.y, b);
}
#else
__device__ __forceinline__ void multiply_rows(float (&sum)[4], uint2 even, uint2 odd, float4 b)
{
    const float x[2] = {__uint_as_float(even.x), __uint_as_float(even.y)};
    const float y[2] = {__uint_as_float(odd.x), __uint_as_float(odd.y)};
    sum[0] = fmaf(x[1], b.z, fmaf(x[0], b.x, sum[0]));
    sum[1] = fmaf(x[1], b.w, fmaf(x[0], b.y, sum[1]));
    sum[2] = fmaf(y[1], b.z, fmaf(y[0], b.x, sum[2]));
    sum[3] = fmaf(y[1], b.w, fmaf(y[0], b.y, sum[3]));
}
#endif

// One chunk of features (16 bytes at a time, row by row) and of weights.
template <class D>
__device__ __forceinline__ void fetch_chunk(
    word* to, const word* features, const word* weights, int first, int count, int chunk)
{
    constexpr int PIECES = D::CHUNK / 4;
    for (int i = threadIdx.x; i < 16 * D::MORE * PIECES; i += 32 * D::WARPS) {
        const int row = i / PIECES, piece = i % PIECES;
        const int image = min(first + row, count - 1);
        fetch_16(to + row * D::ROW + 4 * piece,
                 features + size_t(image) * D::WORDS + chunk * D::CHUNK + 4 * piece);
    }
    fetch<4 * D::CHUNK_WEIGHTS, 32 * D::WARPS>(to + 16 * D::MORE * D::ROW,
                                               weights + size_t(chunk) * D::CHUNK_WEIGHTS,
                                               threadIdx.x);
}

// The products of a step with every tile of 16 rows; `weights` are this warp's first column's.
template <class D>
__device__ __forceinline__ void chunk_step(
    float (&sum)[D::MORE][D::COLUMNS][4], const word* features, const word* weights)
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#if TW_TENSOR
    uint2 b[D::COLUMNS];
#pragma unroll
    for (int n = 0; n < D::COLUMNS; ++n)
        b[n] = *reinterpret_cast<const uint2*>(weights + n * 64 + lane * 2);
#else
    float4 b[D::COLUMNS];
#pragma unroll
    for (int n = 0; n < D::COLUMNS; ++n)
        b[n] = *reinterpret_cast<const float4*>(weights + n * 16 + t * 4);
#endif
#pragma unroll
    for (int m = 0; m < D::MORE; ++m) {
        const word* row = features + (m * 16 + g) * D::ROW;
        const uint2 even = read_two(row), odd = read_two(row + 8 * D::ROW);
#pragma unroll
        for (int n = 0; n < D::COLUMNS; ++n)
            multiply_rows(sum[m][n], even, odd, b[n]);
    }
}

template <class D>
__device__ __forceinline__ void multiply_chunks(
    float (&sum)[D::MORE][D::COLUMNS][4], word* ring, const word* features, const word* weights,
    int first, int count, int begin, int end)
{
    constexpr int SIZE = 16 * D::MORE * D::ROW + D::CHUNK_WEIGHTS;
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int stage = 0; stage < D::STAGES - 1; ++stage) {
        if (begin + stage < end)
            fetch_chunk<D>(ring + stage * SIZE, features, weights, first, count, begin + stage);
        fetch_ends();
    }
    for (int chunk = begin; chunk < end; ++chunk) {
        all_but_fetched<D::STAGES - 2>();
        __syncthreads();
        const int ahead = chunk + D::STAGES - 1;
        if (ahead < end)
            fetch_chunk<D>(ring + (ahead - begin) % D::STAGES * SIZE, features, weights, first,
                           count, ahead);
        fetch_ends();
        const word* at = ring + (chunk - begin) % D::STAGES * SIZE;
        const word* from = at + 16 * D::MORE * D::ROW;
#pragma unroll
        for (int s = 0; s < D::CHUNK / TW_STEP; ++s)
            chunk_step<D>(sum, at + s * TW_STEP,
                          from + (s * D::ALL_COLUMNS + warp * D::COLUMNS) * 8 * TW_STEP);
    }
    all_but_fetched<0>();
    __syncthreads();
}

// Adds up what several blocks have of the same sums. True for the one that has them all.
template <class D>
__device__ __forceinline__ bool gather(
    float (&sum)[D::MORE][D::COLUMNS][4], float4* parts, int* arrived, int rows)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    constexpr int EACH = D::MORE * D::WARPS * D::COLUMNS * 32;
    float4* mine = parts + (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * EACH;
#pragma unroll
    for (int m = 0; m < D::MORE; ++m)
        if (m * 16 < rows)
#pragma unroll
            for (int n = 0; n < D::COLUMNS; ++n)
                mine[((m * D::WARPS + warp) * D::COLUMNS + n) * 32 + lane] =
                    make_float4(sum[m][n][0], sum[m][n][1], sum[m][n][2], sum[m][n][3]);
    __shared__ int before;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        before = atomicAdd(arrived + blockIdx.x, 1);
    __syncthreads();
    if (before != gridDim.y - 1)
        return false;
    if (threadIdx.x == 0)
        arrived[blockIdx.x] = 0;  // for the next launch
    __threadfence();
#pragma unroll
    for (int m = 0; m < D::MORE; ++m)
        if (m * 16 < rows)
#pragma unroll
            for (int n = 0; n < D::COLUMNS; ++n) {
                float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                for (int part = 0; part < gridDim.y; ++part) {
                    const float4 next = __ldcg(
                        parts + (size_t(blockIdx.x) * gridDim.y + part) * EACH
                        + ((m * D::WARPS + warp) * D::COLUMNS + n) * 32 + lane);
                    total.x += next.x;
                    total.y += next.y;
                    total.z += next.z;
                    total.w += next.w;
                }
                sum[m][n][0] = total.x;
                sum[m][n][1] = total.y;
                sum[m][n][2] = total.z;
                sum[m][n][3] = total.w;
            }
    return true;
}

// Sums of 16 rows and 8 columns, with bias and activation, to where the next layer wants them: one
// row of `OUT_ROW` words an image.
template <class L>
__device__ __forceinline__ void finish(
    const float (&sum)[4], const float* bias, word* out, int row, int column, int rows)
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int channel = column * 8 + 2 * t;
    if (channel >= L::FILTERS)
        return;
    const float low = bias[channel], high = bias[channel + 1];
    if (row + g < rows)
        put<L>(out, (row + g) * L::OUT_ROW, channel, L::after(sum[0] + low),
               L::after(sum[1] + high));
    if (row + 8 + g < rows)
        put<L>(out, (row + 8 + g) * L::OUT_ROW, channel, L::after(sum[2] + low),
               L::after(sum[3] + high));
}

// A further layer, on rows of features in shared memory; weights straight from device memory.
template <class L>
__device__ __forceinline__ void connect(
    const word* in, const word* weights, const float* bias, word* out, int rows)
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, warp = threadIdx.x / 32;
    for (int unit = warp; unit < L::ROW_TILES * L::ALL_COLUMNS; unit += L::WARPS) {
        const int column = unit % L::ALL_COLUMNS, row = unit / L::ALL_COLUMNS * 16;
        if (row >= rows)
            break;
        const word* words = in + (row + g) * L::ROW;
        float sum[4] = {};
#pragma unroll 4
        for (int s = 0; s < L::STEPS; ++s) {
            const word* from = weights + (s * L::ALL_COLUMNS + column) * 8 * TW_STEP;
#if TW_TENSOR
            const uint2 b = __ldg(reinterpret_cast<const uint2*>(from + lane * 2));
#else
            const float4 b = __ldg(reinterpret_cast<const float4*>(from + t * 4));
#endif
            const word* at = words + s * TW_STEP;
            multiply_rows(sum, read_two(at), read_two(at + 8 * L::ROW), b);
        }
        finish<L>(sum, bias, out, row, column, rows);
    }
}
