// A convolution of many channels without tensor cores: threads read operands in shared memory, and
// multiply and add. Needs patches.cuh.
//
// A thread has a column of a patch, TALL positions above each other, and OWN filters that follow each
// other. Of a column of taps and four channels it reads every row of the picture once, for all taps
// above each other. Lanes are eight columns of TOGETHER patches; where these are fewer than four, as
// many times more filters. A stage of the weights' ring is a column of taps: their CHUNK_WORDS
// channels of WIDE filters. Pixels are one piece further apart than their chunks are long: eight
// neighbours' pieces are in different banks. Where there are registers for it, a thread has two sums
// of each, of even channels and of odd ones (TWICE; `step_twice` in sums.cuh says why), and weights
// are two channels of two filters at a time.

template <class L>
struct Patches : Rings<L>, Results<L> {
    using R = Rings<L>;
    using Turns = typename R::Turns;
    static constexpr int FILTER_LANES = 4 / L::TOGETHER;  // eight of them have the same filters
    static constexpr int FILTER_WARPS = L::WIDE / (L::OWN * FILTER_LANES);
    static constexpr int CHANNELS = L::TWICE ? 2 : 1;  // whose weights come at a time

    // What is a thread's: the patch, and of the block's filters the first.
    struct Mine : Patch<L> {
        int filter;

        __device__ __forceinline__ Mine()
        {
            const int warp = threadIdx.x / 32, eight = threadIdx.x % 32 / TW_PATCH;
            this->number = warp / FILTER_WARPS * L::TOGETHER + eight % L::TOGETHER;
            filter = (warp % FILTER_WARPS * FILTER_LANES + eight / L::TOGETHER) * L::OWN;
        }

    };

    __device__ __forceinline__ const char* bytes() const
    {
        return reinterpret_cast<const char*>(this->memory);
    }

    static __device__ __forceinline__ float of(const float4& four, int c)
    {
        return c == 0 ? four.x : c == 1 ? four.y : c == 2 ? four.z : four.w;
    }

    // The products of four channels and a column of taps. `pixel` is the first of the thread's column
    // under the first tap.
    static __device__ __forceinline__ void add_four(
        float (&even)[L::TALL][L::OWN], float (&odd)[L::TALL][L::OWN], const char* pixel,
        const float* weights)
    {
        constexpr int ROW = R::BELOW * L::PIXEL_BYTES;
        // Rows from a tap to the next, and those of them that it has not read.
        constexpr int FURTHER = L::APART_Y * R::SETS, NEW = FURTHER < L::TALL ? FURTHER : L::TALL;
#pragma unroll
        for (int plane = 0; plane < L::PLANES_Y; ++plane) {
            const char* rows = pixel + plane * (L::PLANES_X * L::ROWS * R::SETS * ROW);
            float4 line[L::TALL];
#pragma unroll
            for (int y = 0; y < L::TALL; ++y)
                line[y] = *reinterpret_cast<const float4*>(rows + y * ROW);
#pragma unroll
            for (int tap = plane; tap < L::TAPS_Y; tap += L::STRIDE_Y) {
                const int down = tap / L::STRIDE_Y * FURTHER;
#pragma unroll
                for (int y = down + L::TALL - NEW; down && y < down + L::TALL; ++y)
                    line[y % L::TALL] = *reinterpret_cast<const float4*>(rows + y * ROW);
#pragma unroll
                for (int c = 0; c < 4; c += CHANNELS) {
                    const float* own = weights + (tap * L::CHUNK_WORDS + c) * L::WIDE;
                    float filters[CHANNELS][L::OWN];
#pragma unroll
                    for (int i = 0; i < CHANNELS * L::OWN; i += 4) {
                        const float4 four = *reinterpret_cast<const float4*>(own + i);
#pragma unroll
                        for (int k = i; k < i + 4; ++k)
                            filters[k % CHANNELS][k / CHANNELS] = of(four, k - i);
                    }
                    // To and fro, so that one operand of each is the one before's.
#pragma unroll
                    for (int i = 0; i < CHANNELS * L::OWN * L::TALL; ++i) {
                        const int k = i / (L::OWN * L::TALL), f = i / L::TALL % L::OWN;
                        const int y = f % 2 ? L::TALL - 1 - i % L::TALL : i % L::TALL;
                        float& to = (k ? odd : even)[y][f];
                        to = fmaf(of(line[(y + down) % L::TALL], c + k), filters[k][f], to);
                    }
                }
            }
        }
    }

