// What all kernels of a wide convolution in patches have: how pictures and weights come in, and how
// results go out. Needs words.cuh, panels.cuh, shared.cuh; patches_tensor.cuh and patches_plain.cuh
// add up.
//
// A patch is TALL x 8 positions of a picture. A block takes IMAGES x DOWN x ACROSS patches and WIDE
// filters. A picture is fetched once, with what is around it, and every tap reads it from another
// place on.
//
// What a tap needs of CHUNK_WORDS of the channels comes through two rings: PICTURES chunks of
// pictures, STAGES of weights, TURNS of them a chunk. Four warps more begin the copies, one of them
// those of weights, and leave their registers to the others. A block works on until nothing is left.
//
// With strides, pixels that a tap reads as neighbours lie as such: all with the same remainders of
// their coordinates are a plane of their own.
//
// Of small pictures much of a patch would be empty. There eight columns of a patch may be eight
// images: their pixels lie beside each other, and rows of EIGHTS such eights follow each other, so
// that a patch's rows are as far apart as ever. Taps then read whole eights further on.
//
// A picture of one row is a LINE, and so is any under windows of 1x1: eight positions that follow
// each other are a row of a patch, and the next eight the row below.

#define TW_PATCH 8
#define TW_FETCHING 96  // threads that fetch pictures

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

// Of a block's patches the n-th: its image, and where in the block it is. Rows are those of all sets
// of eight images, where images are beside each other.
template <class L>
struct Patch {
    static constexpr int SETS = L::EIGHTS ? L::EIGHTS : 1, SIDE = L::EIGHTS ? 1 : TW_PATCH;
    int number;

    __device__ __forceinline__ int image() const { return number / (L::DOWN * L::ACROSS); }
    __device__ __forceinline__ int y() const { return number / L::ACROSS % L::DOWN * L::TALL; }
    __device__ __forceinline__ int x() const { return number % L::ACROSS * SIDE; }
};

// Which filters, images and positions a piece of work is: its first.
template <class L>
struct Work {
    int column, image, y, x;

    __device__ __forceinline__ Work(int number)
    {
        column = number % L::COLUMN_BLOCKS;
        number /= L::COLUMN_BLOCKS;
        x = number % L::BLOCKS_X * (Patch<L>::SIDE * L::ACROSS);
        number /= L::BLOCKS_X;
        y = number % L::BLOCKS_Y * (L::TALL * L::DOWN / Patch<L>::SETS);
        image = number / L::BLOCKS_Y * L::IMAGES;
        if (L::LINE) {
            x = y * TW_PATCH;
            y = 0;
        }
    }

    // Which channels its filters see.
    __device__ __forceinline__ int section() const
    {
        return L::SECTIONS == 1 ? 0 : column / (L::COLUMN_BLOCKS / L::SECTIONS);
    }

    static __device__ __forceinline__ int all(int images)
    {
        return (images + L::IMAGES - 1) / L::IMAGES * L::BLOCKS_Y * L::BLOCKS_X * L::COLUMN_BLOCKS;
    }
};

// What a patch's row and column are: an image's position.
template <class L>
struct Position {
    int image, y, x;

    __device__ __forceinline__ Position(
        const Work<L>& work, const Patch<L>& patch, int row, int column)
    {
        row += patch.y();
        if (L::LINE) {
            column += row * TW_PATCH;
            row = 0;
        }
        image = work.image + (L::EIGHTS ? row % Patch<L>::SETS * 8 + column : patch.image());
        y = work.y + row / Patch<L>::SETS;
        x = work.x + patch.x() + (L::EIGHTS ? 0 : column);
    }
};

