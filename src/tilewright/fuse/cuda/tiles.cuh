// One layer's sums cut into tiles, each a block's: few images keep many multiprocessors busy. Needs
// sums.cuh.
//
// A sum's positions, of all images, are rows of a matrix product, filters its columns, and the words
// under a window, tap by tap and channels last, what is summed over. A block takes 16 * TILES * DOWN
// rows and 8 * COLUMNS * ACROSS columns. Words come in rounds through a ring of buffers in shared
// memory; DEEP warps share each sum of a round, and several blocks share the rounds where there are
// more multiprocessors than tiles: each leaves its part in device memory, and the one that comes last
// adds the parts up, always in the same order.
//
// A launch of few images is over in some microseconds, and so is what its instructions take to come:
// loops are written out as far as that hides waiting, no further.

template <int COUNT>
__device__ __forceinline__ void all_rounds_but()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}

__device__ __forceinline__ void round_ends() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Words on their way to shared memory, or zeros.
template <int WORDS>
__device__ __forceinline__ void fetch_or_zero(word* to, const word* from, bool there)
{
    const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(from),
                 "n"(4 * WORDS), "r"(there ? 4 * WORDS : 0) : "memory");
}

// A row's window: the image, and the window's corner in it.
template <class T>
struct Corner {
    const T* image;
    int y, x;
};

constexpr int NOWHERE = -(1 << 20);

// The first of a block's results, counted through all images.
template <class L>
__device__ __forceinline__ int first_result()
{
    return blockIdx.x * (L::ALL_ROWS / (L::POOL ? 4 : 1));
}

// The block's result that row `row` belongs to. With pooling, rows 2k and 2k + 1 of 16 are the upper
// and the lower half of 8 windows, their first 8 the left halves.
template <class L>
__device__ __forceinline__ int result_of(int row)
{
    return L::POOL ? row / 32 * 8 + row % 8 : row;
}

template <class L, class T>
__device__ __forceinline__ Corner<T> corner_of(const T* images, int row, int count)
{
    constexpr int EACH = L::RESULT_Y * L::RESULT_X;
    const int result = first_result<L>() + result_of<L>(row);
    const int image = result / EACH, rest = result % EACH;
    if (row >= L::ALL_ROWS || image >= count)
        return {images, NOWHERE, 0};
    int y = rest / L::RESULT_X, x = rest % L::RESULT_X;
    if (L::POOL) {
        y = 2 * y + row / 16 % 2;
        x = 2 * x + row / 8 % 2;
    }
    return {images + size_t(image) * L::IMAGE_SIZE, y * L::STRIDE_Y - L::TOP,
            x * L::STRIDE_X - L::LEFT};
}

// Words of another kernel, which come by themselves.
template <class L>
__device__ __forceinline__ word take(
    word* to, const Corner<word>& corner, int y, int x, int in_pixel, bool there)
{
    const word* from = corner.image + (y * L::WIDTH + x) * L::WORDS + in_pixel;
    fetch_or_zero<L::PIECE>(to, there ? from : corner.image, there);
    return 0;
}

// Pixels, or floats channel by channel: a word, which is to be put there.
template <class L, class T>
__device__ __forceinline__ word take(
    word*, const Corner<T>& corner, int y, int x, int in_pixel, bool there)
{
    constexpr int PLANE = L::HEIGHT * L::WIDTH;
    const int c = in_pixel * TW_PER_WORD;
    const T* from = corner.image + c * PLANE + y * L::WIDTH + x;
    const float low = there ? L::value(static_cast<float>(from[0]), c) : 0.0f;
#if TW_PER_WORD == 2
    const float high =
        there && c + 1 < L::CHANNELS ? L::value(static_cast<float>(from[PLANE]), c + 1) : 0.0f;
    return pack(low, high);
#else
    return operand(low);
#endif
}

template <class T>
constexpr bool COMES_BY_ITSELF = false;
template <>
constexpr bool COMES_BY_ITSELF<word> = true;

// This thread's words of a round, of all its rows.
template <class L, class T>
__device__ __forceinline__ void take_round(
    word* to, const Corner<T> (&corners)[L::CORNERS], int round)
{
    constexpr int PIECES = L::ROUND_WORDS / L::PIECE, APART = L::THREADS / PIECES;
    const int piece = threadIdx.x % PIECES, row = threadIdx.x / PIECES;
    const int k = round * L::ROUND_WORDS + piece * L::PIECE;
    const int tap = k / L::WORDS, in_pixel = k % L::WORDS;
    const int ky = tap / L::TAPS_X * L::APART_Y, kx = tap % L::TAPS_X * L::APART_X;
    to += row * L::ROW + piece * L::PIECE;
    word words[L::CORNERS];
#pragma unroll
    for (int j = 0; j < L::CORNERS; ++j) {
        if (corners[j].y == NOWHERE)
            continue;  // nobody's: what is summed up there goes nowhere
        const int y = corners[j].y + ky, x = corners[j].x + kx;
        const bool there = k < L::SUM_WORDS && unsigned(y) < unsigned(L::HEIGHT)
            && unsigned(x) < unsigned(L::WIDTH);
        words[j] = take<L>(to + j * APART * L::ROW, corners[j], y, x, in_pixel, there);
    }
    // All are read before the first is put: their waits are one.
    if (!COMES_BY_ITSELF<T>)
#pragma unroll
        for (int j = 0; j < L::CORNERS; ++j)
            if (corners[j].y != NOWHERE)
                to[j * APART * L::ROW] = words[j];
}

