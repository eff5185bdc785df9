// Fully connected layers on many images. Needs panels.cuh and shared.cuh, and panels_tensor.cuh
// or panels_plain.cuh after it.
//
// A block takes BANDS bands of outputs and WIDE images, a group of warps TALL bands. What a turn
// of the sums needs, a chunk of all these rows, comes into a ring in shared memory; four warps of
// their own begin the copies, up to STAGES turns ahead, and leave their registers to the others.
// SPLITS groups share a band, and divide every turn's pieces; PARTS blocks, a cluster, share the
// sums, and divide the turns. Or ACROSS blocks with the same images are a cluster, and copy the
// features once, to all of them.

#define TW_ROW_BYTES (TW_CHUNK * 16)
#define TW_GROUP_BYTES (8 * TW_ROW_BYTES)
#define TW_BAND_BYTES (L::BAND * TW_ROW_BYTES)  // of BAND outputs
#define TW_WARPS (TW_TENSOR ? 128 : 64)  // threads

// Where a thread that adds up is among the others.
template <class L>
struct Own {
    static constexpr int GROUPS = L::BANDS / L::TALL;
    static constexpr int EACH = TW_WARPS * GROUPS;  // threads with different sums
    static constexpr int ALL = EACH * L::SPLITS;
    static constexpr int SHARES = L::SPLITS * L::PARTS;  // that sums are gathered in

    __device__ static __forceinline__ int band()
    {
        return threadIdx.x / TW_WARPS % GROUPS * L::TALL;
    }
    __device__ static __forceinline__ int split()
    {
        return L::SPLITS == 1 ? 0 : threadIdx.x / EACH;
    }
    __device__ static __forceinline__ int share()
    {
        return (L::PARTS == 1 ? 0 : blockIdx.z * L::SPLITS) + split();
    }
};

// All threads that add up.
template <class L>
__device__ __forceinline__ void all_meet()
{
    meet<1, Own<L>::ALL>();
}

// A turn, and its place in the ring: how often that was used before, odd or even.
template <class L>
struct Turn {
    int number = 0, stage = 0, phase = 0;

