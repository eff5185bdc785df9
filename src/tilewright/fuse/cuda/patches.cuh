// A convolution of many channels whose operands tensor cores read in shared memory, both of them.
// Needs words.cuh, panels.cuh, shared.cuh, and `multiply_wide` for COLUMNS columns.
//
// 64 rows of an instruction are a patch, 8 x 8 positions of the picture: eight neighbours are a group
// of rows, and groups lie as far apart as rows of the picture do. So a picture is fetched once, with
// what is around it, and every tap reads it from another place on. A block takes IMAGES x DOWN x
// ACROSS patches and WIDE filters. What is 64 rows, and a column, may be exchanged (TURNED): an
// instruction costs some time for its rows, so that it is best with many columns, be they filters or
// positions, then of DOWN patches one above the other. Four warps have UNITS instructions' sums.
//
// What a tap needs of the channels' chunks of 128 bytes comes through two rings: PICTURES chunks of
// pictures, STAGES of weights. Four warps more begin the copies, one of them those of weights, and
// leave their registers to the others. A block works on until nothing is left.
//
// With strides, pixels that a tap reads as neighbours lie as such: all with the same remainders of
// their coordinates are a plane of their own.

#define TW_PATCH 8
#define TW_PIXEL_BYTES 128
#define TW_PIXEL_WORDS 32
#define TW_FETCHING 96  // threads that fetch pictures
#define TW_PIECES 8  // of a pixel's chunk

// A place in a ring, and how often it was used before, odd or even.
template <int STAGES>
struct Turn {
    int stage = 0, phase = 0;

