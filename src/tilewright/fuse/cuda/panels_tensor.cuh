// Fully connected layers on many images, on tensor cores. Needs panels_many.cuh.
//
// Outputs are the rows of an instruction and images its columns: of columns there may be any
// multiple of 8, so that all multiprocessors have the same to do.

// The first of this lane's two outputs; the other is 8 behind it.
template <class L>
__device__ __forceinline__ int own_output(int outputs)
{
    return outputs + Own<L>::band() * L::BAND + threadIdx.x / 32 % 4 * 16
        + (threadIdx.x & 31) / 4;
}

// Sums begin with the bias. Lane 4g+t has outputs g and g+8, images 2t and 2t+1, as in `multiply`.
template <class L>
__device__ __forceinline__ void begin_sums(
    float (&sum)[L::TALL][L::WIDE / 2], const float* bias, int outputs)
{
#pragma unroll
    for (int m = 0; m < L::TALL; ++m) {
        const int output = own_output<L>(outputs) + m * L::BAND;
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

#define TW_TWO_PIECES 32  // bytes of a row that an instruction takes

template <class L>
__device__ __forceinline__ void multiply_panels(
    float (&sum)[L::TALL][L::WIDE / 2], const Ring<L>& ring, const uint4*)
{
    constexpr int STEPS = TW_CHUNK / 2 / L::SPLITS;
    const word own = Own<L>::split() * STEPS * TW_TWO_PIECES;
    hold<L>(sum);
    // There is one at least, which the compiler must know to let instructions overlap.
    Turn<L> turn, before;
#pragma unroll 1
    do {
        const word at = ring.arrived(turn) + own;
        const unsigned long long rows =
            described(at + Own<L>::band() * TW_BAND_BYTES, TW_GROUP_BYTES);
        const unsigned long long columns =
            described(at + L::BANDS * TW_BAND_BYTES, TW_GROUP_BYTES);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int i = 0; i < STEPS; ++i)
#pragma unroll
            for (int m = 0; m < L::TALL; ++m)
                multiply_wide(sum[m], rows + (m * TW_BAND_BYTES + i * TW_TWO_PIECES >> 4),
                              columns + (i * TW_TWO_PIECES >> 4));
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

// A lane has two outputs of every band, and two of each 8 images: `half` is one of these outputs.
// Here its first 8 lie, from its warp's first on.
template <class L>
__device__ __forceinline__ int half_at(int half)
{
    return half / 2 * L::BAND + half % 2 * 8;
}

#if TW_PER_WORD == 2

// Four, or two, matrices of 8 x 8 halves, turned: lane 4g+t has columns 2t and 2t+1 of row g of each,
// and a column goes to where a lane says, the first matrix' where the first 8 lanes do.
__device__ __forceinline__ void put_turned(word at, const word (&of)[4], bool all)
{
    if (all)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                     ::"r"(at), "r"(of[0]), "r"(of[1]), "r"(of[2]), "r"(of[3]) : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                     ::"r"(at), "r"(of[0]), "r"(of[1]) : "memory");
}

__device__ __forceinline__ void copy_out(word* to, word from, int bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes) : "memory");
}

