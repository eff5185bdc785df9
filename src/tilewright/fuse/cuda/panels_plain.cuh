// Fully connected layers on many images, without tensor cores. Needs panels_many.cuh.
//
// Of two warps a thread has 8 outputs, every eighth of a band, and every eighth of WIDE images:
// what lanes read at once follows each other. Neighbouring lanes read the same images, and those
// two apart the same outputs, so that shared memory answers twice as many lanes at a time.

__device__ __forceinline__ int lane_output()
{
    return threadIdx.x / 32 % 2 * 4 + (threadIdx.x & 16) / 8 + (threadIdx.x & 1);
}

__device__ __forceinline__ int lane_image()
{
    return threadIdx.x / 2 % 8;
}

template <class L>
__device__ __forceinline__ void begin_sums(float (&sum)[1][L::WIDE], const float*, int)
{
#pragma unroll
    for (int i = 0; i < L::WIDE; ++i)
        sum[0][i] = 0.0f;
}

template <class L>
__device__ __forceinline__ void multiply_panels(
    float (&sum)[1][L::WIDE], const Ring<L>& ring, const uint4* memory)
{
    constexpr int SIZE = TW_BAND_BYTES / 16, COLUMNS = L::WIDE / 8, OWN = TW_CHUNK / L::SPLITS;
    const int begin = Own<L>::split() * OWN;
#pragma unroll 1
    for (Turn<L> turn; turn.number < ring.turns; turn.next()) {
        const word from = ring.arrived(turn);
        const float4* at = reinterpret_cast<const float4*>(memory) + (from - ring.at) / 16;
        const float4* rows = at + Own<L>::band() * SIZE + lane_output() * 8;
        const float4* columns = at + L::BANDS * SIZE + lane_image() * 8;
#pragma unroll 1
        for (int piece = begin; piece < begin + OWN; ++piece) {
            const int of_row = piece ^ lane_output(), of_column = piece ^ lane_image();
            float4 a[8];
#pragma unroll
            for (int i = 0; i < 8; ++i)
                a[i] = rows[i * 64 + of_row];
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                const float4 b = columns[j * 64 + of_column];
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    float& to = sum[0][i * COLUMNS + j];
                    to = fmaf(a[i].x, b.x, to);
                    to = fmaf(a[i].y, b.y, to);
                    to = fmaf(a[i].z, b.z, to);
                    to = fmaf(a[i].w, b.w, to);
                }
            }
        }
        __syncwarp();
        ring.give_back(turn);
    }
}

// How far the results of a group of 8 images are from those of the first.
template <class L>
__device__ __forceinline__ size_t group_at(int group)
{
    return size_t(group / (TW_PANEL / 8)) * (L::OUT_PIECES * TW_PANEL * 4)
        + group % (TW_PANEL / 8) * 256;
}

template <class L>
__device__ __forceinline__ void put_sums(
    const float (&sum)[1][L::WIDE], word* results, const float* bias, const uint4*, int outputs,
    int first, int count)
{
    constexpr int COLUMNS = L::WIDE / 8, SHARE = 8 / Own<L>::SHARES;  // outputs
    const int begin = Own<L>::share() * SHARE, own = first + lane_image();
    const int output = outputs + Own<L>::band() * TW_BAND + lane_output();
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