// All products of rounds `begin` to `end`.
template <class L, class T>
__device__ __forceinline__ void add_rounds(
    float (&sum)[L::TILES][L::COLUMNS][4], word* ring, const T* images, const word* weights,
    int count, int begin, int end)
{
    constexpr int SIZE = L::ALL_ROWS * L::ROW + L::ROUND_WEIGHTS, AHEAD = L::STAGES - 1;
    constexpr int STEPS = L::CHUNK / TW_STEP, PIECES = L::ROUND_WORDS / L::PIECE;
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, warp = threadIdx.x / 32;
    const int across = warp % L::ACROSS, down = warp / L::ACROSS % L::DOWN;
    const int deep = warp / (L::ACROSS * L::DOWN);
    Corner<T> corners[L::CORNERS];
#pragma unroll
    for (int j = 0; j < L::CORNERS; ++j)
        corners[j] = corner_of<L>(
            images, threadIdx.x / PIECES + j * (L::THREADS / PIECES), count);
    // The first rounds only fetch.
#pragma unroll 1
    for (int round = begin - AHEAD; round < end; ++round) {
        if (round >= begin) {
            all_rounds_but<L::STAGES - 2>();
            __syncthreads();
        }
        const int ahead = round + AHEAD;
        if (ahead < end) {
            word* to = ring + (ahead - begin) % L::STAGES * SIZE;
            fetch<4 * L::ROUND_WEIGHTS, L::THREADS>(
                to + L::ALL_ROWS * L::ROW, weights + size_t(ahead) * L::ROUND_WEIGHTS, threadIdx.x);
            take_round<L>(to, corners, ahead);
        }
        round_ends();
        if (round < begin)
            continue;
        const word* at = ring + (round - begin) % L::STAGES * SIZE;
        const word* rows = at + (down * L::TILES * 16 + g) * L::ROW + deep * L::CHUNK
            + (TW_TENSOR ? t : 0);
        const word* from = at + L::ALL_ROWS * L::ROW + across * L::COLUMNS * 8 * TW_STEP
            + (TW_TENSOR ? 2 * lane : 4 * t);
#pragma unroll L::UNROLL
        for (int s = 0; s < STEPS; ++s) {
            Weights w[L::COLUMNS];
#pragma unroll
            for (int n = 0; n < L::COLUMNS; ++n)
                w[n] = read_weights<L, TW_STEP>(from, deep * STEPS + s, n);
#pragma unroll
            for (int m = 0; m < L::TILES; ++m) {
                const word* even = rows + m * 16 * L::ROW + s * TW_STEP;
                const Rows both = read_rows<L, TW_STEP>(even, even + 8 * L::ROW, 0);
#pragma unroll
                for (int n = 0; n < L::COLUMNS; ++n)
                    add_products<TW_STEP>(sum[m][n], both, w[n], false);
            }
        }
    }
    all_rounds_but<0>();
    __syncthreads();
}

template <class L>
__device__ __forceinline__ void add_to(float (&sum)[4], float4 more)
{
    sum[0] += more.x;
    sum[1] += more.y;
    sum[2] += more.z;
    sum[3] += more.w;
}

// Adds up what the warps of a block have of the same sums; the first of them then have them all.
template <class L>
__device__ __forceinline__ void add_deep(float (&sum)[L::TILES][L::COLUMNS][4], float4* held)
{
    constexpr int SHARED = L::ACROSS * L::DOWN, EACH = L::TILES * L::COLUMNS * 32;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    if (warp >= SHARED)
#pragma unroll
        for (int m = 0; m < L::TILES; ++m)
#pragma unroll
            for (int n = 0; n < L::COLUMNS; ++n)
                held[(warp - SHARED) * EACH + (m * L::COLUMNS + n) * 32 + lane] =
                    make_float4(sum[m][n][0], sum[m][n][1], sum[m][n][2], sum[m][n][3]);
    __syncthreads();
    if (warp < SHARED)
#pragma unroll
        for (int deep = 0; deep < L::DEEP - 1; ++deep)
#pragma unroll
            for (int m = 0; m < L::TILES; ++m)
#pragma unroll
                for (int n = 0; n < L::COLUMNS; ++n)
                    add_to<L>(sum[m][n], held[(deep * SHARED + warp) * EACH
                                              + (m * L::COLUMNS + n) * 32 + lane]);
}