template <class L>
struct Rings {
    static constexpr int PART_BYTES = L::SLOTS * L::PIXEL_BYTES;  // of a chunk of pictures
    static constexpr int PICTURE_BYTES = TW_PARTS * PART_BYTES;
    static constexpr int WEIGHT_BYTES = 4 * L::STAGE_WORDS;
    static constexpr int PIECES = L::CHUNK_WORDS / 4;  // of a pixel's chunk
    static constexpr int ADDING = 128 * L::GROUPS;  // threads
    static constexpr int USED = L::IMAGES * L::PLANES_Y * L::PLANES_X * L::ROWS * L::PITCH;
    static constexpr int SETS = Patch<L>::SETS;
    // Places from a pixel to its neighbour, to the one below in the next set, or the next row, and
    // to the one below in a patch.
    static constexpr int BESIDE = L::EIGHTS ? 8 : 1, ROW = L::PITCH * BESIDE;
    static constexpr int BELOW = L::LINE ? TW_PATCH : ROW;
    // Where in a word of the table of places rows and columns begin.
    static constexpr int ROW_BITS = L::EIGHTS ? 24 : 16, COLUMN_BITS = L::EIGHTS ? 16 : 0;
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
            barriers_begun();
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
                + size_t(Work<L>(number).column) * (L::CHUNKS * L::TURNS * L::STAGE_WORDS);
#pragma unroll 1
            for (int stage = 0; stage < L::CHUNKS * L::TURNS; ++stage) {
                wait_for(weights_empty + 8 * turn.stage, turn.phase ^ 1);
                expect(weights_full + 8 * turn.stage, WEIGHT_BYTES);
                copy(weights + turn.stage * WEIGHT_BYTES, next, WEIGHT_BYTES,
                     weights_full + 8 * turn.stage);
                next += L::STAGE_WORDS;
                turn.next();
            }
        }
    }

    // Where the pixel lies that belongs to each place of a chunk, from the work's first on: its word,
    // its row and its column, and its image where these are beside each other. By the threads that
    // fetch pictures, once for all.
    __device__ __forceinline__ void find_places() const
    {
        int2* places = const_cast<int2*>(at_places());
        for (int slot = threadIdx.x - ADDING - 32; slot < USED; slot += TW_FETCHING) {
            const int plane = slot / (ROW * SETS) / L::ROWS;
            const int y = slot / (ROW * SETS) % L::ROWS * L::STRIDE_Y
                + plane / L::PLANES_X % L::PLANES_Y;
            const int x = slot / BESIDE % L::PITCH * L::STRIDE_X + plane % L::PLANES_X;
            const int image = L::EIGHTS ? slot / ROW % SETS * 8 + slot % BESIDE
                                        : plane / (L::PLANES_Y * L::PLANES_X);
            places[slot] = make_int2(((image * L::HEIGHT + y) * L::WIDTH + x) * L::WORDS,
                                     y << ROW_BITS | x << COLUMN_BITS | (L::EIGHTS ? image : 0));
        }
        meet<1, TW_FETCHING>();
    }

    // Where a place's piece lies in a chunk.
    static __device__ __forceinline__ word piece_of_place(word picture, int slot, int piece)
    {
        return picture + slot * L::PIXEL_BYTES
            + (L::CHANGES_PLACES ? (piece ^ slot) % PIECES : piece) * 16;
    }

    // Chunks that are rounded when they are there: so many later ones come meanwhile. One more would
    // need the place of a chunk that is given back when products of the next have begun; and that one
    // is not rounded yet.
    static constexpr int MEANWHILE = L::PICTURES > 2 ? L::PICTURES - 2 : 0;

    __device__ __forceinline__ void fetch_pictures(const word* images, int count) const
    {
        constexpr int STEP = TW_FETCHING / PIECES;
        const int thread = threadIdx.x - ADDING - 32, piece = thread % PIECES;
        const int2* places = at_places();
        Turn<L::PICTURES> turn, there;
        int under_way = 0;
        find_places();
        for (int number = blockIdx.x; number < Work<L>::all(count); number += gridDim.x) {
            const Work<L> work(number);
            const int top = work.y * L::STRIDE_Y - L::TOP, left = work.x * L::STRIDE_X - L::LEFT;
            const int left_over = count - work.image;
            const int used = min(L::IMAGES, left_over) * (USED / L::IMAGES);
            const word* next = images + piece * 4
                + ((long long)(work.image) * L::HEIGHT + top) * (L::WIDTH * L::WORDS)
                + left * L::WORDS + work.section() * L::OWN_WORDS;
#pragma unroll 1
            for (int chunk = 0; chunk < L::CHUNKS; ++chunk) {
                const word picture = pictures + turn.stage * PICTURE_BYTES;
                const int first = chunk * L::CHUNK_WORDS + piece * 4;
                wait_for(pictures_empty + 8 * turn.stage, turn.phase ^ 1);
#pragma unroll 4
                for (int slot = thread / PIECES; slot < USED; slot += STEP) {
                    const int2 place = places[slot];
                    const int y = top + (place.y >> ROW_BITS);
                    const int x = left
                        + (place.y >> COLUMN_BITS & ((1 << (ROW_BITS - COLUMN_BITS)) - 1));
                    const bool there = unsigned(y) < L::HEIGHT && unsigned(x) < L::WIDTH
                        && (L::EIGHTS ? (place.y & 0xffff) < left_over : slot < used);
#pragma unroll
                    for (int i = 0; i < 4; i += L::AT_ONCE)
                        copy_words<L::AT_ONCE>(piece_of_place(picture, slot, piece) + 4 * i,
                                               next + place.x + i, there && first + i < L::OWN_WORDS);
                }
                if (L::ROUNDS) {
                    commit_fetches();
                    if (under_way++ >= MEANWHILE) {
                        fetched_but<MEANWHILE>();
                        round_next(there);
                    }
                } else {
                    arrive_when_copied(pictures_full + 8 * turn.stage);
                }
                next += L::CHUNK_WORDS;
                turn.next();
            }
        }
        fetched();  // before anybody leaves
        for (int left = min(under_way, MEANWHILE); L::ROUNDS && left > 0; --left)
            round_next(there);
    }

    // What this thread has copied of a chunk, as operands.
    __device__ __forceinline__ void round_next(Turn<L::PICTURES>& turn) const
    {
        const int thread = threadIdx.x - ADDING - 32;
        const word picture = pictures + turn.stage * PICTURE_BYTES;
#pragma unroll 4
        for (int slot = thread / PIECES; slot < USED; slot += TW_FETCHING / PIECES)
            round_piece(piece_of_place(picture, slot, thread % PIECES));
        seen_by_copies();
        arrive(pictures_full + 8 * turn.stage);
        turn.next();
    }

    // Floats as operands; in two parts, all pixels' second ones lie behind their first ones.
    static __device__ __forceinline__ void round_piece(word at)
    {
        const float4 four = read_piece(at);
#if TW_PARTS == 2
        const word x = __float_as_uint(four.x), y = __float_as_uint(four.y);
        const word z = __float_as_uint(four.z), w = __float_as_uint(four.w);
        write_piece(at, make_uint4(high(x), high(y), high(z), high(w)));
        write_piece(at + PART_BYTES, make_uint4(low(x), low(y), low(z), low(w)));
#else
        write_piece(at, make_uint4(operand(four.x), operand(four.y), operand(four.z),
                                   operand(four.w)));
#endif
    }

    // ---- for those who add up ------------------------------------------------------------------

    // Where a patch begins, in places.
    static __device__ __forceinline__ int patch_at(const Patch<L>& patch)
    {
        constexpr int IMAGE = L::PLANES_Y * L::PLANES_X * L::ROWS * L::PITCH;
        return (L::EIGHTS ? 0 : patch.image() * IMAGE) + patch.y() * BELOW + patch.x() * BESIDE;
    }

    // How far from there a tap reads.
    static __device__ __forceinline__ int tap_at(int tap)
    {
        const int y = tap / L::TAPS_X * L::APART_Y, x = tap % L::TAPS_X * L::APART_X;
        const int plane = y % L::STRIDE_Y * L::PLANES_X + x % L::STRIDE_X;
        return (plane * L::ROWS + y / L::STRIDE_Y) * (SETS * ROW) + x / L::STRIDE_X * BESIDE;
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
};

