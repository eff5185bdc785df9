// Fully connected layers over the batch, a kernel each. Needs stack.cuh.
//
// Features and weights lie in panels of 64 rows (images, or outputs of the layer). Along a row they
// are cut into pieces of 16 bytes, 8 of them a chunk; in a chunk, 8 rows of a piece follow each
// other, then its other pieces, then the next 8 rows:
//
//     panel of 64 rows ── chunks ── 8 groups of 8 rows ── 8 pieces ── 8 rows ── 16 bytes
//
// So a chunk of a panel is 8192 bytes that come in one copy, as the tensor cores want them; and 8
// lanes that read a piece of 8 rows read 128 bytes in a row.

#define TW_PANEL 64
#define TW_CHUNK 8
#define TW_CHUNK_WORDS 2048
#define TW_VALUES (4 * TW_PER_WORD)  // of a piece

// The word where a row's piece begins, of rows of so many pieces.
template <int PIECES>
__device__ __forceinline__ size_t piece_at(int row, int piece)
{
    return size_t(row / TW_PANEL) * (PIECES * TW_PANEL * 4) + piece / TW_CHUNK * TW_CHUNK_WORDS
        + row % TW_PANEL / 8 * 256 + piece % TW_CHUNK * 32 + row % 8 * 4;
}

// ---- where features come from ------------------------------------------------------------------

// Values as a piece has them.
__device__ __forceinline__ uint4 piece_of(const float (&x)[TW_VALUES])
{
#if TW_PER_WORD == 2
    return make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
#else
    return make_uint4(operand(x[0]), operand(x[1]), operand(x[2]), operand(x[3]));
#endif
}

// From panels.
template <class L>
__device__ __forceinline__ uint4 piece_from(const uint4* from, int row, int piece)
{
    return __ldg(from + piece_at<L::PIECES>(row, piece) / 4);
}

// From rows of words, whose ends are zero.
template <class L>
__device__ __forceinline__ uint4 piece_from(const word* from, int row, int piece)
{
    return __ldg(reinterpret_cast<const uint4*>(from + size_t(row) * (4 * L::PIECES)) + piece);
}

__device__ __forceinline__ void values_from(float (&x)[TW_VALUES], const unsigned char* from)
{
#pragma unroll
    for (int i = 0; i < TW_VALUES; i += 4) {
        const uchar4 four = *reinterpret_cast<const uchar4*>(from + i);
        x[i] = four.x;
        x[i + 1] = four.y;
        x[i + 2] = four.z;
        x[i + 3] = four.w;
    }
}

__device__ __forceinline__ void values_from(float (&x)[TW_VALUES], const float* from)
{
#pragma unroll
    for (int i = 0; i < TW_VALUES; i += 4)
        *reinterpret_cast<float4*>(x + i) = *reinterpret_cast<const float4*>(from + i);
}

// From images in the order of their values; behind the last there are zeros.
template <class L, class T>
__device__ __forceinline__ uint4 piece_from(const T* from, int row, int piece)
{
    const int first = piece * TW_VALUES;
    const T* image = from + size_t(row) * L::FEATURES + first;
    float x[TW_VALUES] = {};
    if (L::FEATURES % TW_VALUES == 0) {
        if (first < L::FEATURES)
            values_from(x, image);
    } else {
#pragma unroll
        for (int i = 0; i < TW_VALUES; ++i)
            if (first + i < L::FEATURES)
                x[i] = image[i];
    }
#pragma unroll
    for (int i = 0; i < TW_VALUES; ++i)
        x[i] = first + i < L::FEATURES ? L::value(x[i], (first + i) / L::PLANE) : 0.0f;
    return piece_of(x);
}

