// A convolution of many channels whose operands tensor cores read in shared memory, both of them.
// Needs patches.cuh, and `multiply_wide` for COLUMNS columns.
//
// Tensor cores cut off what they add: of operands in parts, whose sums would lose what the second
// parts gain, the products of TAPS_A_SUM taps are added up there, and such sums by threads.
//
// 64 rows of an instruction are a patch: eight neighbours are a group of rows, and groups lie as far
// apart as rows of the picture do. What is 64 rows, and a column, may be exchanged (TURNED): an
// instruction costs some time for its rows, so that it is best with many columns, be they filters or
// positions, then of DOWN patches one above the other. Four warps have UNITS instructions' sums.
// A pixel's chunk is 128 bytes, and so is a filter's, for a tap; of each part, where there are two:
// all first ones, then all second ones.

template <class L>
struct Patches : Rings<L>, Results<L> {
    using R = Rings<L>;
    using Turns = typename R::Turns;
    static constexpr int TAPS = L::TAPS_Y * L::TAPS_X;
    // Of a step: of parts those that are not too small to count, the smaller ones first.
    static constexpr int PRODUCTS = TW_PARTS * (TW_PARTS + 1) / 2;
    static_assert(L::PIXEL_BYTES == 128 && L::TURNS == TAPS, "");

    // The n-th unit of these four warps: the patch, or the first of those above each other, and 64
    // filters of the block where these are rows.
    struct Unit : Patch<L> {
        int band;

        __device__ __forceinline__ Unit(int n)
        {
            const int group = threadIdx.x / 128;
            if constexpr (L::TURNED) {
                constexpr int BANDS = L::WIDE / 64;
                const int strip = group * (L::UNITS / BANDS) + n / BANDS;
                this->number = strip / L::ACROSS * (L::DOWN * L::ACROSS) + strip % L::ACROSS;
                band = n % BANDS;
            } else {
                this->number = group * L::UNITS + n;
                band = 0;
            }
        }
    };