// What becomes of sums.
template <class L>
struct Results {
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

    // Of so many words of a pixel those that are read or written at once; and whether some of them
    // may be beyond its last.
    template <int ALL>
    static constexpr int AT_ONCE = ALL < L::OUT_AT_ONCE ? ALL : L::OUT_AT_ONCE;
    template <int ALL>
    static constexpr bool BEYOND = L::OUT_WORDS % ALL != 0;

    // What is added to some filters of a pixel that follow each other.
    template <int COUNT>
    static __device__ __forceinline__ void read_added(
        word (&more)[COUNT / TW_PER_WORD], const word* added, int image, int pixel, int filter)
    {
        constexpr int ALL = COUNT / TW_PER_WORD, WORDS = AT_ONCE<ALL>;
        const int first = filter / TW_PER_WORD;
        const word* from = added + size_t(image) * (L::RESULT_Y * L::RESULT_X * L::OUT_WORDS)
            + pixel * L::OUT_WORDS + first;
#pragma unroll
        for (int i = 0; i < ALL; i += WORDS) {
            if (BEYOND<ALL> && first + i >= L::OUT_WORDS) {
#pragma unroll
                for (int k = i; k < i + WORDS; ++k)
                    more[k] = 0;
            } else if constexpr (WORDS == 4) {
                const uint4 four = __ldg(reinterpret_cast<const uint4*>(from + i));
                more[i] = four.x;
                more[i + 1] = four.y;
                more[i + 2] = four.z;
                more[i + 3] = four.w;
            } else if constexpr (WORDS == 2) {
                const uint2 two = __ldg(reinterpret_cast<const uint2*>(from + i));
                more[i] = two.x;
                more[i + 1] = two.y;
            } else {
                more[i] = __ldg(from + i);
            }
        }
    }