    __device__ __forceinline__ void next()
    {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

// Which filters, images and positions a piece of work is: its first.
template <class L>
struct Work {
    int column, image, y, x;

    __device__ __forceinline__ Work(int number)
    {
        column = number % L::COLUMN_BLOCKS;
        number /= L::COLUMN_BLOCKS;
        x = number % L::BLOCKS_X * (TW_PATCH * L::ACROSS);
        number /= L::BLOCKS_X;
        y = number % L::BLOCKS_Y * (TW_PATCH * L::DOWN);
        image = number / L::BLOCKS_Y * L::IMAGES;
    }

    static __device__ __forceinline__ int all(int images)
    {
        return (images + L::IMAGES - 1) / L::IMAGES * L::BLOCKS_Y * L::BLOCKS_X * L::COLUMN_BLOCKS;
    }
};

template <class L>
struct Patches {
    static constexpr int PICTURE_BYTES = L::SLOTS * TW_PIXEL_BYTES;
    static constexpr int WEIGHT_BYTES = L::WIDE * TW_PIXEL_BYTES;
    static constexpr int TAPS = L::TAPS_Y * L::TAPS_X;
    static constexpr int ADDING = 128 * L::GROUPS;  // threads
    static constexpr int USED = L::IMAGES * L::PLANES_Y * L::PLANES_X * L::ROWS * L::PITCH;
    const uint4* memory;
    word pictures, weights;  // where the rings begin
    word pictures_full, pictures_empty, weights_full, weights_empty;

    // Behind the rings.
    __device__ __forceinline__ const int2* at_places() const
    {
        return reinterpret_cast<const int2*>(
            memory + (L::STAGES * WEIGHT_BYTES + L::PICTURES * PICTURE_BYTES) / 16);
    }

    __device__ __forceinline__ void begin(const uint4* all, const void* barriers)
    {
        memory = all;
        weights = shared_address(memory);
        pictures = weights + L::STAGES * WEIGHT_BYTES;
        pictures_full = shared_address(barriers);
        pictures_empty = pictures_full + 8 * L::PICTURES;
        weights_full = pictures_empty + 8 * L::PICTURES;
        weights_empty = weights_full + 8 * L::STAGES;
        if (threadIdx.x == 0) {
            for (int stage = 0; stage < L::PICTURES; ++stage) {
                begin_barrier(pictures_full + 8 * stage, TW_FETCHING);
                begin_barrier(pictures_empty + 8 * stage, ADDING / 32);
            }
            for (int stage = 0; stage < L::STAGES; ++stage) {
                begin_barrier(weights_full + 8 * stage, 1);
                begin_barrier(weights_empty + 8 * stage, ADDING / 32);
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
    }

    // ---- what comes in ---------------------------------------------------------------------------

    __device__ __forceinline__ void fetch_weights(const word* from, int count) const
    {
        Turn<L::STAGES> turn;
        if (threadIdx.x % 32)
            return;
        for (int number = blockIdx.x; number < Work<L>::all(count); number += gridDim.x) {
            const word* next = from
                + size_t(Work<L>(number).column) * (L::CHUNKS * TAPS * L::WIDE * TW_PIXEL_WORDS);
#pragma unroll 1
            for (int tap = 0; tap < L::CHUNKS * TAPS; ++tap) {
                wait_for(weights_empty + 8 * turn.stage, turn.phase ^ 1);
                expect(weights_full + 8 * turn.stage, WEIGHT_BYTES);
                copy(weights + turn.stage * WEIGHT_BYTES, next, WEIGHT_BYTES,
                     weights_full + 8 * turn.stage);
                next += L::WIDE * TW_PIXEL_WORDS;
                turn.next();
            }
        }
    }

    // Where the pixel lies that belongs to each place of a chunk, from the work's first on: its word,
    // its row and its column. By the threads that fetch pictures, once for all.
    __device__ __forceinline__ void find_places() const
    {
        int2* places = const_cast<int2*>(at_places());
        for (int slot = threadIdx.x - ADDING - 32; slot < USED; slot += TW_FETCHING) {
            const int plane = slot / L::PITCH / L::ROWS;
            const int y = slot / L::PITCH % L::ROWS * L::STRIDE_Y
                + plane / L::PLANES_X % L::PLANES_Y;
            const int x = slot % L::PITCH * L::STRIDE_X + plane % L::PLANES_X;
            const int row = plane / (L::PLANES_Y * L::PLANES_X) * L::HEIGHT + y;
            places[slot] = make_int2((row * L::WIDTH + x) * L::WORDS, y << 16 | x);
        }
        asm volatile("bar.sync 1, %0;" ::"n"(TW_FETCHING) : "memory");
    }

    // Where a place's piece lies in a chunk.
    static __device__ __forceinline__ word piece_of_place(word picture, int slot, int piece)
    {
        return picture + slot * TW_PIXEL_BYTES + ((piece ^ slot) % TW_PIECES) * 16;
    }

    __device__ __forceinline__ void fetch_pictures(const word* images, int count) const
    {
        constexpr int STEP = TW_FETCHING / TW_PIECES;
        const int thread = threadIdx.x - ADDING - 32, piece = thread % TW_PIECES;
        const int2* places = at_places();
        Turn<L::PICTURES> turn;
        find_places();
        for (int number = blockIdx.x; number < Work<L>::all(count); number += gridDim.x) {
            const Work<L> work(number);
            const int top = work.y * L::STRIDE_Y - L::TOP, left = work.x * L::STRIDE_X - L::LEFT;
            const int used = min(L::IMAGES, count - work.image) * (USED / L::IMAGES);
            const word* next = images + piece * 4
                + ((long long)(work.image) * L::HEIGHT + top) * (L::WIDTH * L::WORDS)
                + left * L::WORDS;
#pragma unroll 1
            for (int chunk = 0; chunk < L::CHUNKS; ++chunk) {
                const word picture = pictures + turn.stage * PICTURE_BYTES;
                const bool in_pixel = chunk * TW_PIXEL_WORDS + piece * 4 < L::WORDS;
                wait_for(pictures_empty + 8 * turn.stage, turn.phase ^ 1);
#pragma unroll 4
                for (int slot = thread / TW_PIECES; slot < USED; slot += STEP) {
                    const int2 place = places[slot];
                    const int y = top + (place.y >> 16), x = left + (place.y & 0xffff);
                    const bool there = unsigned(y) < L::HEIGHT && unsigned(x) < L::WIDTH
                        && slot < used && in_pixel;
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                                 ::"r"(piece_of_place(picture, slot, piece)), "l"(next + place.x),
                                 "r"(there ? 16 : 0) : "memory");
                }
                const word full = pictures_full + 8 * turn.stage;
                if (L::ROUNDS) {
                    fetched();
                    for (int slot = thread / TW_PIECES; slot < USED; slot += STEP)
                        round_piece(piece_of_place(picture, slot, piece));
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                    arrive(full);
                } else {
                    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full)
                                 : "memory");
                }
                next += TW_PIXEL_WORDS;
                turn.next();
            }
        }
        fetched();  // before anybody leaves
    }

    // Floats as operands.
    static __device__ __forceinline__ void round_piece(word at)
    {
        float x[4];
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(at) : "memory");
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(operand(x[0])),
                     "r"(operand(x[1])), "r"(operand(x[2])), "r"(operand(x[3])) : "memory");
    }

    // ---- sums ------------------------------------------------------------------------------------

    // Where a unit's patches begin, in places.
    template <class U>
    static __device__ __forceinline__ int patch_at(const U& unit)
    {
        constexpr int IMAGE = L::PLANES_Y * L::PLANES_X * L::ROWS * L::PITCH;
        return unit.image() * IMAGE + unit.y() * L::PITCH + unit.x();
    }

    // How far from there a tap reads.
    static __device__ __forceinline__ int tap_at(int tap)
    {
        const int y = tap / L::TAPS_X, x = tap % L::TAPS_X;
        const int plane = y % L::STRIDE_Y * L::PLANES_X + x % L::STRIDE_X;
        return (plane * L::ROWS + y / L::STRIDE_Y) * L::PITCH + x / L::STRIDE_X;
    }

    // Where a thread that adds up is in both rings, and what it gives back next.
    struct Turns {
        Turn<L::PICTURES> pictures;
        Turn<L::STAGES> weights;
        word done_picture = 0, done_weights = 0;

        __device__ __forceinline__ void give_back()
        {
            if (threadIdx.x % 32 == 0 && done_weights)
                arrive(done_weights);
            if (threadIdx.x % 32 == 0 && done_picture)
                arrive(done_picture);
            done_picture = done_weights = 0;
        }
    };

    // The n-th unit of these four warps: the patch, or the first of those above each other, and 64
    // filters of the block where these are rows.
    struct Unit {
        int patch, band;

        __device__ __forceinline__ Unit(int n)
        {
            const int group = threadIdx.x / 128;
            if constexpr (L::TURNED) {
                constexpr int BANDS = L::WIDE / 64;
                const int strip = group * (L::UNITS / BANDS) + n / BANDS;
                patch = strip / L::ACROSS * (L::DOWN * L::ACROSS) + strip % L::ACROSS;
                band = n % BANDS;
            } else {
                patch = group * L::UNITS + n;
                band = 0;
            }
        }

        __device__ __forceinline__ int image() const { return patch / (L::DOWN * L::ACROSS); }
        __device__ __forceinline__ int y() const
        {
            return patch / L::ACROSS % L::DOWN * TW_PATCH;
        }
        __device__ __forceinline__ int x() const { return patch % L::ACROSS * TW_PATCH; }
    };

    // A chunk's products, STEPS of two pieces each. What a tap read is given back when the next tap's
    // products have begun.
    template <int STEPS>
    __device__ __forceinline__ void add_chunk(
        float (&sum)[L::UNITS][L::COLUMNS / 2], Turns& turns) const
    {
        unsigned long long positions[L::UNITS];
        // Of one chunk of pictures at a time the last must be given back before the next can come.
        if (L::PICTURES == 1 && turns.done_picture) {
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            turns.give_back();
        }
        wait_for(pictures_full + 8 * turns.pictures.stage, turns.pictures.phase);
        // What threads have copied is seen by tensor cores.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#pragma unroll
        for (int n = 0; n < L::UNITS; ++n)
            positions[n] = described(pictures + turns.pictures.stage * PICTURE_BYTES
                                         + patch_at(Unit(n)) * TW_PIXEL_BYTES,
                                     L::PITCH * TW_PIXEL_BYTES);
#pragma unroll 1
        for (int tap = 0; tap < TAPS; ++tap) {
            const int reach = tap_at(tap) * (TW_PIXEL_BYTES / 16);
            const unsigned long long filters =
                described(weights + turns.weights.stage * WEIGHT_BYTES, 8 * TW_PIXEL_BYTES);
            wait_for(weights_full + 8 * turns.weights.stage, turns.weights.phase);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int i = 0; i < STEPS; ++i)
#pragma unroll
                for (int n = 0; n < L::UNITS; ++n) {
                    const unsigned long long own = filters + 2 * i
                        + Unit(n).band * (64 * TW_PIXEL_BYTES / 16);
                    if (L::TURNED)
                        multiply_wide(sum[n], own, positions[n] + reach + 2 * i);
                    else
                        multiply_wide(sum[n], positions[n] + reach + 2 * i, own);
                }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            turns.give_back();
            turns.done_weights = weights_empty + 8 * turns.weights.stage;
            turns.weights.next();
        }
        turns.done_picture = pictures_empty + 8 * turns.pictures.stage;
        turns.pictures.next();
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
#pragma unroll 1
        for (int chunk = 1; chunk < L::CHUNKS; ++chunk)
            add_chunk<TW_PIECES / 2>(sum, turns);
        add_chunk<L::LAST_STEPS>(sum, turns);
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        hold(sum);
        turns.give_back();
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
            const int image = work.image + own.image();
            const int y = work.y + own.y() + 2 * warp, x = work.x + own.x() + g;
            const int pixel = L::POOL ? y / 2 * L::RESULT_X + x / 2 : y * L::RESULT_X + x;
            const int filter = work.column * L::WIDE + column_filter(0);
            bool mine[2];
            mine[0] = image < count && !(L::POOL && g % 2)
                && (L::POOL ? y / 2 : y) < L::RESULT_Y && (L::POOL ? x / 2 : x) < L::RESULT_X;
            mine[1] = mine[0] && y + 1 < L::RESULT_Y;
