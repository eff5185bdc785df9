// Fully connected layers on many images, on tensor cores. Needs panels_many.cuh.
//
// Outputs are the rows of an instruction and images its columns: of columns there may be any
// multiple of 8, so that all multiprocessors have the same to do.

// What the tensor cores are told of operands in shared memory: pieces are 128 bytes apart, groups of
// 8 rows 1024.
__device__ __forceinline__ unsigned long long described(word at)
{
    return ((at & 0x3ffff) >> 4) | (128ull >> 4) << 16 | (1024ull >> 4) << 32;
}

// The first of this lane's two outputs; the other is 8 behind it.
template <class L>
__device__ __forceinline__ int own_output(int outputs)
{
    return outputs + Own<L>::band() * TW_BAND + threadIdx.x / 32 % 4 * 16
        + (threadIdx.x & 31) / 4;
}

// Sums begin with the bias. Lane 4g+t has outputs g and g+8, images 2t and 2t+1, as in `multiply`.
template <class L>
__device__ __forceinline__ void begin_sums(
    float (&sum)[L::TALL][L::WIDE / 2], const float* bias, int outputs)
{
#pragma unroll
    for (int m = 0; m < L::TALL; ++m) {
        const int output = own_output<L>(outputs) + m * TW_BAND;
        float low = 0.0f, high = 0.0f;
        if (Own<L>::share() == 0 && output < L::OUTPUTS) {
            low = __ldg(bias + output);
            high = __ldg(bias + output + 8);
        }
#pragma unroll
        for (int n = 0; n < L::WIDE / 8; ++n) {
            sum[m][4 * n] = sum[m][4 * n + 1] = low;
            sum[m][4 * n + 2] = sum[m][4 * n + 3] = high;
        }
    }
}

// The compiler is to leave sums alone from here on, or until here.
template <class L>
__device__ __forceinline__ void hold(float (&sum)[L::TALL][L::WIDE / 2])
{
#pragma unroll
    for (int m = 0; m < L::TALL; ++m)
#pragma unroll
        for (int i = 0; i < L::WIDE / 2; ++i)
            asm volatile("" : "+f"(sum[m][i])::"memory");
}

template <class L>
__device__ __forceinline__ void multiply_panels(
    float (&sum)[L::TALL][L::WIDE / 2], const Ring<L>& ring, const uint4*)
{
    constexpr int STEPS = TW_CHUNK / 2 / L::SPLITS;
    const word own = Own<L>::split() * STEPS * 256;
    hold<L>(sum);
    // There is one at least, which the compiler must know to let instructions overlap.
    Turn<L> turn, before;
#pragma unroll 1
    do {
        const word at = ring.arrived(turn) + own;
        const unsigned long long rows = described(at + Own<L>::band() * TW_BAND_BYTES);
        const unsigned long long columns = described(at + L::BANDS * TW_BAND_BYTES);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int i = 0; i < STEPS; ++i)
#pragma unroll
            for (int m = 0; m < L::TALL; ++m)
                multiply_wide(sum[m], rows + (m * TW_BAND_BYTES + i * 256 >> 4),
                              columns + (i * 256 >> 4));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        // The turn before is done.
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (turn.number > 0)
            ring.give_back(before);
        before = turn;
        turn.next();
    } while (turn.number < ring.turns);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    hold<L>(sum);
}

// Where this lane's first results lie, of the first 8 images, and how far apart those are of
// another 8 outputs, and of another band of them. Outputs of an image follow each other there.
template <class L>
__device__ __forceinline__ word* turned_at(word* results, int output)
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#if TW_PER_WORD == 2
    return results + piece_at<L::OUT_PIECES>(g, output / 8) + t;
#else
    return results + piece_at<L::OUT_PIECES>(2 * t + g % 2, output / 4) + (g & 2);
#endif
}

#define TW_EIGHT (TW_PER_WORD == 2 ? 32 : 64)
#define TW_SIXTY_FOUR (TW_PER_WORD == 2 ? TW_CHUNK_WORDS : 2 * TW_CHUNK_WORDS)

// Two images' values of an output, of the 8 images from one on.
__device__ __forceinline__ void put_turned(word* to, int image, int count, float low, float high)
{
    const int g = (threadIdx.x & 31) >> 2;
#if TW_PER_WORD == 2
    // Lane 4g+t gets outputs 2t and 2t+1 of image g.
    word both = pack(low, high);
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(both));
    if (image + g < count)
        *to = both;
#else
    // An even g gets its output and the next of the first image, an odd one of the second.
    const int t = threadIdx.x & 3;
    const float other = __shfl_xor_sync(0xffffffff, g % 2 ? low : high, 4);
    if (image + 2 * t + g % 2 < count)
        *reinterpret_cast<uint2*>(to) =
            make_uint2(operand(g % 2 ? other : low), operand(g % 2 ? high : other));
#endif
}

template <class L>
__device__ __forceinline__ void put_sums(
    const float (&sum)[L::TALL][L::WIDE / 2], word* results, const float*, int outputs, int first,
    int count)
{
    constexpr int SHARE = L::WIDE / 8 / Own<L>::SHARES;  // columns of 8
    constexpr int CLUSTER = TW_BAND * L::BANDS * L::ACROSS;  // outputs
    const int t = threadIdx.x & 3, output = own_output<L>(outputs);
    first += Own<L>::share() * SHARE * 8;
    word* panels = turned_at<L>(results, output);
    float* rows = reinterpret_cast<float*>(results) + size_t(first + 2 * t) * L::FILTERS + output;
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        const int image = first + i * 8;
        word* group = panels + group_at<L>(image / 8);
#pragma unroll
        for (int half = 0; half < 2 * L::TALL; ++half) {
            const int further = half / 2 * TW_BAND + half % 2 * 8;
            const float* two = sum[half / 2] + 4 * i + half % 2 * 2;
            float low = L::after(two[0]), high = L::after(two[1]);
            if (L::TO_PANELS) {
                if (L::ROUNDED % CLUSTER && (output + further) / 8 >= L::ROUNDED / 8)
                    continue;
                if (L::FILTERS % 8 && output + further >= L::FILTERS)
                    low = high = 0.0f;
                put_turned(group + half / 2 * TW_SIXTY_FOUR + half % 2 * TW_EIGHT, image, count,
                           low, high);
            } else if (L::FILTERS % CLUSTER == 0 || output + further < L::FILTERS) {
                float* to = rows + size_t(i * 8) * L::FILTERS + further;
                if (image + 2 * t < count)
                    to[0] = low;
                if (image + 2 * t + 1 < count)
                    to[L::FILTERS] = high;
            }
        }
    }
}