    // Their values, with what is added and activations.
    template <int COUNT>
    static __device__ __forceinline__ void finish(
        float (&values)[COUNT], const word (&more)[COUNT / TW_PER_WORD], int filter)
    {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            values[k] = L::after(
                L::ADDED ? L::before(values[k]) + value_of(more[k / TW_PER_WORD], k) : values[k]);
            // Half of a last word.
            if (L::FILTERS % TW_PER_WORD && filter + k >= L::FILTERS)
                values[k] = 0.0f;
        }
    }

    template <int COUNT>
    static __device__ __forceinline__ void put_filters(
        float (&values)[COUNT], const word (&more)[COUNT / TW_PER_WORD], word* results, int image,
        int pixel, int filter)
    {
        finish(values, more, filter);
        write(values, results, image, pixel, filter);
    }

    template <int COUNT>
    static __device__ __forceinline__ void write(
        const float (&values)[COUNT], word* results, int image, int pixel, int filter)
    {
        constexpr int ALL = COUNT / TW_PER_WORD, WORDS = AT_ONCE<ALL>;
        word made[ALL];
#pragma unroll
        for (int k = 0; k < ALL; ++k)
            made[k] = word_of(values[k * TW_PER_WORD], values[(k + 1) * TW_PER_WORD - 1]);
#pragma unroll
        for (int i = 0; i < ALL; i += WORDS) {
            if (BEYOND<ALL> && filter / TW_PER_WORD + i >= L::OUT_WORDS)
                continue;
            const int at = pixel * L::OUT_WORDS + filter / TW_PER_WORD + i;
            word* to = results
                + (L::TO_PANELS ? piece_at<L::OUT_PIECES>(image, at / 4) + at % 4
                                : size_t(image) * L::RESULT_WORDS + at);
            if constexpr (WORDS == 4)
                write_four(to, made[i], made[i + 1], made[i + 2], made[i + 3]);
            else if constexpr (WORDS == 2)
                *reinterpret_cast<uint2*>(to) = make_uint2(made[i], made[i + 1]);
            else
                *to = made[i];
        }
    }

    // The same of a lane's eight filters where they are eight words: as four of its own and four of
    // the lane beside it, so that both write 32 bytes at once. By all lanes; those whose position is
    // `mine` write.
    static constexpr bool IN_TURNS = TW_PER_WORD == 1 && L::OUT_AT_ONCE == 4;

    static __device__ __forceinline__ void put_in_turns(
        float (&values)[8], const word (&more)[8 / TW_PER_WORD], word* results, int image, int pixel,
        int filter, bool mine)
    {
        const int odd = threadIdx.x % 2;
        finish(values, more, filter);
        float first[4], second[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float got =
                __shfl_xor_sync(0xffffffff, odd ? values[k] : values[4 + k], 1);
            first[k] = odd ? got : values[k];
            second[k] = odd ? values[4 + k] : got;
        }
        filter -= 4 * odd;
        if (mine && filter < L::FILTERS)
            write(first, results, image, pixel, filter);
        if (mine && filter + 8 < L::FILTERS)
            write(second, results, image, pixel, filter + 8);
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
