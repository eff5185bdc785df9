// A convolution of many channels whose operands tensor cores read in shared memory, both of them.
// Needs words.cuh, panels.cuh, barriers.cuh, and `multiply_wide` for WIDE columns.
//
// 64 rows of an instruction are a patch, 8 x 8 positions of the picture: eight neighbours are a group
// of rows, and groups lie as far apart as rows of the picture do. So a picture is fetched once, with
// what is around it, and every tap reads it from another place on. A block takes IMAGES x DOWN x
// ACROSS patches and WIDE filters; four warps take TALL of its patches. What a tap needs of the
// channels' chunks of 128 bytes comes through two rings: PICTURES chunks of pictures, STAGES of
// weights. Four warps more begin the copies, one of them those of weights, and leave their registers
// to the others. A block works on until nothing is left.
//
// With strides, pixels that a tap reads as neighbours lie as such: all with the same remainders of
// their coordinates are a plane of their own.

#define TW_PATCH 8
#define TW_PIXEL_BYTES 128
#define TW_PIXEL_WORDS 32
#define TW_FETCHING 96  // threads that fetch pictures
#define TW_PIECES 8  // of a pixel's chunk

// What tensor cores are told of operands: so many bytes are between groups of 8 rows, and pieces
// change places over 128 bytes, by where they lie.
__device__ __forceinline__ unsigned long long described(word at, int apart)
{
    return ((at & 0x3ffff) >> 4) | 1ull << 16 | (unsigned long long)(apart >> 4) << 32 | 1ull << 62;
}

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
    word pictures, weights;  // where the rings begin
    word pictures_full, pictures_empty, weights_full, weights_empty;

    __device__ __forceinline__ void begin(const uint4* memory, const void* barriers)
    {
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

    // The places of a chunk that this thread fetches a piece of, one after the other.
    struct Place {
        int slot, plane, row, column;

        __device__ __forceinline__ Place(int thread) : slot(thread / TW_PIECES)
        {
            column = slot % L::PITCH;
            row = slot / L::PITCH % L::ROWS;
            plane = slot / L::PITCH / L::ROWS;
        }

        __device__ __forceinline__ void next()
        {
            slot += TW_FETCHING / TW_PIECES;
            column += TW_FETCHING / TW_PIECES;
            while (column >= L::PITCH) {
                column -= L::PITCH;
                if (++row == L::ROWS) {
                    row = 0;
                    ++plane;
                }
            }
        }

        __device__ __forceinline__ word address(word picture, int piece) const
        {
            return picture + slot * TW_PIXEL_BYTES + ((piece ^ slot) % TW_PIECES) * 16;
        }
    };

    __device__ __forceinline__ void fetch_pictures(const word* images, int count) const
    {
        constexpr int USED = L::IMAGES * L::PLANES_Y * L::PLANES_X * L::ROWS * L::PITCH;
        const int thread = threadIdx.x - ADDING - 32, piece = thread % TW_PIECES;
        Turn<L::PICTURES> turn;
        for (int number = blockIdx.x; number < Work<L>::all(count); number += gridDim.x) {
            const Work<L> work(number);
#pragma unroll 1
            for (int chunk = 0; chunk < L::CHUNKS; ++chunk) {
                const word picture = pictures + turn.stage * PICTURE_BYTES;
                const int first = chunk * TW_PIXEL_WORDS + piece * 4;  // word of a pixel
                wait_for(pictures_empty + 8 * turn.stage, turn.phase ^ 1);
#pragma unroll 4
                for (Place place(thread); place.slot < USED; place.next()) {
                    const int image = work.image + place.plane / (L::PLANES_Y * L::PLANES_X);
                    const int y = (work.y + place.row) * L::STRIDE_Y - L::TOP
                        + place.plane / L::PLANES_X % L::PLANES_Y;
                    const int x = (work.x + place.column) * L::STRIDE_X - L::LEFT
                        + place.plane % L::PLANES_X;
                    const bool there = unsigned(y) < L::HEIGHT && unsigned(x) < L::WIDTH
                        && image < count && first < L::WORDS;
                    const word* from = images
                        + (there ? ((size_t(image) * L::HEIGHT + y) * L::WIDTH + x) * L::WORDS + first
                                 : 0);
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                                 ::"r"(place.address(picture, piece)), "l"(from),
                                 "r"(there ? 16 : 0) : "memory");
                }
                const word full = pictures_full + 8 * turn.stage;
                if (L::ROUNDS) {
                    fetched();
                    for (Place place(thread); place.slot < USED; place.next())
                        round_piece(place.address(picture, piece));
                    arrive(full);
                } else {
                    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full)
                                 : "memory");
                }
                turn.next();
            }
        }
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

    // Where a patch of the block begins, in places.
    static __device__ __forceinline__ int patch_at(int patch)
    {
        constexpr int IMAGE = L::PLANES_Y * L::PLANES_X * L::ROWS * L::PITCH;
        return patch / (L::DOWN * L::ACROSS) * IMAGE
            + patch / L::ACROSS % L::DOWN * (TW_PATCH * L::PITCH) + patch % L::ACROSS * TW_PATCH;
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

    // A chunk's products, STEPS of two pieces each. What a tap read is given back when the next tap's
    // products have begun.
    template <int STEPS>
    __device__ __forceinline__ void add_chunk(
        float (&sum)[L::TALL][L::WIDE / 2], Turns& turns) const
    {
        const int group = threadIdx.x / 128;
        unsigned long long rows[L::TALL];
        wait_for(pictures_full + 8 * turns.pictures.stage, turns.pictures.phase);
        // What threads have copied is seen by tensor cores.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#pragma unroll
        for (int m = 0; m < L::TALL; ++m)
            rows[m] = described(pictures + turns.pictures.stage * PICTURE_BYTES
                                    + patch_at(group * L::TALL + m) * TW_PIXEL_BYTES,
                                L::PITCH * TW_PIXEL_BYTES);
#pragma unroll 1
        for (int tap = 0; tap < TAPS; ++tap) {
            const int reach = tap_at(tap) * (TW_PIXEL_BYTES / 16);
            const unsigned long long columns =
                described(weights + turns.weights.stage * WEIGHT_BYTES, 1024);
            wait_for(weights_full + 8 * turns.weights.stage, turns.weights.phase);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int i = 0; i < STEPS; ++i)
#pragma unroll
                for (int m = 0; m < L::TALL; ++m)
                    multiply_wide(sum[m], rows[m] + reach + 2 * i, columns + 2 * i);
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
        float (&sum)[L::TALL][L::WIDE / 2], const float* bias, Turns& turns) const
    {
#pragma unroll
        for (int n = 0; n < L::WIDE / 8; ++n)
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const float start = __ldg(bias + filter_of(n) + j);
#pragma unroll
                for (int m = 0; m < L::TALL; ++m)
                    sum[m][4 * n + j] = sum[m][4 * n + 2 + j] = start;
            }
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
    static __device__ __forceinline__ void hold(float (&sum)[L::TALL][L::WIDE / 2])
    {
#pragma unroll
        for (int m = 0; m < L::TALL; ++m)
#pragma unroll
            for (int i = 0; i < L::WIDE / 2; ++i)
                asm volatile("" : "+f"(sum[m][i])::"memory");
    }

    // ---- what goes out ---------------------------------------------------------------------------

    // The first of a lane's two filters in the n-th column of 8: weights lie so that in four columns
    // a lane has eight that follow each other.
    static __device__ __forceinline__ int filter_of(int n)
    {
        return n / 4 * 32 + threadIdx.x % 4 * 8 + n % 4 * 2;
    }

    // Lane 4g+t of the w-th of four warps has rows 2w and 2w+1 of a patch, column g.
    __device__ __forceinline__ void put(
        const float (&sum)[L::TALL][L::WIDE / 2], word* results, const word* added,
        const Work<L>& work, int count) const
    {
        const int g = threadIdx.x % 32 / 4, warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128;
#pragma unroll
        for (int m = 0; m < L::TALL; ++m) {
            const int patch = group * L::TALL + m;
            const int image = work.image + patch / (L::DOWN * L::ACROSS);
            const int y = work.y + patch / L::ACROSS % L::DOWN * TW_PATCH + 2 * warp;
            const int x = work.x + patch % L::ACROSS * TW_PATCH + g;
            constexpr int RESULTS = L::POOL ? 1 : 2;
#pragma unroll
            for (int half = 0; half < RESULTS; ++half) {
                const int row = L::POOL ? y / 2 : y + half, column = L::POOL ? x / 2 : x;
                const bool own = image < count && row < L::RESULT_Y && column < L::RESULT_X
                    && !(L::POOL && g % 2);
                const size_t pixel = (size_t(image) * L::RESULT_Y + row) * L::RESULT_X + column;
#pragma unroll
                for (int n = 0; n < L::WIDE / 8; n += 4) {
                    const int filter = work.column * L::WIDE + filter_of(n);
                    const bool there = own && filter < L::FILTERS;
                    float values[8];
#pragma unroll
                    for (int i = 0; i < 8; ++i) {
                        const float* two = sum[m] + 4 * (n + i / 2) + i % 2;
                        values[i] = L::POOL ? pooled(two[0], two[2]) : two[2 * half];
                    }
                    if (L::ADDED && there)
                        add_more(values, added + pixel * L::OUT_WORDS + filter / TW_PER_WORD);
#pragma unroll
                    for (int i = 0; i < 8; ++i)
                        values[i] = L::after(values[i]);
                    if (there)
                        put_eight(values, results, image, row * L::RESULT_X + column,
                                  filter / TW_PER_WORD);
                }
            }
        }
    }

    // What a pooling window comes to, of which this lane has a column of two, and the one beside it
    // the other.
    static __device__ __forceinline__ float pooled(float upper, float lower)
    {
        float both;
        if (L::POOL == TW_POOL_MAX)
            both = maximum(upper, lower);
        else if (L::POOL == TW_POOL_MAX_OF_EACH)
            both = maximum(L::before(upper), L::before(lower));
        else
            both = L::before(upper) + L::before(lower);
        const float beside = __shfl_xor_sync(0xffffffff, both, 4);
        if (L::POOL == TW_POOL_MAX)
            return L::before(maximum(both, beside));
        return L::POOL == TW_POOL_MAX_OF_EACH ? maximum(both, beside) : 0.25f * (both + beside);
    }

    static __device__ __forceinline__ void add_more(float (&values)[8], const word* added)
    {
#pragma unroll
        for (int i = 0; i < 8 / TW_PER_WORD; i += 4) {
            const uint4 four = __ldg(reinterpret_cast<const uint4*>(added + i));
            const word words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int k = 0; k < 4; ++k) {
#if TW_PER_WORD == 2
                const float2 two = unpack(words[k]);
                values[2 * k] = L::before(values[2 * k]) + two.x;
                values[2 * k + 1] = L::before(values[2 * k + 1]) + two.y;
#else
                values[i + k] = L::before(values[i + k]) + __uint_as_float(words[k]);
#endif
            }
        }
    }

    // Eight filters' values of a pixel that follow each other.
    static __device__ __forceinline__ void put_eight(
        const float (&values)[8], word* results, int image, int pixel, int first)
    {
#pragma unroll
        for (int i = 0; i < 8 / TW_PER_WORD; i += 4) {
            const int at = pixel * L::OUT_WORDS + first + i;
            word* to = results
                + (L::TO_PANELS ? piece_at<L::OUT_PIECES>(image, at / 4)
                                : size_t(image) * L::RESULT_WORDS + at);
#if TW_PER_WORD == 2
            *reinterpret_cast<uint4*>(to) =
                make_uint4(pack(values[0], values[1]), pack(values[2], values[3]),
                           pack(values[4], values[5]), pack(values[6], values[7]));
#else
            *reinterpret_cast<uint4*>(to) =
                make_uint4(put_float(values[i]), put_float(values[i + 1]),
                           put_float(values[i + 2]), put_float(values[i + 3]));
#endif
        }
    }

    static __device__ __forceinline__ word put_float(float value)
    {
        return L::TO == TW_TO_OPERANDS ? operand(value) : __float_as_uint(value);
    }
};
