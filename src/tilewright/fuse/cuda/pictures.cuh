// Pictures in shared memory, and layers over them that are no sums. Needs sums.cuh.

// The values of a pixel into its row.
template <class L>
__device__ __forceinline__ void put_pixel(const float (&value)[L::CHANNELS], word* row, int x)
{
    if (L::TIGHT) {
        // Pixels follow each other without a gap, in halves; a second copy, one half earlier, has
        // those that begin at an odd half on whole words.
        unsigned short* halves = reinterpret_cast<unsigned short*>(row);
        const int place = (x + L::LEFT) * L::CHANNELS;
#pragma unroll
        for (int c = 0; c < L::CHANNELS; ++c) {
            const unsigned short half = pack(value[c], 0.0f) & 0xffff;
            halves[place + c] = half;
            if (place + c > 0)
                halves[2 * L::COPY + place + c - 1] = half;
        }
        return;
    }
    word* to = row + (x + L::LEFT) * L::PITCH;
#pragma unroll
    for (int c = 0; c < L::CHANNELS; c += L::FLOATS ? 1 : TW_PER_WORD) {
        const float high = c + 1 < L::CHANNELS ? value[(c + 1) % L::CHANNELS] : 0.0f;
        if (L::FLOATS)
            to[c] = __float_as_uint(value[c]);
        else if (TW_PER_WORD == 2)
            to[c / 2] = pack(value[c], high);
        else
            to[c] = L::ROUND ? operand(value[c]) : __float_as_uint(value[c]);
    }
}

// Pixels, or values of a picture in device memory, into a picture in shared memory: HEIGHT rows
// that begin at row `first` of the source; rows outside it are zero.
template <class L, class T>
__device__ __forceinline__ void fill(const T* from, word* tile, int first, int thread)
{
    for (int i = thread; i < L::HEIGHT * L::WIDTH; i += L::THREADS) {
        const int y = i / L::WIDTH, x = i % L::WIDTH;
        const int source = first + y;
        const bool inside = L::WHOLE || (source >= 0 && source < L::SOURCE_HEIGHT);
        const T* pixel = from + source * L::WIDTH + x;
        if (L::TIGHT) {
            float value[L::CHANNELS];
#pragma unroll
            for (int c = 0; c < L::CHANNELS; ++c)
                value[c] = inside ? L::value(pixel[c * L::SOURCE_HEIGHT * L::WIDTH], c) : 0.0f;
            put_pixel<L>(value, tile + y * L::ROW, x);
        } else {
            word* to = tile + y * L::ROW + (x + L::LEFT) * L::PITCH;
#pragma unroll 4
            for (int c = 0; c < L::CHANNELS; c += L::FLOATS ? 1 : TW_PER_WORD) {
                const float low =
                    inside ? L::value(pixel[c * L::SOURCE_HEIGHT * L::WIDTH], c) : 0.0f;
                if (L::FLOATS) {
                    to[c] = __float_as_uint(low);
                    continue;
                }
#if TW_PER_WORD == 2
                const float high = inside && c + 1 < L::CHANNELS
                    ? L::value(pixel[(c + 1) * L::SOURCE_HEIGHT * L::WIDTH], c + 1) : 0.0f;
                to[c / 2] = pack(low, high);
#else
                to[c] = L::ROUND ? operand(low) : __float_as_uint(low);
#endif
            }
        }
    }
}

// The same of few channels from device memory: a thread reads several pixels before it writes the
// first, as otherwise it would wait for each.
template <class L, class T>
__device__ __forceinline__ void fill_from_afar(const T* from, word* tile, int first, int thread)
{
    constexpr int PIXELS = L::HEIGHT * L::WIDTH, AT_ONCE = 8;
    for (int begin = thread; begin < PIXELS; begin += AT_ONCE * L::THREADS) {
        float value[AT_ONCE][L::CHANNELS];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            const int i = begin + k * L::THREADS, source = first + i / L::WIDTH;
            const bool inside = i < PIXELS
                && (L::WHOLE || (source >= 0 && source < L::SOURCE_HEIGHT));
            const T* pixel = from + source * L::WIDTH + i % L::WIDTH;
#pragma unroll
            for (int c = 0; c < L::CHANNELS; ++c)
                value[k][c] = inside ? L::value(pixel[c * L::SOURCE_HEIGHT * L::WIDTH], c) : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            const int i = begin + k * L::THREADS;
            if (i < PIXELS)
                put_pixel<L>(value[k], tile + i / L::WIDTH * L::ROW, i % L::WIDTH);
        }
    }
}