// All features into panels: lane 4g+t takes row g of 8, and the t-th of four pieces; a warp takes 16.
template <class L, class T>
__device__ __forceinline__ void into_panels(const T* from, uint4* to, int count)
{
    constexpr int QUADS = L::PIECES / 4, UNITS = (QUADS + 3) / 4;
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int unit = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int row = unit / UNITS * 8 + g, first = unit % UNITS * 4;
    if (row >= count)
        return;
    uint4 piece[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (QUADS % 4 == 0 || first + i < QUADS)
            piece[i] = piece_from<L>(from, row, (first + i) * 4 + t);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (QUADS % 4 == 0 || first + i < QUADS)
            to[piece_at<L::PIECES>(row, (first + i) * 4 + t) / 4] = piece[i];
}

// ---- where sums go -----------------------------------------------------------------------------

// Two neighbouring outputs of an image, with bias and activation; columns behind the last are zero.
template <class L>
__device__ __forceinline__ void put_two(
    word* out, const float* bias, int row, int column, float low, float high)
{
    low = L::after(low + __ldg(bias + column));
    high = L::after(high + __ldg(bias + column + 1));
    if (L::TO_PANELS) {
        if (column >= L::FILTERS)
            low = 0.0f;
        if (column + 1 >= L::FILTERS)
            high = 0.0f;
        word* to = out + piece_at<L::OUT_PIECES>(row, column / TW_VALUES);
#if TW_PER_WORD == 2
        to[column % TW_VALUES / 2] = pack(low, high);
#else
        *reinterpret_cast<uint2*>(to + column % TW_VALUES) =
            make_uint2(operand(low), operand(high));
#endif
        return;
    }
    float* floats = reinterpret_cast<float*>(out) + size_t(row) * L::FILTERS + column;
    if (L::FILTERS % 2 == 0 && column < L::FILTERS) {
        *reinterpret_cast<float2*>(floats) = make_float2(low, high);
    } else {
        if (column < L::FILTERS)
            floats[0] = low;
        if (column + 1 < L::FILTERS)
            floats[1] = high;
    }
}

// One output.
template <class L>
__device__ __forceinline__ void put_one(
    word* out, const float* bias, int row, int column, float value)
{
    float* floats = reinterpret_cast<float*>(out);
    value = L::after(value + __ldg(bias + column));
    if (L::TO_PANELS)
        floats[piece_at<L::OUT_PIECES>(row, column / TW_VALUES) + column % TW_VALUES] =
            column < L::FILTERS ? value : 0.0f;
    else if (column < L::FILTERS)
        floats[size_t(row) * L::FILTERS + column] = value;
}

// ---- few images --------------------------------------------------------------------------------
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

// ---- many images -------------------------------------------------------------------------------
//
// A block takes PANELS panels of images and WIDE outputs, four warps a panel. A chunk of a panel is
// one copy into a ring in shared memory, a chunk of all panels a turn; one thread begins the copies
// up to STAGES turns ahead, of a warp of its own if FETCHES. Where SPLITS is more than one, as many times four warps take turns in turn;
// where PARTS is, as many blocks, a cluster, take a part of all turns each. Their sums are added at
// the end, always in the same order.

#define TW_CHUNK_BYTES (4 * TW_CHUNK_WORDS)

__device__ __forceinline__ word shared_address(const void* at)
{
    return word(__cvta_generic_to_shared(at));
}

__device__ __forceinline__ void begin_barrier(word barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void arrive(word barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void expect(word barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait_for(word barrier, int phase)
{
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(barrier), "r"(phase) : "memory");
}

__device__ __forceinline__ void copy_chunk(word to, const word* from, word barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(to), "l"(from), "n"(TW_CHUNK_BYTES), "r"(barrier) : "memory");
}

__device__ __forceinline__ void meet_in_cluster()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

template <class L>
__device__ __forceinline__ int own_panel()
{
    return threadIdx.x / 128 % L::PANELS;
}

template <class L>
__device__ __forceinline__ int own_split()
{
    return threadIdx.x / (128 * L::PANELS);
}

// A block's ring, and what comes through it.
template <class L>
struct Ring {
    static constexpr int STEP = L::PIECES * TW_PANEL * 4;  // words of a panel
    static constexpr int STAGE = (L::PANELS + L::WIDE / TW_PANEL) * TW_CHUNK_BYTES;
    word at, full, empty;
    const word* features;
    const word* weights;
    int rows, columns, turns;

    __device__ __forceinline__ void begin(
        const uint4* memory, const void* barriers, const uint4* given, const word* parameters,
        int panel, int panels, int outputs)
    {
        at = shared_address(memory);
        full = shared_address(barriers);
        empty = full + 8 * L::STAGES;
        const int first = blockIdx.z * L::CHUNKS / L::PARTS;
        turns = (blockIdx.z + 1) * L::CHUNKS / L::PARTS - first;
        rows = min(L::PANELS, panels - panel);
        columns = min(L::WIDE, L::OUTPUTS - outputs) / TW_PANEL;
        features = reinterpret_cast<const word*>(given) + size_t(panel) * STEP
            + first * TW_CHUNK_WORDS;
        weights = parameters + size_t(outputs / TW_PANEL) * STEP + first * TW_CHUNK_WORDS;
        if (threadIdx.x == 0) {
            for (int stage = 0; stage < L::STAGES; ++stage) {
                begin_barrier(full + 8 * stage, 1);
                begin_barrier(empty + 8 * stage, 4 * L::PANELS);  // warps
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
        if (!L::FETCHES && leads())
            for (int turn = own_split<L>(); turn < min(L::STAGES, turns); turn += L::SPLITS)
                fetch(turn);
        __syncwarp();
    }

    // What a warp does that only fetches; true for that warp.
    __device__ __forceinline__ bool fetched_all() const
    {
        if (!L::FETCHES || threadIdx.x < 128 * L::PANELS)
            return false;
        if (threadIdx.x == 128 * L::PANELS)
            for (int turn = 0; turn < turns; ++turn) {
                if (turn >= L::STAGES)
                    wait_for(empty + 8 * (turn % L::STAGES), (turn / L::STAGES - 1) & 1);
                fetch(turn);
            }
        return true;
    }

    // The thread that begins copies, of those that take turns together.
    __device__ __forceinline__ bool leads() const { return threadIdx.x % (128 * L::PANELS) == 0; }

    __device__ __forceinline__ void fetch(int turn) const
    {
        const int stage = turn % L::STAGES;
        const word to = at + stage * STAGE, barrier = full + 8 * stage;
        expect(barrier, (rows + columns) * TW_CHUNK_BYTES);
        for (int i = 0; i < rows; ++i)
            copy_chunk(to + i * TW_CHUNK_BYTES,
                       features + size_t(i) * STEP + turn * TW_CHUNK_WORDS, barrier);
        for (int i = 0; i < columns; ++i)
            copy_chunk(to + (L::PANELS + i) * TW_CHUNK_BYTES,
                       weights + size_t(i) * STEP + turn * TW_CHUNK_WORDS, barrier);
    }

    __device__ __forceinline__ word arrived(int turn) const
    {
        wait_for(full + 8 * (turn % L::STAGES), turn / L::STAGES & 1);
        return at + turn % L::STAGES * STAGE;
    }

    // This warp is done with a turn; when all are, its place is used again.
    __device__ __forceinline__ void give_back(int turn) const
    {
        const word barrier = empty + 8 * (turn % L::STAGES);
        if (turn + L::STAGES < turns) {
            if ((threadIdx.x & 31) == 0)
                arrive(barrier);
            if (!L::FETCHES && leads()) {
                wait_for(barrier, turn / L::STAGES & 1);
                fetch(turn + L::STAGES);
            }
            __syncwarp();
        }
    }
};

// Sums of those that took turns, added up by the first of them; the ring's memory is free then.
template <class L, int COUNT>
__device__ __forceinline__ void add_splits(float (&sum)[COUNT], float* memory)
{
    constexpr int EACH = 128 * L::PANELS;
    const int own = threadIdx.x % EACH, split = own_split<L>();
    if (L::SPLITS == 1)
        return;
    __syncthreads();
    if (split > 0)
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            memory[((split - 1) * COUNT + i) * EACH + own] = sum[i];
    __syncthreads();
    if (split == 0)
#pragma unroll
        for (int other = 0; other < L::SPLITS - 1; ++other)
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                sum[i] += memory[(other * COUNT + i) * EACH + own];
}

// What blocks of a cluster have of the same sums: each adds up its share of them.
template <class L, int COUNT>
__device__ __forceinline__ void add_parts(float (&sum)[COUNT], float* memory)
{
    constexpr int EACH = 128 * L::PANELS, SHARE = COUNT / L::PARTS;
    const int own = threadIdx.x % EACH;
    if (L::PARTS == 1)
        return;
    __syncthreads();
    if (own_split<L>() == 0)
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            memory[i * EACH + own] = sum[i];
    __syncwarp();
    meet_in_cluster();
    if (own_split<L>() == 0) {
        const word mine = shared_address(memory + blockIdx.z * SHARE * EACH + own);
#pragma unroll
        for (int i = 0; i < SHARE; ++i)
            sum[i] = 0.0f;
#pragma unroll
        for (int part = 0; part < L::PARTS; ++part) {
            word there;
            asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                         : "=r"(there) : "r"(mine), "r"(part));
#pragma unroll
            for (int i = 0; i < SHARE; ++i) {
                float next;
                asm volatile("ld.shared::cluster.f32 %0, [%1];"
                             : "=f"(next) : "r"(there + 4 * i * EACH) : "memory");
                sum[i] += next;
            }
        }
    }
    // Nobody leaves while others read its sums.
    __syncwarp();
    meet_in_cluster();
}

#if TW_TENSOR

// What the tensor cores are told of operands in shared memory: pieces are 128 bytes apart, groups of
// 8 rows 1024.
__device__ __forceinline__ unsigned long long described(word at)
{
    return ((at & 0x3ffff) >> 4) | (128ull >> 4) << 16 | (1024ull >> 4) << 32;
}

// Sums begin with the bias. Lane 4g+t has rows g and g+8, columns 2t and 2t+1, as in `multiply`.
template <class L>
__device__ __forceinline__ void begin_panels(
    float (&sum)[L::WIDE / 2], const float* bias, int outputs)
{
    const int t = threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < L::WIDE / 8; ++n) {
        const int column = outputs + n * 8 + 2 * t;
        float2 two = make_float2(0.0f, 0.0f);
        if (own_split<L>() == 0 && blockIdx.z == 0 && column < L::OUTPUTS)
            two = __ldg(reinterpret_cast<const float2*>(bias + column));
        sum[4 * n] = sum[4 * n + 2] = two.x;
        sum[4 * n + 1] = sum[4 * n + 3] = two.y;
    }
}

template <class L>
__device__ __forceinline__ void multiply_panels(
    float (&sum)[L::WIDE / 2], const Ring<L>& ring, uint4* memory)
{
    const word own = own_panel<L>() * TW_CHUNK_BYTES;
#pragma unroll 1
    for (int turn = own_split<L>(); turn < ring.turns; turn += L::SPLITS) {
        const word at = ring.arrived(turn);
        const unsigned long long rows = described(at + own);
        const unsigned long long columns = described(at + L::PANELS * TW_CHUNK_BYTES);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int i = 0; i < TW_CHUNK / 2; ++i)
            multiply_wide(sum, rows + (i * 256 >> 4), columns + (i * 256 >> 4));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        // The turn before is done.
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (turn >= L::SPLITS)
            ring.give_back(turn - L::SPLITS);
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    add_splits<L>(sum, reinterpret_cast<float*>(memory));
    add_parts<L>(sum, reinterpret_cast<float*>(memory));
}

template <class L>
__device__ __forceinline__ void put_panels(
    const float (&sum)[L::WIDE / 2], word* results, const float*, int first, int outputs, int count)
{
    constexpr int SHARE = L::WIDE / 8 / L::PARTS;  // columns of 8
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int begin = blockIdx.z * SHARE;
    if (own_split<L>() > 0)
        return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first + threadIdx.x / 32 * 16 + half * 8 + g;
        if (row >= count)
            continue;
        // Columns that are 8 apart lie at distances that the compiler knows, of a whole tile.
        word* panel = results + piece_at<L::OUT_PIECES>(row, outputs / TW_VALUES)
            + (TW_PER_WORD == 2 ? t : t / 2 * 32 + t % 2 * 2);
        float* floats = reinterpret_cast<float*>(results) + size_t(row) * L::FILTERS + outputs
            + 2 * t;
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int n = L::PARTS == 1 ? i : begin + i, column = outputs + n * 8 + 2 * t;
            if (L::ROUNDED % L::WIDE && column >= L::ROUNDED)
                break;
            float low = L::after(sum[4 * i + 2 * half]), high = L::after(sum[4 * i + 2 * half + 1]);
            if (L::TO_PANELS) {
                if (L::FILTERS % 8 && column >= L::FILTERS)
                    low = 0.0f;
                if (L::FILTERS % 8 && column + 1 >= L::FILTERS)
                    high = 0.0f;
                constexpr int EACH = 8 / TW_VALUES;  // pieces
                word* to = panel + n * EACH / TW_CHUNK * TW_CHUNK_WORDS + n * EACH % TW_CHUNK * 32;
#if TW_PER_WORD == 2
                *to = pack(low, high);
#else
                *reinterpret_cast<uint2*>(to) = make_uint2(operand(low), operand(high));
#endif
            } else if (L::FILTERS % 2 == 0) {
                if (L::FILTERS % 8 == 0 || column < L::FILTERS)
                    *reinterpret_cast<float2*>(floats + n * 8) = make_float2(low, high);
            } else {
                if (column < L::FILTERS)
                    floats[n * 8] = low;
                if (column + 1 < L::FILTERS)
                    floats[n * 8 + 1] = high;
            }
        }
    }
}

