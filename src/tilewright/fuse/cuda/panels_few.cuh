// Fully connected layers on few images. Needs panels.cuh.
//
// A block takes 16 * TILES images and 8 * COLUMNS outputs. Its warps divide the sum between them;
// everything is read straight from the caches, where 16 bytes of a lane are two steps' operands.

#if !TW_TENSOR

__device__ __forceinline__ void add_product(float& sum, uint4 x, float4 w)
{
    sum = fmaf(__uint_as_float(x.x), w.x, sum);
    sum = fmaf(__uint_as_float(x.y), w.y, sum);
    sum = fmaf(__uint_as_float(x.z), w.z, sum);
    sum = fmaf(__uint_as_float(x.w), w.w, sum);
}

// Where there are no tensor cores, lane 4g+t adds up the t-th of four pieces: of outputs g of its
// columns and all images of a tile, or, where images are MANY, of images g and g+8 of every tile and
// all outputs.
template <class L>
struct Parts {
    float of[L::MANY ? L::FILTERS : L::COLUMNS][L::MANY ? 2 * L::TILES : L::ROWS];
};

template <class L, class T>
__device__ __forceinline__ void share_quad(
    Parts<L>& part, const T* from, const uint4* weights, int first, int group, int count, int piece)
{
    const int g = (threadIdx.x & 31) >> 2;
    const float4* outputs = reinterpret_cast<const float4*>(weights);
    if (L::MANY) {
        uint4 x[2 * L::TILES];
#pragma unroll
        for (int k = 0; k < 2 * L::TILES; ++k)
            x[k] = piece_from<L>(from, min(first + g + 8 * k, count - 1), piece);
#pragma unroll
        for (int n = 0; n < (L::MANY ? L::FILTERS : 0); ++n) {
            const float4 w = __ldg(outputs + piece_at<L::PIECES>(n, piece) / 4);
#pragma unroll
            for (int k = 0; k < 2 * L::TILES; ++k)
                add_product(part.of[n][L::MANY ? k : 0], x[k], w);
        }
        return;
    }
    float4 w[L::COLUMNS];
#pragma unroll
    for (int n = 0; n < L::COLUMNS; ++n)
        w[n] = __ldg(outputs + piece_at<L::PIECES>((group + n) * 8 + g, piece) / 4);
#pragma unroll
    for (int row = 0; row < (L::MANY ? 0 : L::ROWS); ++row) {
        const uint4 x = piece_from<L>(from, min(first + row, count - 1), piece);
#pragma unroll
        for (int n = 0; n < L::COLUMNS; ++n)
            add_product(part.of[n][row], x, w[n]);
    }
}

// Four lanes' parts are added; lane 4g+t gets four sums of each column: outputs 2t and 2t+1 of two
// images, or images 4t to 4t+3 of an output.
template <class L>
__device__ __forceinline__ void gather_lanes(
    float (&sum)[L::TILES][L::COLUMNS][4], Parts<L>& part)
{
    const int t = threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < (L::MANY ? L::FILTERS : L::COLUMNS); ++n)
#pragma unroll
        for (int row = 0; row < (L::MANY ? 2 * L::TILES : L::ROWS); ++row) {
            float& each = part.of[n][row];
            each += __shfl_xor_sync(0xffffffff, each, 1);
            each += __shfl_xor_sync(0xffffffff, each, 2);
            if (L::MANY && n % 8 / 2 == t)
                sum[row / 2 % L::TILES][n / 8 % L::COLUMNS][row % 2 * 2 + n % 2] = each;
            if (!L::MANY && row / 4 == t)
                sum[0][n % L::COLUMNS][row % 4] = each;
        }
}

#endif

template <class L, class T>
__device__ __forceinline__ void share_sums(
    float (&sum)[L::TILES][L::COLUMNS][4], const T* from, const uint4* weights, int first,
    int group, int count)
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#if !TW_TENSOR
    Parts<L> part = {};