// The same for the bytes of a tight picture of three channels, four pixels at a time: twelve halves,
// six words of the first copy; those of the second straddle them.
template <class L>
__device__ __forceinline__ void fill_threes(const unsigned char* from, word* tile, int thread)
{
    constexpr int FOURS = L::WIDTH / 4, PLANE = L::HEIGHT * L::WIDTH;
    constexpr int PLACE = L::LEFT * 3, ODD = PLACE & 1;
    for (int i = thread; i < L::HEIGHT * FOURS; i += L::THREADS) {
        const int y = i / FOURS, x = i % FOURS * 4;
        const unsigned char* pixel = from + y * L::WIDTH + x;
        word bytes[3];
#pragma unroll
        for (int c = 0; c < 3; ++c)
            bytes[c] = *reinterpret_cast<const word*>(pixel + c * PLANE);
        float value[12];
#pragma unroll
        for (int k = 0; k < 12; ++k)
            value[k] = L::value(static_cast<float>(bytes[k % 3] >> (k / 3 * 8) & 0xff), k % 3);
        word pair[6];
#pragma unroll
        for (int k = 0; k < 6; ++k)
            pair[k] = pack(value[2 * k], value[2 * k + 1]);
        // One copy has the twelve halves on whole words, the other begins in the middle of one: a
        // word there is the second half of one pair and the first half of the next.
        word* whole = tile + y * L::ROW + ODD * L::COPY + (PLACE - ODD + 3 * x) / 2;
        word* split = tile + y * L::ROW + (1 - ODD) * L::COPY + (PLACE + ODD + 3 * x) / 2 - 1;
        unsigned short* halves = reinterpret_cast<unsigned short*>(split);
        if (PLACE + x > 0)
            halves[1] = pair[0] & 0xffff;
#pragma unroll
        for (int k = 0; k < 6; ++k)
            whole[k] = pair[k];
#pragma unroll
        for (int k = 0; k < 5; ++k)
            split[k + 1] = __byte_perm(pair[k], pair[k + 1], 0x5432);
        halves[12] = pair[5] >> 16;
    }
}

// Four neighbouring pixels as one of four times as many channels. What was fetched is read two
// bytes at a time.
template <class L, bool FETCHED, class T>
__device__ __forceinline__ void fill_fours(const T* from, word* tile, int thread)
{
    constexpr int CHANNELS = L::CHANNELS / 4, WIDTH = 2 * L::WIDTH, PLANE = 2 * L::HEIGHT * WIDTH;
    for (int i = thread; i < L::HEIGHT * L::WIDTH; i += L::THREADS) {
        const int y = i / L::WIDTH, x = i % L::WIDTH;
        float value[L::CHANNELS];
#pragma unroll
        for (int k = 0; k < 2 * CHANNELS; ++k) {
            const int down = k / CHANNELS, c = k % CHANNELS;
            const T* pixel = from + c * PLANE + (2 * y + down) * WIDTH + 2 * x;
            float left, right;
            if constexpr (FETCHED) {
                const uchar2 two = *reinterpret_cast<const uchar2*>(pixel);
                left = two.x, right = two.y;
            } else {
                left = pixel[0], right = pixel[1];
            }
            value[2 * down * CHANNELS + c] = L::value(left, c);
            value[(2 * down + 1) * CHANNELS + c] = L::value(right, c);
        }
        word* to = tile + y * L::ROW + (x + L::LEFT) * L::PITCH;
#pragma unroll
        for (int k = 0; k < L::WORDS; ++k) {
#if TW_PER_WORD == 2
            to[k] = pack(value[2 * k], value[2 * k + 1]);
#else
            to[k] = operand(value[k]);
#endif
        }
    }
}

// EACH words that lie on such a boundary.
template <int EACH>
struct AtOnce;
template <>
struct AtOnce<1> {
    using Type = word;
};
template <>
struct AtOnce<2> {
    using Type = uint2;
};
template <>
struct AtOnce<4> {
    using Type = uint4;
};

// Words of a picture that another kernel left in device memory. A lane reads several before it
// writes the first.
template <class L>
__device__ __forceinline__ void fill_words(const word* from, word* tile, int first, int thread)
{
    using Words = typename AtOnce<L::EACH>::Type;
    constexpr int PIXEL = L::WORDS / L::EACH, LINE = L::WIDTH * PIXEL;
    const Words* source = reinterpret_cast<const Words*>(from);
#pragma unroll 16
    for (int i = thread; i < L::HEIGHT * LINE; i += L::THREADS) {
        const int y = i / LINE, rest = i % LINE;
        const bool inside = L::WHOLE || (first + y >= 0 && first + y < L::SOURCE_HEIGHT);
        const int at = (first + y) * LINE + rest;
        word* to = tile + y * L::ROW + (L::LEFT + rest / PIXEL) * L::PITCH + rest % PIXEL * L::EACH;
        *reinterpret_cast<Words*>(to) = inside ? __ldg(source + at) : Words{};
    }
}

