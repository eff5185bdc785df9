// Pooling of pictures in device memory, by all threads of all blocks. Needs words.cuh, passing.cuh.

// One of a word's values.
__device__ __forceinline__ float value_of(word given, int which)
{
#if TW_PER_WORD == 2
    const float2 both = unpack(given);
    return which ? both.y : both.x;
#else
    return __uint_as_float(given);
#endif
}

// Two places' values, or what several come to.
template <class L>
__device__ __forceinline__ float joined(float a, float b)
{
    return L::AVERAGE ? a + b : maximum(a, b);
}

// Of all images' results, AT_ONCE words of RUN neighbours at a time, those from `first` on, `step`
// apart: a column of places is read once for all windows that it is in. Places that are outside of
// the picture do not count, but for an average that counts the padding; the nearest one inside is
// read instead, so that nobody waits to know.
template <class L>
__device__ __forceinline__ void put_pooled(
    const word* in, word* results, unsigned count, unsigned first, unsigned step)
{
    constexpr unsigned PIECES = L::WORDS / L::AT_ONCE, RUNS = (L::OUT_X + L::RUN - 1) / L::RUN;
    constexpr int VALUES = L::AT_ONCE * TW_PER_WORD;
    constexpr int COLUMNS = (L::RUN - 1) * L::STRIDE_X + L::TAPS_X;
    const float start = L::AVERAGE ? 0.0f : __uint_as_float(0xff800000);
    const unsigned all = count * (L::OUT_Y * RUNS * PIECES);
    for (unsigned i = first; i < all; i += step) {
        const unsigned row = i / PIECES / RUNS, image = row / L::OUT_Y;
        const int y = row % L::OUT_Y, x = i / PIECES % RUNS * L::RUN;
        const int top = y * L::STRIDE_Y - L::TOP, left = x * L::STRIDE_X - L::LEFT;
        const int bottom = min(top + L::TAPS_Y, L::HEIGHT);
        const word* from = in + size_t(image) * (L::HEIGHT * L::WIDTH * L::WORDS)
            + i % PIECES * L::AT_ONCE;
        float found[L::RUN][VALUES];
#pragma unroll
        for (int j = 0; j < L::RUN * VALUES; ++j)
            found[j / VALUES][j % VALUES] = start;
#pragma unroll L::UNROLL_X
        for (int c = 0; c < COLUMNS; ++c) {
            const int column = left + c;
            const bool within = column >= 0 && column < L::WIDTH;
            const word* above = from + max(0, min(column, L::WIDTH - 1)) * L::WORDS;
            float own[VALUES];
#pragma unroll
            for (int j = 0; j < VALUES; ++j)
                own[j] = start;
#pragma unroll L::UNROLL_Y
            for (int k = 0; k < L::TAPS_Y; ++k) {
                const Vector<L::AT_ONCE> next = read_words<L::AT_ONCE>(
                    above + max(0, min(top + k, L::HEIGHT - 1)) * (L::WIDTH * L::WORDS));
                const bool inside = within && top + k >= 0 && top + k < bottom;
#pragma unroll
                for (int j = 0; j < VALUES; ++j) {
                    const float value = value_of(next.at[j / TW_PER_WORD], j % TW_PER_WORD);
                    own[j] = joined<L>(own[j], !L::AVERAGE || inside ? value : 0.0f);
                }
            }
#pragma unroll
            for (int run = 0; run < L::RUN; ++run)
                if (c >= run * L::STRIDE_X && c < run * L::STRIDE_X + L::TAPS_X)
#pragma unroll
                    for (int j = 0; j < VALUES; ++j)
                        found[run][j] = joined<L>(found[run][j], own[j]);
        }
        const int rows = L::COUNTS_PADDING ? min(top + L::TAPS_Y, L::HEIGHT + L::COUNTED_Y) - top
                                           : bottom - max(top, 0);
#pragma unroll
        for (int run = 0; run < L::RUN; ++run) {
            if (x + run >= L::OUT_X)
                break;
            const int own = left + run * L::STRIDE_X;
            const int places = rows
                * (L::COUNTS_PADDING ? min(own + L::TAPS_X, L::WIDTH + L::COUNTED_X) - own
                                     : min(own + L::TAPS_X, L::WIDTH) - max(own, 0));
            Vector<L::AT_ONCE> made;
#pragma unroll
            for (int j = 0; j < VALUES; ++j)
                found[run][j] =
                    L::after(L::AVERAGE ? found[run][j] / places : found[run][j]);
#pragma unroll
            for (int j = 0; j < L::AT_ONCE; ++j) {
#if TW_PER_WORD == 2
                made.at[j] = pack(found[run][2 * j], found[run][2 * j + 1]);
#else
                made.at[j] = L::TO == TW_TO_OPERANDS ? operand(found[run][j])
                                                     : __float_as_uint(found[run][j]);
#endif
            }
            write_words<L::AT_ONCE>(
                results + (size_t(row) * L::OUT_X + x + run) * L::WORDS + i % PIECES * L::AT_ONCE,
                made);
        }
    }
}
