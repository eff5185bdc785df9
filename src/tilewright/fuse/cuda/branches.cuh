// Further building blocks, for networks that are more than chains of sums and pooling.

// One value of a picture in words, in shared memory or in device memory.
template <class L>
__device__ __forceinline__ float one(const word* picture, int channel, int y, int x)
{
    const word* pixel = picture + y * L::ROW + x * L::PITCH;
#if TW_PER_WORD == 2
    if (!L::FLOATS) {
        const float2 both = unpack(pixel[channel / 2]);
        return channel % 2 ? both.y : both.x;
    }
#endif
    return __uint_as_float(pixel[channel]);
}

// The same of values in device memory, channel by channel.
template <class L, class T>
__device__ __forceinline__ float one_of_planes(const T* image, int channel, int y, int x)
{
    return L::value(image[(channel * L::HEIGHT + y) * L::WIDTH + x], channel);
}

__device__ __forceinline__ float2 operator+(float2 a, float2 b)
{
    return make_float2(a.x + b.x, a.y + b.y);
}

__device__ __forceinline__ float2 operator*(float2 a, float2 b)
{
    return make_float2(a.x * b.x, a.y * b.y);
}

// Two channels of a place, of which the first is even, as is how many there are: where they lie, and
// what they are.
template <class L>
__device__ __forceinline__ const word* place_of_two(const word* picture, int channel, int y, int x)
{
    return picture + y * L::ROW + x * L::PITCH + (L::FLOATS ? channel : channel / TW_PER_WORD);
}

template <class L>
__device__ __forceinline__ float2 two_at(const word* place)
{
#if TW_PER_WORD == 2
    if (!L::FLOATS)
        return unpack(place[0]);
#endif
    return make_float2(__uint_as_float(place[0]), __uint_as_float(place[1]));
}

template <class L>
__device__ __forceinline__ float2 two(const word* picture, int channel, int y, int x)
{
    return two_at<L>(place_of_two<L>(picture, channel, y, x));
}

// Values of several pictures, as `value` finds them, and activations: two channels at a time. A
// thread reads four times before it writes: values may come from device memory, and a write might be
// to where the next is read.
template <class L, class Value, class Out>
__device__ __forceinline__ void join(Value value, Out out, int thread)
{
    // Without signs, of which nobody would have to be sure when he divides.
    constexpr unsigned PAIRS = (L::FILTERS + 1) / 2, ALL = L::OUT_Y * L::OUT_X * PAIRS, AT_ONCE = 4;
    constexpr bool EVEN = ALL % (AT_ONCE * L::THREADS) == 0;
    for (unsigned first = thread; first < ALL; first += AT_ONCE * L::THREADS) {
        float2 found[AT_ONCE];
#pragma unroll
        for (unsigned k = 0; k < AT_ONCE; ++k) {
            const unsigned own = first + k * L::THREADS, i = EVEN ? own : min(own, ALL - 1);
            found[k] = value(i % PAIRS * 2, i / PAIRS / L::OUT_X, i / PAIRS % L::OUT_X);
        }
#pragma unroll
        for (unsigned k = 0; k < AT_ONCE; ++k) {
            const unsigned i = first + k * L::THREADS;
            const unsigned channel = i % PAIRS * 2, x = i / PAIRS % L::OUT_X, y = i / PAIRS / L::OUT_X;
            if (EVEN || i < ALL)
                put<L>(out, L::ORIGIN + y * L::OUT_ROW + x * L::OUT_PIXEL, channel,
                       L::after(found[k].x), L::after(found[k].y));
        }
    }
}

// A float as sums take it.
__device__ __forceinline__ float rounded(float value) { return __uint_as_float(operand(value)); }

// Two channels of a pixel, those that two filters see.
template <class L>
__device__ __forceinline__ float2 two_channels(const word* in, int filter, int y, int x)
{
    if (L::MULTIPLE == 1)
        return get<L>(in, y, x, filter);
    // A filter too many reads the last channel once more, and its weights are zero.
    const int other = min(filter + 1, L::FILTERS - 1) / L::MULTIPLE;
    return make_float2(one<L>(in, filter / L::MULTIPLE, y, x), one<L>(in, other, y, x));
}

