// Fully connected layers over the batch, a kernel each. Needs words.cuh.
//
// Features and weights lie in panels of 256 rows (images, or outputs of the layer). Along a row they
// are cut into pieces of 16 bytes, 8 of them a chunk; a chunk of all rows comes before the next
// chunk:
//
//     panel of 256 rows ── chunks ── 256 rows ── 8 pieces ── 16 bytes
//
// So a chunk of many rows comes in one copy. A row's pieces change places in a chunk, piece p and
// place p ^ row % 8, as the tensor cores want it: then a piece of 8 rows is in all 32 banks of shared
// memory, not in four of them. Who writes a row writes 128 bytes in a row.

#define TW_PANEL 256
#define TW_CHUNK 8
#define TW_CHUNK_WORDS (TW_PANEL * TW_CHUNK * 4)
#define TW_VALUES (4 * TW_PER_WORD)  // of a piece

// The word where a row's piece begins, of rows of so many pieces.
template <int PIECES>
__device__ __forceinline__ size_t piece_at(int row, int piece)
{
    return size_t(row / TW_PANEL) * (PIECES * TW_PANEL * 4) + piece / TW_CHUNK * TW_CHUNK_WORDS
        + row % TW_PANEL * 32 + (piece ^ row) % TW_CHUNK * 4;
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