// Results into panels: four warps put a chunk of their images' rows together in shared memory, as it
// lies there, and one thread copies it.
template <class L>
__device__ __forceinline__ void put_panels(
    const float (&sum)[L::TALL][L::WIDE / 2], word* results, const uint4* memory, int outputs,
    int first, int count)
{
    constexpr int HALVES = 2 * L::TALL, IMAGES = L::WIDE / Own<L>::SHARES;
    constexpr int COUNT = IMAGES / 8 * HALVES, CHUNK = IMAGES * TW_ROW_BYTES;
    const int lane = threadIdx.x & 31, row = lane % 8, matrix = lane / 8, warps = threadIdx.x / 128;
    const int output = own_output<L>(outputs);
    // The ring is free when all have added up; where sums were gathered, its end is.
    constexpr int GATHERED = 4 * L::BAND * L::BANDS * L::WIDE * L::SPLITS;
    if (Own<L>::SHARES == 1)
        all_meet<L>();
    const word chunks = shared_address(memory) + (Own<L>::SHARES == 1 ? 0 : GATHERED)
        + warps * L::TALL * CHUNK;
    const int piece = threadIdx.x / 32 % 4 * 2 + matrix % 2;
    const word at = chunks + matrix % HALVES / 2 * CHUNK
        + (matrix / HALVES * 8 + row) * TW_ROW_BYTES + (piece ^ row) * 16;
#pragma unroll
    for (int k = 0; k < COUNT; k += 4) {
        word of[4];
#pragma unroll
        for (int i = k; i < k + 4 && i < COUNT; ++i) {
            const int half = i % HALVES;
            const float* two = sum[half / 2] + i / HALVES * 4 + half % 2 * 2;
            const bool none = L::FILTERS % L::BAND && output + half_at<L>(half) >= L::FILTERS;
            of[i - k] = none ? 0 : pack(L::after(two[0]), L::after(two[1]));
        }
        put_turned(at + k / HALVES * 8 * TW_ROW_BYTES, of, k + 4 <= COUNT);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(warps + 2) : "memory");
    if (threadIdx.x % 128)
        return;
    const int images = min(IMAGES, count - first), here = min(images, TW_PANEL - first % TW_PANEL);
    const int band = outputs / L::BAND + Own<L>::band();
#pragma unroll
    for (int m = 0; m < L::TALL; ++m) {
        if (images <= 0 || band + m >= L::OUT_PIECES / TW_CHUNK)
            continue;
        const word from = chunks + m * CHUNK;
        copy_out(results + piece_at<L::OUT_PIECES>(first, (band + m) * TW_CHUNK), from,
                 here * TW_ROW_BYTES);
        if (images > here)
            copy_out(results + piece_at<L::OUT_PIECES>(first + here, (band + m) * TW_CHUNK),
                     from + here * TW_ROW_BYTES, (images - here) * TW_ROW_BYTES);
    }
    asm volatile("cp.async.bulk.commit_group;\n"
                 "cp.async.bulk.wait_group.read 0;" ::: "memory");
}

#else

// Results into panels, where outputs of an image follow each other: an even g gets its output and
// the next of one image, an odd one of the next image.
template <class L>
__device__ __forceinline__ void put_panels(
    const float (&sum)[L::TALL][L::WIDE / 2], word* results, const uint4*, int outputs, int first,
    int count)
{
    constexpr int HALVES = 2 * L::TALL, COUNT = L::WIDE / 8 / Own<L>::SHARES * HALVES;
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        const int half = k % HALVES, image = first + k / HALVES * 8 + 2 * t + g % 2;
        const int output = own_output<L>(outputs) + half_at<L>(half);
        const float* two = sum[half / 2] + k / HALVES * 4 + half % 2 * 2;
        const bool none = L::FILTERS % 8 && output >= L::FILTERS;
        const float low = none ? 0.0f : L::after(two[0]), high = none ? 0.0f : L::after(two[1]);
        const float other = __shfl_xor_sync(0xffffffff, g % 2 ? low : high, 4);
        if (image < count && output / 8 < L::ROUNDED / 8)
            *reinterpret_cast<uint2*>(
                results + piece_at<L::OUT_PIECES>(image, output / 4) + (g & 2)) =
                make_uint2(operand(g % 2 ? other : low), operand(g % 2 ? high : other));
    }
}

#endif

template <class L>
__device__ __forceinline__ void put_sums(
    const float (&sum)[L::TALL][L::WIDE / 2], word* results, const float*, const uint4* memory,
    int outputs, int first, int count)
{
    constexpr int SHARE = L::WIDE / 8 / Own<L>::SHARES;  // columns of 8
    const int t = threadIdx.x & 3, output = own_output<L>(outputs);
    first += Own<L>::share() * SHARE * 8;
    if (L::TO_PANELS) {
        put_panels<L>(sum, results, memory, outputs, first, count);
        return;
    }
    float* rows = reinterpret_cast<float*>(results) + size_t(first + 2 * t) * L::FILTERS + output;
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        const int image = first + i * 8 + 2 * t;
#pragma unroll
        for (int half = 0; half < 2 * L::TALL; ++half) {
            const float* two = sum[half / 2] + 4 * i + half % 2 * 2;
            float* to = rows + size_t(i * 8) * L::FILTERS + half_at<L>(half);
            if (output + half_at<L>(half) >= L::FILTERS)
                continue;
            if (image < count)
                to[0] = L::after(two[0]);
            if (image + 1 < count)
                to[L::FILTERS] = L::after(two[1]);
        }
    }
}