// Zeros around a picture: rows above and below, columns left and right; and where steps read words
// that are no pixel's, GAP of them after each pixel and AFTER the last row: weights there are zero,
// but zero times NaN is NaN. All as far as other pictures were written there, that is in the first
// DIRTY words. `Unit` is what a border may begin in the middle of a word with: a half, in tight
// pictures.
template <class L, class Unit>
__device__ __forceinline__ void border(word* tile, int thread)
{
    constexpr int UNITS = sizeof(word) / sizeof(Unit), ROW = L::ROW * UNITS;
#pragma unroll
    for (int copy = 0; copy < (L::COPY ? 2 : 1); ++copy) {
        Unit* at = reinterpret_cast<Unit*>(tile + copy * L::COPY);
        const int dirty = (L::DIRTY - copy * L::COPY) * UNITS;
        const int left = L::LEFT > copy ? L::LEFT - copy : 0, right = L::RIGHT - copy;
        const int below = (L::TOP + L::HEIGHT) * ROW;
        for (int i = thread; i < min(L::TOP * ROW, dirty); i += L::THREADS)
            at[i] = 0;
        for (int i = below + thread; i < min(below + L::TOP * ROW, dirty); i += L::THREADS)
            at[i] = 0;
        const int sides = left + ROW - right, rows = min(L::HEIGHT, dirty / ROW + 1 - L::TOP);
        for (int i = thread; i < rows * sides; i += L::THREADS) {
            const int y = i / sides, k = i % sides;
            at[(L::TOP + y) * ROW + (k < left ? k : right - left + k)] = 0;
        }
        if constexpr (L::GAP > 0)
            for (int i = thread; i < rows * L::WIDTH * L::GAP; i += L::THREADS) {
                const int y = i / (L::WIDTH * L::GAP), x = i / L::GAP % L::WIDTH;
                at[(L::TOP + y) * ROW + L::LEFT + x * L::PITCH + L::WORDS + i % L::GAP] = 0;
            }
        if constexpr (L::AFTER > 0) {
            const int end = below + L::TOP * ROW;
            for (int i = end + thread; i < min(end + L::AFTER * UNITS, dirty); i += L::THREADS)
                at[i] = 0;
        }
    }
}

// Rows of a strip's picture that are above or below the whole one: what a layer computed there is
// not part of it.
template <class L>
__device__ __forceinline__ void blank(word* tile, int first, int thread)
{
    for (int i = thread; i < L::HEIGHT * L::ROW; i += L::THREADS) {
        const int source = first + i / L::ROW;
        if (source < 0 || source >= L::SOURCE_HEIGHT)
            tile[i] = 0;
    }
}

template <class L>
__device__ __forceinline__ float2 get(const word* tile, int y, int x, int channel)
{
    const word* pixel = tile + y * L::ROW + x * L::PITCH;
#if TW_PER_WORD == 2
    if (!L::FLOATS)
        return unpack(pixel[channel / 2]);
#endif
    return make_float2(__uint_as_float(pixel[channel]),
                       channel + 1 < L::FILTERS ? __uint_as_float(pixel[channel + 1]) : 0.0f);
}

// Two channels of one more pixel of a pooling's window.
template <class L>
__device__ __forceinline__ void take_in(float2& found, float2 next)
{
    if (L::AVERAGE) {
        found.x += next.x;
        found.y += next.y;
    } else {
        found.x = maximum(found.x, next.x);
        found.y = maximum(found.y, next.y);
    }
}

// Pooling of any window, or none, and activations: two channels of an output at a time.
template <class L, class Out>
__device__ __forceinline__ void each(const word* in, Out out, int thread)
{
    constexpr unsigned PAIRS = (L::FILTERS + 1) / 2;
    for (unsigned i = thread; i < L::OUT_Y * L::OUT_X * PAIRS; i += L::THREADS) {
        const int channel = i % PAIRS * 2, x = i / PAIRS % L::OUT_X, y = i / PAIRS / L::OUT_X;
        float2 found = get<L>(in, y * L::STRIDE_Y, x * L::STRIDE_X, channel);
        for (int k = 1; k < L::TAPS_Y * L::TAPS_X; ++k) {
            const float2 next = get<L>(in, y * L::STRIDE_Y + k / L::TAPS_X,
                                       x * L::STRIDE_X + k % L::TAPS_X, channel);
            take_in<L>(found, next);
        }
        if (L::AVERAGE) {
            found.x /= L::TAPS_Y * L::TAPS_X;
            found.y /= L::TAPS_Y * L::TAPS_X;
        }
        put<L>(out, L::ORIGIN + y * L::OUT_ROW + x * L::OUT_PIXEL, channel, L::after(found.x),
               L::after(found.y));
    }
}