#else

// A thread has 8 rows, every eighth of a panel, and every sixteenth output of WIDE: those that 8
// lanes read at once follow each other.
template <class L>
__device__ __forceinline__ void begin_panels(float (&sum)[L::WIDE / 2], const float*, int)
{
#pragma unroll
    for (int i = 0; i < L::WIDE / 2; ++i)
        sum[i] = 0.0f;
}

template <class L>
__device__ __forceinline__ void multiply_panels(
    float (&sum)[L::WIDE / 2], const Ring<L>& ring, uint4* memory)
{
    constexpr int SIZE = TW_CHUNK_WORDS / 4, COLUMNS = L::WIDE / 16;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % 4;
    const int y = warp / 2 * 4 + lane / 8, x = warp % 2 * 64 + lane % 8;
#pragma unroll 1
    for (int turn = own_split<L>(); turn < ring.turns; turn += L::SPLITS) {
        const word from = ring.arrived(turn);
        const float4* at = reinterpret_cast<const float4*>(memory) + (from - ring.at) / 16;
        const float4* rows = at + own_panel<L>() * SIZE + y;
        const float4* columns = at + L::PANELS * SIZE + x;
#pragma unroll 1
        for (int piece = 0; piece < TW_CHUNK; ++piece) {
            float4 a[8];
#pragma unroll
            for (int i = 0; i < 8; ++i)
                a[i] = rows[i * 64 + piece * 8];
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                const float4 b = columns[j * 128 + piece * 8];
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    float& to = sum[i * COLUMNS + j];
                    to = fmaf(a[i].x, b.x, to);
                    to = fmaf(a[i].y, b.y, to);
                    to = fmaf(a[i].z, b.z, to);
                    to = fmaf(a[i].w, b.w, to);
                }
            }
        }
        __syncwarp();
        ring.give_back(turn);
    }
    add_splits<L>(sum, reinterpret_cast<float*>(memory));
    add_parts<L>(sum, reinterpret_cast<float*>(memory));
}

template <class L>
__device__ __forceinline__ void put_panels(
    const float (&sum)[L::WIDE / 2], word* results, const float* bias, int first, int outputs,
    int count)
{
    constexpr int COLUMNS = L::WIDE / 16, SHARE = 8 / L::PARTS;  // rows
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % 4;
    const int y = warp / 2 * 4 + lane / 8, x = warp % 2 * 8 + lane % 8;
    if (own_split<L>() > 0)
        return;
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {
        const int column = outputs + j * 16 + x;
        if (column >= L::ROUNDED)
            break;
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int row = first + own_panel<L>() * TW_PANEL + (blockIdx.z * SHARE + i) * 8 + y;
            if (row < count)
                put_one<L>(results, bias, row, column, sum[i * COLUMNS + j]);
        }
    }
}

#endif