// Adds up what several blocks have of the same sums. True for the one that has them all: there each
// of the warps that share a sum adds some of the parts. Rows of no image are left out.
template <class L>
__device__ __forceinline__ bool add_parts(
    float (&sum)[L::TILES][L::COLUMNS][4], float4* held, float4* parts, int* arrived, int count)
{
    constexpr int SHARED = L::ACROSS * L::DOWN, WARP = L::TILES * L::COLUMNS * 32;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, tile = warp % SHARED;
    const int block = blockIdx.y * gridDim.x + blockIdx.x;
    float4* all = parts + size_t(block) * gridDim.z * SHARED * WARP + tile * WARP + lane;
    bool there[L::TILES];
#pragma unroll
    for (int m = 0; m < L::TILES; ++m)
        there[m] = first_result<L>()
            + result_of<L>((tile / L::ACROSS * L::TILES + m) * 16 + lane / 4)
            < count * L::RESULT_Y * L::RESULT_X;
    if (warp < SHARED)
#pragma unroll
        for (int m = 0; m < L::TILES; ++m)
#pragma unroll
            for (int n = 0; n < L::COLUMNS; ++n)
                if (there[m])
                    all[size_t(blockIdx.z) * SHARED * WARP + (m * L::COLUMNS + n) * 32] =
                        make_float4(sum[m][n][0], sum[m][n][1], sum[m][n][2], sum[m][n][3]);
    __shared__ int before;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        before = atomicAdd(arrived + block, 1);
    __syncthreads();
    if (before != gridDim.z - 1)
        return false;
    if (threadIdx.x == 0)
        arrived[block] = 0;  // for the next launch
    __threadfence();
#pragma unroll
    for (int m = 0; m < L::TILES; ++m)
#pragma unroll
        for (int n = 0; n < L::COLUMNS; ++n)
            sum[m][n][0] = sum[m][n][1] = sum[m][n][2] = sum[m][n][3] = 0.0f;
#pragma unroll L::PARTS_AT_ONCE
    for (int part = warp / SHARED; part < gridDim.z; part += L::DEEP)
#pragma unroll
        for (int m = 0; m < L::TILES; ++m)
#pragma unroll
            for (int n = 0; n < L::COLUMNS; ++n)
                if (there[m])
                    add_to<L>(sum[m][n], __ldcg(all + size_t(part) * SHARED * WARP
                                                + (m * L::COLUMNS + n) * 32));
    if (L::DEEP > 1)
        add_deep<L>(sum, held);
    return true;
}

// Bias, activation, pooling, and the write of results, two channels at a time; results are counted
// from `first`.
template <class L>
__device__ __forceinline__ void put_sums(
    const float (&sum)[L::TILES][L::COLUMNS][4], const float* bias, word* out, const word* added,
    int first, int count)
{
    constexpr int EACH = L::RESULT_Y * L::RESULT_X, HEIGHT = L::POOL ? 2 : 1;
    constexpr int POSITIONS = L::POOL ? 1 : 2;
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, warp = threadIdx.x / 32;
    const int across = warp % L::ACROSS, down = warp / L::ACROSS;
    if (down >= L::DOWN)
        return;
    const int channels = (blockIdx.y * L::ACROSS + across) * L::COLUMNS * 8 + 2 * t;
#pragma unroll
    for (int m = 0; m < L::TILES; m += HEIGHT)
#pragma unroll
        for (int position = 0; position < POSITIONS; ++position) {
            const int result =
                first + result_of<L>((down * L::TILES + m) * 16 + 8 * position + g);
            const int image = result / EACH;
            if (image >= count)
                continue;
            word* to = out + size_t(image) * L::RESULT_WORDS;
#pragma unroll
            for (int n = 0; n < L::COLUMNS; ++n) {
                const int channel = channels + n * 8;
                const float2 start = __ldg(reinterpret_cast<const float2*>(bias + channel));
                float low, high;
                if (L::POOL) {
                    const float(&top)[4] = sum[m][n];
                    const float(&bottom)[4] = sum[(m + 1) % L::TILES][n];
                    low = pooled<L>(top[0] + start.x, top[2] + start.x, bottom[0] + start.x,
                                    bottom[2] + start.x);
                    high = pooled<L>(top[1] + start.y, top[3] + start.y, bottom[1] + start.y,
                                     bottom[3] + start.y);
                } else {
                    low = sum[m][n][2 * position] + start.x;
                    high = sum[m][n][2 * position + 1] + start.y;
                    if (L::ADDED) {
                        const float2 both =
                            more<L>(added + size_t(result) * L::ADDED_WORDS, 0, channel, false);
                        low = L::before(low) + both.x;
                        high = L::before(high) + both.y;
                    }
                    low = L::after(low);
                    high = L::after(high);
                }
                put<L>(to, result % EACH * L::OUT_PIXEL, channel, low, high);
            }
        }
}

// Rows of scores in shared memory into probabilities, a warp a row.
template <class L>
__device__ __forceinline__ void put_probabilities(const float* scores, float* out, int count)
{
    const int first = blockIdx.x * L::ALL_ROWS;
    for (int row = threadIdx.x / 32; row < L::ALL_ROWS && first + row < count;
         row += L::THREADS / 32)
        softmax<L::FILTERS>(scores + row * L::FILTERS, out + size_t(first + row) * L::FILTERS);
}