#endif
#pragma unroll L::UNROLL
    for (int quad = threadIdx.x / 32; quad < L::PIECES / 4; quad += L::WARPS) {
#if TW_TENSOR
        const int piece = 4 * quad + t;
        uint4 b[L::COLUMNS];
#pragma unroll
        for (int n = 0; n < L::COLUMNS; ++n)
            b[n] = __ldg(weights + piece_at<L::PIECES>((group + n) * 8 + g, piece) / 4);
#pragma unroll
        for (int m = 0; m < L::TILES; ++m) {
            const int row = first + m * 16 + g;
            uint4 even = make_uint4(0, 0, 0, 0), odd = even;
            if (row < count)
                even = piece_from<L>(from, row, piece);
            if (row + 8 < count)
                odd = piece_from<L>(from, row + 8, piece);
#pragma unroll
            for (int n = 0; n < L::COLUMNS; ++n) {
                multiply(sum[m][n], even.x, odd.x, even.y, odd.y, make_uint2(b[n].x, b[n].y));
                multiply(sum[m][n], even.z, odd.z, even.w, odd.w, make_uint2(b[n].z, b[n].w));
            }
        }
#else
        share_quad<L>(part, from, weights, first, group, count, 4 * quad + t);
#endif
    }
#if !TW_TENSOR
    gather_lanes<L>(sum, part);
#endif
}

// What all warps have of the same sums is added up, always in the same order, and put away.
template <class L>
__device__ __forceinline__ void add_up(
    const float (&sum)[L::TILES][L::COLUMNS][4], float4* shared, const float* bias, word* results,
    int first, int group, int count)
{
    constexpr int EACH = L::TILES * L::COLUMNS * 32;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
#pragma unroll
    for (int m = 0; m < L::TILES; ++m)
#pragma unroll
        for (int n = 0; n < L::COLUMNS; ++n)
            shared[warp * EACH + (m * L::COLUMNS + n) * 32 + lane] =
                make_float4(sum[m][n][0], sum[m][n][1], sum[m][n][2], sum[m][n][3]);
    __syncthreads();
    float* scores = reinterpret_cast<float*>(shared + L::WARPS * EACH);
    for (int i = threadIdx.x; i < EACH; i += 32 * L::WARPS) {
        float4 total = shared[i];
#pragma unroll
        for (int other = 1; other < L::WARPS; ++other) {
            const float4 next = shared[other * EACH + i];
            total.x += next.x;
            total.y += next.y;
            total.z += next.z;
            total.w += next.w;
        }
        const int tile = i / 32 / L::COLUMNS * 16;
        int column = (group + i / 32 % L::COLUMNS) * 8 + 2 * (i & 3);
        int inside = tile + i % 32 / 4;
        if (L::BY_OUTPUT) {
            // Four images of one output.
            column = (group + i / 32 % L::COLUMNS) * 8 + i % 32 / 4;
            inside = tile + 4 * (i & 3);
            const float values[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                if (L::SOFTMAX)
                    scores[(inside + k) * (8 * L::COLUMNS) + column] =
                        L::after(values[k] + __ldg(bias + column));
                else if (first + inside + k < count)
                    put_one<L>(results, bias, first + inside + k, column, values[k]);
            }
            continue;
        }
        const int row = first + inside;
        if (L::SOFTMAX) {
            const float low = __ldg(bias + column), high = __ldg(bias + column + 1);
            float* to = scores + inside * (8 * L::COLUMNS) + column;
            to[0] = L::after(total.x + low);
            to[1] = L::after(total.y + high);
            to[64 * L::COLUMNS] = L::after(total.z + low);
            to[64 * L::COLUMNS + 1] = L::after(total.w + high);
            continue;
        }
        if (row < count)
            put_two<L>(results, bias, row, column, total.x, total.y);
        if (row + 8 < count)
            put_two<L>(results, bias, row + 8, column, total.z, total.w);
    }
    if (L::SOFTMAX) {
        __syncthreads();
        for (int inside = warp; inside < 16 * L::TILES && first + inside < count;
             inside += L::WARPS)
            softmax<L::FILTERS>(scores + inside * (8 * L::COLUMNS),
                                reinterpret_cast<float*>(results)
                                    + size_t(first + inside) * L::FILTERS);
    }
}
