// Pictures' channels behind each other, in device memory, by all threads of all blocks. Needs
// words.cuh, passing.cuh.

// A word as what comes next reads it, after activations.
template <class L>
__device__ __forceinline__ word passed_on(word given)
{
#if TW_PER_WORD == 2
    if (!L::CHANGES)
        return given;
    const float2 both = unpack(given);
    return pack(L::after(both.x), L::after(both.y));
#else
    const float value = L::after(__uint_as_float(given));
    return L::TO == TW_TO_OPERANDS ? operand(value) : __float_as_uint(value);
#endif
}

// Of all images' words, WIDTH at a time, those from `first` on, `step` apart; four are read before
// any is written. `L::begins(i)` is the word of a pixel where picture i begins.
template <class L>
__device__ __forceinline__ void put_behind(
    const word* const (&pictures)[L::PARTS], word* results, size_t count, size_t first, size_t step)
{
    constexpr int PIECES = L::OUT_WORDS / L::WIDTH, AT_ONCE = 4;
    const size_t all = count * (L::PIXELS * PIECES);
    for (; first < all; first += AT_ONCE * step) {
        Vector<L::WIDTH> found[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            const size_t i = first + k * step < all ? first + k * step : first;
            const size_t pixel = i / PIECES;
            const int at = int(i % PIECES) * L::WIDTH;
            const word* from = pictures[0] + pixel * (L::begins(1) - L::begins(0)) + at;
#pragma unroll
            for (int part = 1; part < L::PARTS; ++part)
                if (at >= L::begins(part))
                    from = pictures[part] + pixel * (L::begins(part + 1) - L::begins(part))
                        + (at - L::begins(part));
            found[k] = read_words<L::WIDTH>(from);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            if (first + k * step >= all)
                break;
#pragma unroll
            for (int j = 0; j < L::WIDTH; ++j)
                found[k].at[j] = passed_on<L>(found[k].at[j]);
            write_words<L::WIDTH>(results + (first + k * step) * L::WIDTH, found[k]);
        }
    }
}