#pragma unroll
            for (int first = 0; first < EIGHTS; first += AT_ONCE) {
                word more[AT_ONCE][2][8 / TW_PER_WORD];
#pragma unroll
                for (int i = 0; i < 2 * AT_ONCE && L::ADDED; ++i)
                    if (mine[i % 2] && filter + (first + i / 2) * 32 < L::FILTERS)
                        read_added<8>(more[i / 2][i % 2], added, image, pixel + i % 2 * L::RESULT_X,
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
                            const float both = first_pooled(two[0], two[2]);
                            values[k] = pooled(both, __shfl_xor_sync(0xffffffff, both, 4));
                        } else {
                            values[k] = two[2 * half];
                        }
                    }
                    if (mine[half] && filter + eight * 32 < L::FILTERS)
                        put_filters(values, more[i / 2][half], results, image,
                                    pixel + half * L::RESULT_X, filter + eight * 32);
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
            const int image = work.image + own.image(), x = work.x + own.x() + 2 * t;
            const int filter = work.column * L::WIDE + row_filter(unit);
            const bool mine = image < count && filter < L::FILTERS;
#pragma unroll
            for (int first = 0; first < L::COLUMNS / 8; first += AT_ONCE) {
                word more[AT_ONCE][2][2 / TW_PER_WORD];
#pragma unroll
                for (int i = 0; i < 2 * AT_ONCE && L::ADDED; ++i) {
                    const int row = work.y + first + i / 2, column = x + i % 2;
                    if (mine && row < L::RESULT_Y && column < L::RESULT_X)
                        read_added<2>(more[i / 2][i % 2], added, image, row * L::RESULT_X + column,
                                      filter);
                }
#pragma unroll
                for (int i = 0; i < 2 * AT_ONCE; i += L::POOL ? 4 : 1) {
                    const float* four = sum[unit] + 4 * (first + i / 2);  // filter, column
                    const int y = work.y + first + i / 2, beside = i % 2;
                    const int row = L::POOL ? y / 2 : y, column = L::POOL ? x / 2 : x + beside;
                    float values[2];
#pragma unroll
                    for (int j = 0; j < 2; ++j)
                        values[j] = L::POOL
                            ? pooled(first_pooled(four[2 * j], four[2 * j + 1]),
                                     first_pooled(four[(2 * j + 4) % (L::COLUMNS / 2)],
                                                  four[(2 * j + 5) % (L::COLUMNS / 2)]))
                            : four[2 * j + beside];
                    if (mine && row < L::RESULT_Y && column < L::RESULT_X)
                        put_filters(values, more[i / 2][beside], results, image,
                                    row * L::RESULT_X + column, filter);
                }
            }
        }
    }

    // What two positions of a pooling window come to, and then all four.
    static __device__ __forceinline__ float first_pooled(float a, float b)
    {
        if (L::POOL == TW_POOL_MAX)
            return maximum(a, b);
        a = L::before(a);
        b = L::before(b);
        return L::POOL == TW_POOL_MAX_OF_EACH ? maximum(a, b) : a + b;
    }

    static __device__ __forceinline__ float pooled(float two, float others)
    {
        if (L::POOL == TW_POOL_MAX)
            return L::before(maximum(two, others));
        return L::POOL == TW_POOL_MAX_OF_EACH ? maximum(two, others) : 0.25f * (two + others);
    }

    // What is added to some filters of a pixel that follow each other.
    template <int COUNT>
    static __device__ __forceinline__ void read_added(
        word (&more)[COUNT / TW_PER_WORD], const word* added, int image, int pixel, int filter)
    {
        const word* from = added + size_t(image) * (L::RESULT_Y * L::RESULT_X * L::OUT_WORDS)
            + pixel * L::OUT_WORDS + filter / TW_PER_WORD;
        if constexpr (COUNT / TW_PER_WORD == 1) {
            more[0] = __ldg(from);
        } else if constexpr (COUNT / TW_PER_WORD == 2) {
            const uint2 two = __ldg(reinterpret_cast<const uint2*>(from));
            more[0] = two.x;
            more[1] = two.y;
        } else {
#pragma unroll
            for (int i = 0; i < COUNT / TW_PER_WORD; i += 4) {
                const uint4 four = __ldg(reinterpret_cast<const uint4*>(from + i));
                more[i] = four.x;
                more[i + 1] = four.y;
                more[i + 2] = four.z;
                more[i + 3] = four.w;
            }
        }
    }

    // Their values, with what is added and activations.
    template <int COUNT>
    static __device__ __forceinline__ void put_filters(
        float (&values)[COUNT], const word (&more)[COUNT / TW_PER_WORD], word* results, int image,
        int pixel, int filter)
    {
        constexpr int ALL = COUNT / TW_PER_WORD, WORDS = ALL < 4 ? ALL : 4;
        word made[ALL];
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            values[k] = L::after(
                L::ADDED ? L::before(values[k]) + value_of(more[k / TW_PER_WORD], k) : values[k]);
#pragma unroll
        for (int k = 0; k < ALL; ++k)
            made[k] = word_of(values[k * TW_PER_WORD], values[(k + 1) * TW_PER_WORD - 1]);
#pragma unroll
        for (int i = 0; i < ALL; i += WORDS) {
            const int at = pixel * L::OUT_WORDS + filter / TW_PER_WORD + i;
            word* to = results
                + (L::TO_PANELS ? piece_at<L::OUT_PIECES>(image, at / 4) + at % 4
                                : size_t(image) * L::RESULT_WORDS + at);
            if constexpr (WORDS == 4)
                *reinterpret_cast<uint4*>(to) =
                    make_uint4(made[i], made[i + 1], made[i + 2], made[i + 3]);
            else if constexpr (WORDS == 2)
                *reinterpret_cast<uint2*>(to) = make_uint2(made[0], made[1]);
            else
                *to = made[0];
        }
    }

    static __device__ __forceinline__ float value_of(word both, int half)
    {
#if TW_PER_WORD == 2
        const float2 two = unpack(both);
        return half % 2 ? two.y : two.x;
#else
        return __uint_as_float(both);
#endif
    }

    static __device__ __forceinline__ word word_of(float low, float high)
    {
#if TW_PER_WORD == 2
        return pack(low, high);
#else
        return L::TO == TW_TO_OPERANDS ? operand(low) : __float_as_uint(low);
#endif
    }
};