    // A chunk's products, STEPS of two pieces each. What a tap read is given back when the next tap's
    // products have begun. Of operands in parts those of `taps` taps are in `sum`, and not in `whole`.
    template <int STEPS>
    __device__ __forceinline__ void add_chunk(
        float (&sum)[L::UNITS][L::COLUMNS / 2], float (&whole)[L::UNITS][L::COLUMNS / 2], int& taps,
        Turns& turns) const
    {
        unsigned long long positions[L::UNITS];
        // Of one chunk of pictures at a time the last must be given back before the next can come.
        if (L::PICTURES == 1 && turns.done_picture) {
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            turns.give_back();
        }
        wait_for(this->pictures_full + 8 * turns.pictures.stage, turns.pictures.phase);
        // What threads have copied is seen by tensor cores.
        seen_by_copies();
#pragma unroll
        for (int n = 0; n < L::UNITS; ++n)
            positions[n] = described(this->pictures + turns.pictures.stage * R::PICTURE_BYTES
                                         + R::patch_at(Unit(n)) * L::PIXEL_BYTES,
                                     R::BELOW * L::PIXEL_BYTES);
#pragma unroll 1
        for (int tap = 0; tap < TAPS; ++tap) {
            const int reach = R::tap_at(tap) * (L::PIXEL_BYTES / 16);
            const unsigned long long filters =
                described(this->weights + turns.weights.stage * R::WEIGHT_BYTES, 8 * L::PIXEL_BYTES);
            wait_for(this->weights_full + 8 * turns.weights.stage, turns.weights.phase);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int i = 0; i < STEPS * PRODUCTS; ++i)
#pragma unroll
                for (int n = 0; n < L::UNITS; ++n) {
                    const int step = i / PRODUCTS, left = PRODUCTS - 1 - i % PRODUCTS;
                    const unsigned long long own = filters + 2 * step
                        + (Unit(n).band * 64 + (left == 1) * L::WIDE) * (L::PIXEL_BYTES / 16);
                    const unsigned long long place = positions[n] + reach + 2 * step
                        + (left == 2) * (R::PART_BYTES / 16);
                    const unsigned long long rows = L::TURNED ? own : place;
                    const unsigned long long columns = L::TURNED ? place : own;
                    if constexpr (TW_PARTS == 1)
                        multiply_wide(sum[n], rows, columns);
                    else
                        multiply_wide(sum[n], rows, columns, i + taps);
                }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            turns.give_back();
            turns.done_weights = this->weights_empty + 8 * turns.weights.stage;
            turns.weights.next();
            if (TW_PARTS > 1 && ++taps == L::TAPS_A_SUM)
                add_to_whole(sum, whole, taps);
        }
        turns.done_picture = this->pictures_empty + 8 * turns.pictures.stage;
        turns.pictures.next();
    }

    static __device__ __forceinline__ void add_to_whole(
        float (&sum)[L::UNITS][L::COLUMNS / 2], float (&whole)[L::UNITS][L::COLUMNS / 2], int& taps)
    {
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        hold(sum);
#pragma unroll
        for (int n = 0; n < L::UNITS; ++n)
#pragma unroll
            for (int i = 0; i < L::COLUMNS / 2; ++i)
                whole[n][i] += sum[n][i];
        taps = 0;
    }

    // All sums of a piece of work, from the bias on.
    __device__ __forceinline__ void add_up(
        float (&sum)[L::UNITS][L::COLUMNS / 2], const float* bias, Turns& turns) const
    {
#pragma unroll
        for (int n = 0; n < L::UNITS; ++n)
#pragma unroll
            for (int i = 0; i < L::COLUMNS / 2; ++i)
                sum[n][i] = __ldg(bias + (L::TURNED ? row_filter(n) + i / 2 % 2
                                                    : column_filter(i / 4) + i % 2));
        hold(sum);
        if constexpr (TW_PARTS == 1) {
            add_chunks(sum, sum, turns);
        } else {
            float few[L::UNITS][L::COLUMNS / 2];
            add_chunks(few, sum, turns);
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        hold(sum);
        turns.give_back();
    }

    __device__ __forceinline__ void add_chunks(
        float (&sum)[L::UNITS][L::COLUMNS / 2], float (&whole)[L::UNITS][L::COLUMNS / 2],
        Turns& turns) const
    {
        int taps = 0;
#pragma unroll 1
        for (int chunk = 1; chunk < L::CHUNKS; ++chunk)
            add_chunk<R::PIECES / 2>(sum, whole, taps, turns);
        add_chunk<L::LAST_STEPS>(sum, whole, taps, turns);
        if (TW_PARTS > 1 && taps)
            add_to_whole(sum, whole, taps);
    }

    // The compiler is to leave sums alone from here on, or until here.
    static __device__ __forceinline__ void hold(float (&sum)[L::UNITS][L::COLUMNS / 2])
    {
#pragma unroll
        for (int n = 0; n < L::UNITS; ++n)
#pragma unroll
            for (int i = 0; i < L::COLUMNS / 2; ++i)
                asm volatile("" : "+f"(sum[n][i])::"memory");
    }

    // ---- what goes out ---------------------------------------------------------------------------

    // The first of a lane's two filters in the n-th column of 8: weights lie so that in four columns
    // a lane has eight that follow each other.
    static __device__ __forceinline__ int column_filter(int n)
    {
        return n / 4 * 32 + threadIdx.x % 4 * 8 + n % 4 * 2;
    }

    // The same where filters are rows: weights lie so that a lane's two rows, 8 apart, are two filters
    // that follow each other.
    static __device__ __forceinline__ int row_filter(int n)
    {
        return Unit(n).band * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 * 2;
    }

    __device__ __forceinline__ void put(
        const float (&sum)[L::UNITS][L::COLUMNS / 2], word* results, const word* added,
        const Work<L>& work, int count) const
    {
        if constexpr (L::TURNED)
            put_rows(sum, results, added, work, count);
        else
            put_columns(sum, results, added, work, count);
    }

    // Lane 4g+t of the w-th of four warps has rows 2w and 2w+1 of a patch, column g. What is added to
    // some filters is read before any of them is written: one after the other, each would wait.
    static __device__ __forceinline__ void put_columns(
        const float (&sum)[L::UNITS][L::COLUMNS / 2], word* results, const word* added,
        const Work<L>& work, int count)
    {
        constexpr int EIGHTS = L::COLUMNS / 32, AT_ONCE = EIGHTS % 2 ? 1 : 2;
        const int g = threadIdx.x % 32 / 4, warp = threadIdx.x / 32 % 4;
#pragma unroll
        for (int unit = 0; unit < L::UNITS; ++unit) {
            const Unit own(unit);
            const int filter = work.column * L::WIDE + column_filter(0);
            int image[2], pixel[2];
            bool mine[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const Position<L> at(work, own, 2 * warp + i, g);
                const int row = L::POOL ? at.y / 2 : at.y, column = L::POOL ? at.x / 2 : at.x;
                image[i] = at.image;
                pixel[i] = row * L::RESULT_X + column;
                mine[i] = at.image < count && !(L::POOL && g % 2) && row < L::RESULT_Y
                    && column < L::RESULT_X;
            }
#pragma unroll
            for (int first = 0; first < EIGHTS; first += AT_ONCE) {
                word more[AT_ONCE][2][8 / TW_PER_WORD];
#pragma unroll
                for (int i = 0; i < 2 * AT_ONCE && L::ADDED; ++i)
                    if (mine[i % 2] && filter + (first + i / 2) * 32 < L::FILTERS)
                        Results<L>::template read_added<8>(
                            more[i / 2][i % 2], added, image[i % 2], pixel[i % 2],
                            filter + (first + i / 2) * 32);
#pragma unroll
                for (int i = 0; i < 2 * AT_ONCE; i += L::POOL ? 2 : 1) {
                    const int eight = first + i / 2, half = i % 2;
                    float values[8];
#pragma unroll
                    for (int k = 0; k < 8; ++k) {
                        const float* two = sum[unit] + 4 * (4 * eight + k / 2) + k % 2;
                        if (L::POOL) {
                            // The lane beside this one has the window's other column.
                            const float both = Results<L>::first_pooled(two[0], two[2]);
                            values[k] = Results<L>::pooled(both, __shfl_xor_sync(0xffffffff, both, 4));
                        } else {
                            values[k] = two[2 * half];
                        }
                    }
                    const int own = filter + eight * 32;
                    if constexpr (Results<L>::IN_TURNS)
                        Results<L>::put_in_turns(values, more[i / 2][half], results, image[half],
                                                 pixel[half], own, mine[half]);
                    else if (mine[half] && own < L::FILTERS)
                        Results<L>::put_filters(values, more[i / 2][half], results, image[half],
                                                pixel[half], own);
                }
            }
        }
    }

    // Lane 4g+t has columns 2t and 2t+1 of every row of the patches above each other.
    static __device__ __forceinline__ void put_rows(
        const float (&sum)[L::UNITS][L::COLUMNS / 2], word* results, const word* added,
        const Work<L>& work, int count)
    {
        constexpr int AT_ONCE = 4 * TW_PER_WORD;  // rows
        const int t = threadIdx.x % 4;
#pragma unroll
        for (int unit = 0; unit < L::UNITS; ++unit) {
            const Unit own(unit);
            const int filter = work.column * L::WIDE + row_filter(unit);
#pragma unroll
            for (int first = 0; first < L::COLUMNS / 8; first += AT_ONCE) {
                word more[AT_ONCE][2][2 / TW_PER_WORD];
#pragma unroll
                for (int i = 0; i < 2 * AT_ONCE && L::ADDED; ++i) {
                    const Position<L> at(work, own, first + i / 2, 2 * t + i % 2);
                    if (at.image < count && filter < L::FILTERS && at.y < L::RESULT_Y
                        && at.x < L::RESULT_X)
                        Results<L>::template read_added<2>(more[i / 2][i % 2], added, at.image,
                                                           at.y * L::RESULT_X + at.x, filter);
                }
#pragma unroll
                for (int i = 0; i < 2 * AT_ONCE; i += L::POOL ? 4 : 1) {
                    const float* four = sum[unit] + 4 * (first + i / 2);  // filter, column
                    const int beside = i % 2;
                    const Position<L> at(work, own, first + i / 2, 2 * t + beside);
                    const int row = L::POOL ? at.y / 2 : at.y, column = L::POOL ? at.x / 2 : at.x;
                    float values[2];
#pragma unroll
                    for (int j = 0; j < 2; ++j)
                        values[j] = L::POOL
                            ? Results<L>::pooled(Results<L>::first_pooled(four[2 * j], four[2 * j + 1]),
                                     Results<L>::first_pooled(four[(2 * j + 4) % (L::COLUMNS / 2)],
                                                  four[(2 * j + 5) % (L::COLUMNS / 2)]))
                            : four[2 * j + beside];
                    if (at.image < count && filter < L::FILTERS && row < L::RESULT_Y
                        && column < L::RESULT_X)
                        Results<L>::put_filters(values, more[i / 2][beside], results, at.image,
                                                row * L::RESULT_X + column, filter);
                }
            }
        }
    }
};
