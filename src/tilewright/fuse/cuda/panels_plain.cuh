// Fully connected layers on many images, without tensor cores. Needs panels_many.cuh.
//
// Of two warps a thread has EACH outputs, every eighth of a band, and every eighth of WIDE images:
// what lanes read at once follows each other. Neighbouring lanes read the same images, and those
// two apart the same outputs, so that shared memory answers twice as many lanes at a time. Of each
// sum it has two, of even terms and of odd ones, and products go to and fro: `step_twice` in sums.cuh
// says why. The compiler is asked to leave them in that order (TW_IN_ORDER).

__device__ __forceinline__ int lane_output()
{
    return threadIdx.x / 32 % 2 * 4 + (threadIdx.x & 16) / 8 + (threadIdx.x & 1);
}

__device__ __forceinline__ int lane_image()
{
    return threadIdx.x / 2 % 8;
}

template <class L, int COUNT>
__device__ __forceinline__ void begin_sums(float (&sum)[1][COUNT], const float*, int)
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        sum[0][i] = 0.0f;
}

__device__ __forceinline__ float term(const float4& four, int k)
{
    return k == 0 ? four.x : k == 1 ? four.y : k == 2 ? four.z : four.w;
}

// The products of a piece of EACH outputs and COUNT / EACH images, which are 8 rows apart.
template <class L, int COUNT>
__device__ __forceinline__ void add_piece(
    float (&even)[COUNT], float (&odd)[COUNT], word outputs, word images)
{
    constexpr int COLUMNS = COUNT / L::EACH;
    float4 x[COLUMNS], w[L::EACH];
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
        x[j] = read_piece(images + j * TW_GROUP_BYTES);
#pragma unroll
    for (int i = 0; i < L::EACH; ++i)
        w[i] = read_piece(outputs + i * TW_GROUP_BYTES);
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int i = 0; i < L::EACH; ++i)
#pragma unroll
            for (int n = 0; n < COLUMNS; ++n) {
                const int j = i % 2 ? COLUMNS - 1 - n : n;
                float& to = (k % 2 ? odd : even)[i * COLUMNS + j];
                to = fmaf(term(w[i], k), term(x[j], k), to);
            }
}

template <class L, int COUNT>
__device__ __forceinline__ void multiply_panels(
    float (&sum)[1][COUNT], const Ring<L>& ring, const uint4*)
{
    constexpr int OWN = TW_CHUNK / L::SPLITS * 16;  // bytes of a row
    // A row's piece p is where p ^ row % 8 says.
    const word output = Own<L>::band() * TW_BAND_BYTES + lane_output() * (TW_ROW_BYTES + 16);
    const word image = L::BANDS * TW_BAND_BYTES + lane_image() * (TW_ROW_BYTES + 16);
    const word begin = Own<L>::split() * OWN;
    float more[COUNT] = {};
#pragma unroll 1
    for (Turn<L> turn; turn.number < ring.turns; turn.next()) {
        const word from = ring.arrived(turn);
#pragma unroll 1
        for (word piece = begin; piece < begin + OWN; piece += 16)
            add_piece<L>(sum[0], more, from + output ^ piece, from + image ^ piece);
        __syncwarp();
        ring.give_back(turn);
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        sum[0][i] += more[i];
}

// How far the results of a group of 8 images are from those of the first.
template <class L>
__device__ __forceinline__ size_t group_at(int group)
{
    return size_t(group / (TW_PANEL / 8)) * (L::OUT_PIECES * TW_PANEL * 4)
        + group % (TW_PANEL / 8) * 256;
}

template <class L, int COUNT>
__device__ __forceinline__ void put_sums(
    const float (&sum)[1][COUNT], word* results, const float* bias, const uint4*, int outputs,
    int first, int count)
{
    constexpr int COLUMNS = L::WIDE / 8, SHARE = L::EACH / Own<L>::SHARES;  // outputs
    const int begin = Own<L>::share() * SHARE, own = first + lane_image();
    const int output = outputs + Own<L>::band() * L::BAND + lane_output();
    float* floats = reinterpret_cast<float*>(results);
    float* rows = floats + size_t(own) * L::FILTERS + output;
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        const int further = (begin + i) * 8;
        float* panels = floats + output % 4
            + piece_at<L::OUT_PIECES>(lane_image(), (output + further) / 4);
        if ((output + further) / 8 >= L::ROUNDED / 8)
            continue;
        const float more = __ldg(bias + output + further);
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            const float value = L::after(sum[0][i * COLUMNS + j] + more);
            if (own + j * 8 >= count)
                continue;
            if (L::TO_PANELS)
                panels[group_at<L>(first / 8 + j)] =
                    output + further < L::FILTERS ? value : 0.0f;
            else if (output + further < L::FILTERS)
                rows[size_t(j * 8) * L::FILTERS + further] = value;
        }
    }
}