    __device__ __forceinline__ void next()
    {
        ++number;
        if (++stage == L::STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

// A share of groups of 8 rows: from one on so many, divided by blocks that need the same.
struct Share {
    static constexpr int PANEL = TW_PANEL / 8;
    int group, begin, end;

    __device__ __forceinline__ Share(int group, int count, int share, int shares)
        : group(group), begin(share * count / shares), end((share + 1) * count / shares)
    {
    }

    // Those that lie in the panel of the first.
    __device__ __forceinline__ int in_panel() const
    {
        return min(PANEL - (group + begin) % PANEL, end - begin);
    }

    __device__ __forceinline__ void skip_panel() { begin += in_panel(); }

    // The word where they begin, of panels of so many words.
    __device__ __forceinline__ size_t place(int step) const
    {
        return size_t((group + begin) / PANEL) * step
            + (group + begin) % PANEL * (TW_GROUP_BYTES / 4);
    }
};

// A block's ring, and what comes through it.
template <class L>
struct Ring {
    static constexpr int STEP = L::PIECES * TW_PANEL * 4;  // words of a panel
    static constexpr int STAGE = L::BANDS * TW_BAND_BYTES + L::WIDE * TW_ROW_BYTES;
    word at, full, empty;
    int first, turns;

    __device__ __forceinline__ void begin(const uint4* memory, const void* barriers)
    {
        at = shared_address(memory);
        full = shared_address(barriers);
        empty = full + 8 * L::STAGES;
        const int part = L::PARTS == 1 ? 0 : blockIdx.z;
        first = part * L::CHUNKS / L::PARTS;
        turns = (part + 1) * L::CHUNKS / L::PARTS - first;
        if (threadIdx.x == 0) {
            for (int stage = 0; stage < L::STAGES; ++stage) {
                begin_barrier(full + 8 * stage, 1);
                begin_barrier(empty + 8 * stage, Own<L>::ALL / 32 * L::ACROSS);
            }
            barriers_begun();
        }
        if (L::ACROSS > 1) {
            arrive_in_cluster();
            wait_in_cluster();
        } else {
            __syncthreads();
        }
    }

    // What the warps do that only fetch: so many bands of weights, and images from one on. A thread
    // of the first copies weights, of the second images, and of the third those of another panel.
    // All that can be known before the first turn is: their turns are what others wait for.
    __device__ __forceinline__ void fetch_all(
        const uint4* features, const word* weights, int band, int bands, int image, int count) const
    {
        const int fetcher = threadIdx.x / 32 - Own<L>::ALL / 32;
        const int images = max(0, min(L::WIDE, (count + 7) / 8 * 8 - image));
        Share own = fetcher == 0
            ? Share(band * (L::BAND / 8), bands * (L::BAND / 8), 0, 1)
            : Share(image / 8, images / 8, blockIdx.x % L::ACROSS, L::ACROSS);
        if (fetcher == 2)
            own.skip_panel();
        if (threadIdx.x % 32 || fetcher > 2 || (fetcher > 0 && own.begin == own.end))
            return;
        const word* from = (fetcher == 0 ? weights : reinterpret_cast<const word*>(features))
            + own.place(STEP) + size_t(first) * TW_CHUNK_WORDS;
        const word to = at + (fetcher == 0 ? 0 : L::BANDS * TW_BAND_BYTES)
            + own.begin * TW_GROUP_BYTES;
        const int bytes = own.in_panel() * TW_GROUP_BYTES;
        const int sent = bands * TW_BAND_BYTES + images * TW_ROW_BYTES;
#pragma unroll 1
        for (Turn<L> turn; turn.number < turns; turn.next()) {
            const word barrier = full + 8 * turn.stage;
            if (turn.number >= L::STAGES)
                wait_for(empty + 8 * turn.stage, turn.phase ^ 1);
            if (fetcher == 0)
                expect(barrier, sent);
            if (L::ACROSS > 1 && fetcher > 0)
                copy_to_all<L::ACROSS>(to + turn.stage * STAGE, from, bytes, barrier);
            else if (bytes)
                copy(to + turn.stage * STAGE, from, bytes, barrier);
            from += TW_CHUNK_WORDS;
        }
    }

    // Where a turn's rows are, when they have arrived.
    __device__ __forceinline__ word arrived(const Turn<L>& turn) const
    {
        wait_for(full + 8 * turn.stage, turn.phase);
        return at + turn.stage * STAGE;
    }

    // This warp is done with a turn; when all are that were sent it, its place is used again.
    __device__ __forceinline__ void give_back(const Turn<L>& turn) const
    {
        const word barrier = empty + 8 * turn.stage;
        const int lane = threadIdx.x & 31;
        if (turn.number + L::STAGES >= turns)
            return;
        if (L::ACROSS > 1 && lane < L::ACROSS)
            arrive_in(barrier, lane);
        else if (lane == 0)
            arrive(barrier);
    }
};

// Sums of all that have some of the same: each adds up its share, always in the same order. The
// ring's memory is free then.
template <class L, int COUNT>
__device__ __forceinline__ void gather(float (&sum)[COUNT], float* memory)
{
    constexpr int EACH = Own<L>::EACH, SHARE = COUNT / Own<L>::SHARES;
    const int own = threadIdx.x % EACH;
    if (Own<L>::SHARES == 1)
        return;
    all_meet<L>();
    float4* fours = reinterpret_cast<float4*>(memory);
#pragma unroll
    for (int i = 0; i < COUNT; i += 4)
        fours[(Own<L>::split() * COUNT + i) / 4 * EACH + own] =
            make_float4(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]);
    if (L::PARTS == 1) {
        all_meet<L>();
    } else {
        __syncwarp();
        arrive_in_cluster();
        wait_in_cluster();
    }
#pragma unroll
    for (int i = 0; i < SHARE; ++i)
        sum[i] = 0.0f;
    const float4* mine = fours + Own<L>::share() * (SHARE / 4) * EACH + own;
#pragma unroll
    for (int part = 0; part < L::PARTS; ++part) {
        const word there = L::PARTS == 1 ? 0 : in_block(shared_address(mine), part);
#pragma unroll
        for (int split = 0; split < L::SPLITS; ++split)
#pragma unroll
            for (int i = 0; i < SHARE; i += 4) {
                const int place = (split * COUNT + i) / 4 * EACH;
                const float4 more = L::PARTS == 1 ? mine[place] : in_cluster(there + 16 * place);
                sum[i] += more.x;
                sum[i + 1] += more.y;
                sum[i + 2] += more.z;
                sum[i + 3] += more.w;
            }
    }
    if (L::PARTS > 1)
        arrive_in_cluster();
}

// Nobody leaves while others read its sums.
template <class L>
__device__ __forceinline__ void leave()
{
    if (L::PARTS == 1)
        return;
    __syncwarp();
    wait_in_cluster();
}