// A convolution whose filters see one channel each: two filters of TALL outputs above each other at
// a time. Of a column of taps it reads the weights once, and every row under any of these outputs.
template <class L, class Out>
__device__ __forceinline__ void channels(
    const word* in, const float* weights, const float* bias, Out out, int thread)
{
    constexpr unsigned PAIRS = (L::FILTERS + 1) / 2, STRIPS = (L::OUT_Y + L::TALL - 1) / L::TALL;
    constexpr int ROWS = (L::TALL - 1) * L::STRIDE_Y + (L::TAPS_Y - 1) * L::APART_Y + 1;
    for (unsigned i = thread; i < STRIPS * L::OUT_X * PAIRS; i += L::THREADS) {
        const int filter = i % PAIRS * 2, x = i / PAIRS % L::OUT_X, own = i / PAIRS / L::OUT_X * L::TALL;
        // The last outputs begin earlier, and leave those to others that are theirs.
        const int y = min(own, L::OUT_Y - L::TALL);
        const float2 start = *reinterpret_cast<const float2*>(bias + filter);
        float low[L::TALL], high[L::TALL];
#pragma unroll
        for (int k = 0; k < L::TALL; ++k) {
            low[k] = start.x;
            high[k] = start.y;
        }
#pragma unroll
        for (int kx = 0; kx < L::TAPS_X; ++kx) {
            float2 w[L::TAPS_Y];
#pragma unroll
            for (int ky = 0; ky < L::TAPS_Y; ++ky)
                w[ky] = *reinterpret_cast<const float2*>(
                    weights + (ky * L::TAPS_X + kx) * 2 * PAIRS + filter);
            const int column = x * L::STRIDE_X + kx * L::APART_X;
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                // Rows that no tap meets are not read: the compiler sees that nothing comes of them.
                const float2 both = two_channels<L>(in, filter, y * L::STRIDE_Y + row, column);
#pragma unroll
                for (int k = 0; k < L::TALL; ++k) {
                    const int below = row - k * L::STRIDE_Y, ky = below / L::APART_Y;
                    if (below < 0 || below % L::APART_Y != 0 || ky >= L::TAPS_Y)
                        continue;
                    low[k] = fmaf(rounded(both.x), w[ky].x, low[k]);
                    high[k] = fmaf(rounded(both.y), w[ky].y, high[k]);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < L::TALL; ++k)
            if (y + k >= own)
                put<L>(out, L::ORIGIN + (y + k) * L::OUT_ROW + x * L::OUT_PIXEL, filter,
                       L::after(low[k]), L::after(high[k]));
    }
}

// Pooling of windows that stick out of the picture, whose row `first` is the first at hand: what is
// outside does not count, but for an average that counts the padding. Of small windows the nearest
// place inside is read instead, so that no read waits for another.
template <class L, class Out>
__device__ __forceinline__ void windows(const word* in, Out out, int first, int thread)
{
    constexpr unsigned PAIRS = (L::FILTERS + 1) / 2;
    for (unsigned i = thread; i < L::OUT_Y * L::OUT_X * PAIRS; i += L::THREADS) {
        const int channel = i % PAIRS * 2, x = i / PAIRS % L::OUT_X, y = i / PAIRS / L::OUT_X;
        const int top = first + y * L::STRIDE_Y - L::TOP, left = x * L::STRIDE_X - L::LEFT;
        const int bottom = min(top + L::TAPS_Y, L::HEIGHT), right = min(left + L::TAPS_X, L::WIDTH);
        const float start = L::AVERAGE ? 0.0f : __uint_as_float(0xff800000);
        const int above = max(top, 0), before = max(left, 0);
        float2 found = make_float2(start, start);
        if (L::TAPS_Y * L::TAPS_X <= 9 && above < bottom && before < right) {
#pragma unroll
            for (int k = 0; k < L::TAPS_Y * L::TAPS_X; ++k) {
                const int row = top + k / L::TAPS_X, column = left + k % L::TAPS_X;
                const bool inside = row >= above && row < bottom && column >= before && column < right;
                const float2 next = get<L>(in, min(max(row, above), bottom - 1) - first,
                                           min(max(column, before), right - 1), channel);
                take_in<L>(found, inside ? next : make_float2(start, start));
            }
        } else {
            for (int row = above; row < bottom; ++row)
                for (int column = before; column < right; ++column) {
                    const float2 next = get<L>(in, row - first, column, channel);
                    take_in<L>(found, next);
                }
        }
        if (L::AVERAGE) {
            int count = (bottom - max(top, 0)) * (right - max(left, 0));
            if (L::COUNTS_PADDING)
                count = (min(top + L::TAPS_Y, L::HEIGHT + L::COUNTED_Y) - top)
                    * (min(left + L::TAPS_X, L::WIDTH + L::COUNTED_X) - left);
            found.x /= count;
            found.y /= count;
        }
        put<L>(out, L::ORIGIN + y * L::OUT_ROW + x * L::OUT_PIXEL, channel, L::after(found.x),
               L::after(found.y));
    }
}
