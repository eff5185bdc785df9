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

// Of all images' results, AT_ONCE words at a time, those from `first` on, `step` apart. Places of a
// window that are outside of the picture do not count, but for an average that counts the padding;
// the nearest one inside is read instead, so that nobody waits to know.
template <class L>
__device__ __forceinline__ void put_pooled(
    const word* in, word* results, size_t count, size_t first, size_t step)
{
    constexpr int PIECES = L::WORDS / L::AT_ONCE, VALUES = L::AT_ONCE * TW_PER_WORD;
    const size_t all = count * (L::OUT_Y * L::OUT_X * PIECES);
    for (; first < all; first += step) {
        const size_t pixel = first / PIECES, image = pixel / (L::OUT_Y * L::OUT_X);
        const int y = int(pixel / L::OUT_X % L::OUT_Y), x = int(pixel % L::OUT_X);
        const int top = y * L::STRIDE_Y - L::TOP, left = x * L::STRIDE_X - L::LEFT;
        const int bottom = min(top + L::TAPS_Y, L::HEIGHT), right = min(left + L::TAPS_X, L::WIDTH);
        const word* from = in + image * (L::HEIGHT * L::WIDTH * L::WORDS)
            + int(first % PIECES) * L::AT_ONCE;
        float found[VALUES];
#pragma unroll
        for (int j = 0; j < VALUES; ++j)
            found[j] = L::AVERAGE ? 0.0f : __uint_as_float(0xff800000);
#pragma unroll L::UNROLL
        for (int k = 0; k < L::TAPS_Y * L::TAPS_X; ++k) {
            const int row = top + k / L::TAPS_X, column = left + k % L::TAPS_X;
            const int there = max(0, min(row, L::HEIGHT - 1)) * L::WIDTH
                + max(0, min(column, L::WIDTH - 1));
            const Vector<L::AT_ONCE> next = read_words<L::AT_ONCE>(from + there * L::WORDS);
            const bool inside = row >= 0 && row < bottom && column >= 0 && column < right;
#pragma unroll
            for (int j = 0; j < VALUES; ++j) {
                const float value = value_of(next.at[j / TW_PER_WORD], j % TW_PER_WORD);
                if (!L::AVERAGE)
                    found[j] = maximum(found[j], value);
                else
                    found[j] += inside ? value : 0.0f;
            }
        }
        int places = (bottom - max(top, 0)) * (right - max(left, 0));
        if (L::COUNTS_PADDING)
            places = (min(top + L::TAPS_Y, L::HEIGHT + L::COUNTED_Y) - top)
                * (min(left + L::TAPS_X, L::WIDTH + L::COUNTED_X) - left);
        Vector<L::AT_ONCE> made;
#pragma unroll
        for (int j = 0; j < VALUES; ++j)
            found[j] = L::after(L::AVERAGE ? found[j] / places : found[j]);
#pragma unroll
        for (int j = 0; j < L::AT_ONCE; ++j) {
#if TW_PER_WORD == 2
            made.at[j] = pack(found[2 * j], found[2 * j + 1]);
#else
            made.at[j] = L::TO == TW_TO_OPERANDS ? operand(found[j]) : __float_as_uint(found[j]);
#endif
        }
        write_words<L::AT_ONCE>(results + first * L::AT_ONCE, made);
    }
}
