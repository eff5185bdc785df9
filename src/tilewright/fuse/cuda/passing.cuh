// Words of pictures in device memory, several at once. Needs words.cuh.

template <int WIDTH>
struct Vector {
    word at[WIDTH];
};

template <int WIDTH>
__device__ __forceinline__ Vector<WIDTH> read_words(const word* from)
{
    Vector<WIDTH> found;
    if constexpr (WIDTH == 4) {
        const uint4 four = __ldg(reinterpret_cast<const uint4*>(from));
        found = {{four.x, four.y, four.z, four.w}};
    } else if constexpr (WIDTH == 2) {
        const uint2 two = __ldg(reinterpret_cast<const uint2*>(from));
        found = {{two.x, two.y}};
    } else {
        found = {{__ldg(from)}};
    }
    return found;
}

template <int WIDTH>
__device__ __forceinline__ void write_words(word* to, const Vector<WIDTH>& given)
{
    if constexpr (WIDTH == 4)
        write_four(to, given.at[0], given.at[1], given.at[2], given.at[3]);
    else if constexpr (WIDTH == 2)
        *reinterpret_cast<uint2*>(to) = make_uint2(given.at[0], given.at[1]);
    else
        *to = given.at[0];
}
