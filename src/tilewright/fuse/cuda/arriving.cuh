// Pixels that come channel by channel, bytes or floats, as words of pixels, by all threads of all
// blocks. Needs words.cuh, passing.cuh.

// Of all images' words, AT_ONCE at a time, those from `first` on, `step` apart, in whole warps. Eight
// lanes have pixels beside each other, and four what follows in a pixel: both what they read and what
// they write lies together.
template <class L, class Given>
__device__ __forceinline__ void put_arrived(
    const Given* in, word* results, unsigned count, unsigned first, unsigned step)
{
    constexpr unsigned PIECES = L::WORDS / L::AT_ONCE, VALUES = L::AT_ONCE * TW_PER_WORD;
    constexpr unsigned ACROSS = (L::PIXELS + 7) / 8, DEEP = (PIECES + 3) / 4;
    const unsigned all = count * (ACROSS * DEEP);  // tiles of 32 lanes
    for (unsigned tile = first / 32; tile < all; tile += step / 32) {
        const unsigned image = tile / DEEP / ACROSS, lane = first % 32;
        const unsigned piece = tile % DEEP * 4 + lane % 4, pixel = tile / DEEP % ACROSS * 8 + lane / 4;
        if (piece >= PIECES || pixel >= L::PIXELS)
            continue;
        const unsigned channel = piece * VALUES;
        const Given* from =
            in + size_t(image) * (L::CHANNELS * L::PIXELS) + channel * L::PIXELS + pixel;
        float found[VALUES];
#pragma unroll
        for (unsigned j = 0; j < VALUES; ++j)
            found[j] = channel + j < L::CHANNELS
                ? L::value(static_cast<float>(from[j * L::PIXELS]), channel + j) : 0.0f;
        Vector<L::AT_ONCE> made;
#pragma unroll
        for (unsigned j = 0; j < L::AT_ONCE; ++j) {
#if TW_PER_WORD == 2
            made.at[j] = pack(found[2 * j], found[2 * j + 1]);
#else
            made.at[j] = L::TO == TW_TO_OPERANDS ? operand(found[j]) : __float_as_uint(found[j]);
#endif
        }
        write_words<L::AT_ONCE>(
            results + (size_t(image) * L::PIXELS + pixel) * L::WORDS + piece * L::AT_ONCE, made);
    }
}