    // A chunk's products, FOURS of four channels.
    template <int FOURS>
    __device__ __forceinline__ void add_chunk(
        float (&even)[L::TALL][L::OWN], float (&odd)[L::TALL][L::OWN], const Mine& mine,
        Turns& turns) const
    {
        const char* pixel = bytes() + L::STAGES * R::WEIGHT_BYTES
            + turns.pictures.stage * R::PICTURE_BYTES
            + (R::patch_at(mine) + threadIdx.x % TW_PATCH) * L::PIXEL_BYTES;
        wait_for(this->pictures_full + 8 * turns.pictures.stage, turns.pictures.phase);
#pragma unroll 1
        for (int tap = 0; tap < L::TURNS; ++tap) {
            const char* from = pixel + R::tap_at(tap) * L::PIXEL_BYTES;
            const float* weights =
                reinterpret_cast<const float*>(bytes() + turns.weights.stage * R::WEIGHT_BYTES)
                + CHANNELS * mine.filter;
            wait_for(this->weights_full + 8 * turns.weights.stage, turns.weights.phase);
#pragma unroll (L::TAPS_Y < 3 ? 2 : 1)
            for (int four = 0; four < FOURS; ++four)
                add_four(even, odd, from + 16 * four, weights + 4 * L::WIDE * four);
            turns.done_weights = this->weights_empty + 8 * turns.weights.stage;
            turns.weights.next();
            if (tap == L::TURNS - 1)
                turns.done_picture = this->pictures_empty + 8 * turns.pictures.stage;
            __syncwarp();
            turns.give_back();
        }
        turns.pictures.next();
    }

    // All sums of a piece of work, from the bias on.
    __device__ __forceinline__ void add_up(
        float (&sum)[L::TALL][L::OWN], const float* bias, Turns& turns) const
    {
        const Mine mine;
#pragma unroll
        for (int f = 0; f < L::OWN; ++f) {
            const float begin = __ldg(bias + mine.filter + f);
#pragma unroll
            for (int y = 0; y < L::TALL; ++y)
                sum[y][f] = begin;
        }
        float odd[L::TALL][L::OWN] = {};
        constexpr int LESS = L::LAST_STEPS < R::PIECES;  // whether the last chunk is shorter
#pragma unroll 1
        for (int chunk = LESS; chunk < L::CHUNKS; ++chunk)
            add_chunk<R::PIECES>(sum, odd, mine, turns);
        if constexpr (LESS)
            add_chunk<L::LAST_STEPS>(sum, odd, mine, turns);
#pragma unroll
        for (int i = 0; i < (L::TWICE ? L::TALL * L::OWN : 0); ++i)
            sum[i / L::OWN][i % L::OWN] += odd[i / L::OWN][i % L::OWN];
    }

    // Of a pooling window a lane has a column, and the lane beside it the other.
    static __device__ __forceinline__ void put(
        const float (&sum)[L::TALL][L::OWN], word* results, const word* added,
        const Work<L>& work, int count)
    {
        const Mine mine;
        const int filter = work.column * L::WIDE + mine.filter;
#pragma unroll
        for (int first = 0; first < L::TALL; first += 2) {
            int image[2], pixel[2];
            bool here[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const Position<L> at(work, mine, first + i, threadIdx.x % TW_PATCH);
                const int row = L::POOL ? at.y / 2 : at.y, column = L::POOL ? at.x / 2 : at.x;
                image[i] = at.image;
                pixel[i] = row * L::RESULT_X + column;
                here[i] = at.image < count && row < L::RESULT_Y && column < L::RESULT_X
                    && !(L::POOL && at.x % 2);
            }
            word more[2][L::OWN / 4][4];
#pragma unroll
            for (int i = 0; i < L::OWN / 2 && L::ADDED; ++i)
                if (here[i % 2] && first + i % 2 < L::TALL && filter + i / 2 * 4 < L::FILTERS)
                    Results<L>::template read_added<4>(more[i % 2][i / 2], added, image[i % 2],
                                                       pixel[i % 2], filter + i / 2 * 4);
#pragma unroll
            for (int i = 0; i < L::OWN / 2; i += L::POOL ? 2 : 1) {
                const int below = i % 2, f = i / 2 * 4;
                float values[4];
                if (first + below >= L::TALL)
                    continue;
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    values[k] = sum[first + below][f + k];
                    if (L::POOL) {
                        const float both =
                            Results<L>::first_pooled(
                                sum[first][f + k], sum[(first + 1) % L::TALL][f + k]);
                        values[k] = Results<L>::pooled(
                            both, __shfl_xor_sync(0xffffffff, both, R::BESIDE));
                    }
                }
                if (here[below] && filter + f < L::FILTERS)
                    Results<L>::put_filters(values, more[below][i / 2], results, image[below],
                                            pixel[below], filter + f);
            }
        }
    }
};
