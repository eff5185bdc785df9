// Sums of products over pictures, and what becomes of them. Needs words.cuh.
//
// A picture lies in shared memory as words, channels last. Every kind of layer is a function here or
// in pictures.cuh, made for its shapes by a struct of constants; what is generated is those structs
// and the calls in order.

// What a lane reads for a step: its words of two rows, and its weights of a column.
struct Rows {
    word even, odd, more_even, more_odd;
};

struct Weights {
    word at[4];
};

// The k-th word of the left row, or of the right one, without tensor cores.
__device__ __forceinline__ float word_of(const Rows& rows, int k, int right)
{
    return __uint_as_float(right ? (k ? rows.more_odd : rows.odd)
                                 : (k ? rows.more_even : rows.even));
}

// Values that are not read by sums alone are rounded to operands here.
template <class L>
__device__ __forceinline__ word taken(word value)
{
    return L::ROUNDS ? operand(__uint_as_float(value)) : value;
}

// Words of the j-th row that are a step's: in pairs, or on tensor cores four apart.
template <class L, int WORDS, bool PAIRS = WORDS == 2>
__device__ __forceinline__ Rows read_rows(const word* even, const word* odd, int j)
{
    even += j * L::ROW;
    odd += j * L::ROW;
    if (PAIRS) {
        const uint2 two = *reinterpret_cast<const uint2*>(even);
        const uint2 other = *reinterpret_cast<const uint2*>(odd);
        return {taken<L>(two.x), taken<L>(other.x), taken<L>(two.y), taken<L>(other.y)};
    }
    if (WORDS == 8)
        return {taken<L>(even[0]), taken<L>(odd[0]), taken<L>(even[4]), taken<L>(odd[4])};
    return {taken<L>(even[0]), taken<L>(odd[0]), 0, 0};
}

template <class L, int WORDS>
__device__ __forceinline__ Weights read_weights(const word* weights, int ky, int n)
{
    const word* from = weights + (ky * L::ALL_COLUMNS + n) * 8 * WORDS;
    constexpr int EACH = TW_TENSOR ? WORDS / 4 : 2 * WORDS;  // words of a lane
    if (EACH == 4) {
        const uint4 four = *reinterpret_cast<const uint4*>(from);
        return {{four.x, four.y, four.z, four.w}};
    }
    if (EACH == 2) {
        const uint2 two = *reinterpret_cast<const uint2*>(from);
        return {{two.x, two.y, 0, 0}};
    }
    return {{*from, 0, 0, 0}};
}

// A narrow column has one filter of each lane.
template <int WORDS>
__device__ __forceinline__ void add_products(
    float (&sum)[4], const Rows& rows, const Weights& w, bool narrow)
{
#if TW_TENSOR
    if (WORDS == TW_STEP)
        multiply(sum, rows.even, rows.odd, rows.more_even, rows.more_odd,
                 make_uint2(w.at[0], w.at[1]));
    else
        multiply_half(sum, rows.even, rows.odd, w.at[0]);
#else
#pragma unroll
    for (int k = 0; k < WORDS; ++k) {
        const float x = word_of(rows, k, 0), y = word_of(rows, k, 1);
        const float low = __uint_as_float(w.at[2 * k]), high = __uint_as_float(w.at[2 * k + 1]);
        sum[0] = fmaf(x, low, sum[0]);
        sum[2] = fmaf(y, low, sum[2]);
        if (narrow)
            continue;
        sum[1] = fmaf(x, high, sum[1]);
        sum[3] = fmaf(y, high, sum[3]);
    }
#endif
}

template <class L>
__device__ __forceinline__ bool narrow(int n)
{
    return L::NARROW && n == L::COLUMNS - 1;
}

// Without tensor cores, all products of the words of a row: of one word with all weights that it
// meets, of the next with the same backwards, so that each has a word or a weight in common with the
// one before. The next is the other column's, or the next of the same with more than three rows of
// taps; the other way round takes up to 2 % longer (H200, 2026-11-18).
template <class L, int WORDS>
__device__ __forceinline__ void products_of_row(
    float (&sum)[L::ROWS][L::COLUMNS][4], const Rows& rows,
    const Weights (&w)[L::TAPS_Y][L::COLUMNS], int j)
{
    constexpr int ALL = 2 * L::TAPS_Y * L::COLUMNS;
#pragma unroll
    for (int i = 0; i < 2 * WORDS * ALL; ++i) {
        const int turn = i / ALL;
        const int k = L::TAPS_Y > 3 ? turn % WORDS : turn / 2;
        const int right = L::TAPS_Y > 3 ? turn / WORDS : turn % 2;
        const int at = turn % 2 ? ALL - 1 - i % ALL : i % ALL;
        const int ky = at / (2 * L::COLUMNS), n = at / 2 % L::COLUMNS, high = at % 2;
        const int r = (j - ky) / L::STRIDE_Y;
        if (j < ky || (j - ky) % L::STRIDE_Y || r >= L::ROWS || (high && narrow<L>(n)))
            continue;
        float& to = sum[r][n][2 * right + high];
        to = fmaf(word_of(rows, k, right), __uint_as_float(w[ky][n].at[2 * k + high]), to);
    }
}

// All the products of one step: the rows of input under ROWS rows of output, each read once and
// used for every row of taps that meets it, but for those ABOVE and BELOW. Either all rows are held,
// or all weights, whichever takes fewer registers.
template <class L, int WORDS, int ABOVE, int BELOW>
__device__ __forceinline__ void step(
    float (&sum)[L::ROWS][L::COLUMNS][4], const word* even, const word* odd, const word* weights)
{
    constexpr bool PAIRS = WORDS == 2 || (WORDS == 8 && L::PAIRS);
    // For each load the compiler looks back for another of the same word, up to here at most: half of
    // its time without it, for the same instructions (NVRTC 13.4).
    asm volatile("" ::: "memory");
    if (L::ROWS_FIRST) {
        Rows rows[L::INPUT_ROWS];
#pragma unroll
        for (int j = 0; j < L::INPUT_ROWS; ++j)
            rows[j] = read_rows<L, WORDS, PAIRS>(even, odd, j);
#pragma unroll
        for (int ky = 0; ky < L::TAPS_Y; ++ky)
#pragma unroll
            for (int n = 0; n < L::COLUMNS; ++n) {
                const Weights w = read_weights<L, WORDS>(weights, ky, n);
#pragma unroll
                for (int r = 0; r < L::ROWS; ++r)
                    add_products<WORDS>(sum[r][n], rows[r * L::STRIDE_Y + ky], w, narrow<L>(n));
            }
        return;
    }
    Weights w[L::TAPS_Y][L::COLUMNS];
#pragma unroll
    for (int ky = 0; ky < L::TAPS_Y; ++ky)
#pragma unroll
        for (int n = 0; n < L::COLUMNS; ++n)
            w[ky][n] = read_weights<L, WORDS>(weights, ky, n);
#pragma unroll
    for (int j = ABOVE; j < L::INPUT_ROWS - BELOW; ++j) {
        const Rows rows = read_rows<L, WORDS, PAIRS>(even, odd, j);
#if TW_TENSOR
#pragma unroll
        for (int ky = 0; ky < L::TAPS_Y; ++ky) {
            const int r = (j - ky) / L::STRIDE_Y;
            if (j < ky || (j - ky) % L::STRIDE_Y || r >= L::ROWS)
                continue;
#pragma unroll
            for (int n = 0; n < L::COLUMNS; ++n)
                add_products<WORDS>(sum[r][n], rows, w[ky][n], false);
        }
#else
        products_of_row<L, WORDS>(sum, rows, w, j);
#endif
    }
}

// The same without tensor cores, where a lane has two sums of each: of even words, and `more` of odd
// ones. Registers have two banks, of even numbers and of odd ones. Of a product's three operands two
// are read at once, one of either bank, and one is the one before's. Words that came in pairs are in
// both banks; a sum of even ones alone always meets the same bank, and the compiler puts it into the
// other. Products go to and fro, so that each has a word or a weight in common with the one before.
template <class L, int WORDS>
__device__ __forceinline__ void step_twice(
    float (&sum)[L::ROWS][L::COLUMNS][4], float (&more)[L::ROWS][L::COLUMNS][4], const word* even,
    const word* odd, const word* weights)
{
    asm volatile("" ::: "memory");  // as above
    Rows rows[L::INPUT_ROWS];
#pragma unroll
    for (int j = 0; j < L::INPUT_ROWS; ++j)
        rows[j] = read_rows<L, WORDS>(even, odd, j);
#pragma unroll
    for (int ky = 0; ky < L::TAPS_Y; ++ky) {
        Weights w[L::COLUMNS];
#pragma unroll
        for (int n = 0; n < L::COLUMNS; ++n)
            w[n] = read_weights<L, WORDS>(weights, ky, n);
#pragma unroll
        for (int i = 0; i < WORDS * L::COLUMNS * 2; ++i) {
            const int k = i / (2 * L::COLUMNS), n = i / 2 % L::COLUMNS, high = i % 2;
            if (high && narrow<L>(n))
                continue;
            const float weight = __uint_as_float(w[n].at[WORDS == 2 ? 2 * high + k : high]);
#pragma unroll
            for (int position = 0; position < 2 * L::ROWS; ++position) {
                const int at = high ? 2 * L::ROWS - 1 - position : position, r = at / 2;
                float& to = (k ? more : sum)[r][n][2 * (at % 2) + high];
                to = fmaf(word_of(rows[r * L::STRIDE_Y + ky], k, at % 2), weight, to);
            }
        }
    }
}

// An image's row of words in panels, where a fully connected layer reads it (`piece_at` in panels.cuh
// is the same, and the tests hold both to it): it is written as a row that lies in one place is.
// `first` is the word where a strip's results begin.
struct InPanels {
    word* row;
    int turned, first;

    __device__ __forceinline__ InPanels(word* panels, int words, int image, int first)
        : row(panels + size_t(image / 256) * 256 * words + image % 256 * 32), turned(image % 8 * 4),
          first(first)
    {
    }

    __device__ __forceinline__ word& operator[](int at) const
    {
        at += first;
        return row[(at >> 5 << 13) + (at & 31 ^ turned)];
    }
};

// Two neighbouring channels of one position, to where the next layer wants them.
template <class L, class Out>
__device__ __forceinline__ void put(Out out, int place, int channel, float low, float high)
{
    if (channel >= L::FILTERS)
        return;
    if (L::TO == TW_TO_HALVES) {
        out[place + channel / 2] = pack(low, high);
    } else if (L::TO == TW_TO_OPERANDS) {
        if (L::PAIRED) {
            *reinterpret_cast<uint2*>(&out[place + channel]) =
                make_uint2(operand(low), operand(high));
            return;
        }
        out[place + channel] = operand(low);
        if (channel + 1 < L::FILTERS)
            out[place + channel + 1] = operand(high);
    } else if (L::PAIRED) {
        *reinterpret_cast<uint2*>(&out[place + channel]) =
            make_uint2(__float_as_uint(low), __float_as_uint(high));
    } else {
        out[place + channel * L::PLANE] = __float_as_uint(low);
        if (channel + 1 < L::FILTERS)
            out[place + (channel + 1) * L::PLANE] = __float_as_uint(high);
    }
}

// One channel of one position.
template <class L, class Out>
__device__ __forceinline__ void put_one(Out out, int place, int channel, float value)
{
    if (channel < L::FILTERS)
        out[place + channel * (L::TO == TW_TO_FLOATS ? L::PLANE : 1)] =
            L::TO == TW_TO_FLOATS ? __float_as_uint(value) : operand(value);
}

// The same as one half of a word; of a last word both are written.
template <class L, class Out>
__device__ __forceinline__ void put_half(Out out, int place, int channel, float value)
{
    if (channel < (L::FILTERS + 1) / 2 * 2)
        reinterpret_cast<unsigned short*>(&out[place + channel / 2])[channel % 2] =
            pack(value, 0.0f) & 0xffff;
}

// The same for four columns at once, in device memory: lanes 4g to 4g+3 exchange words so that each
// writes four that follow each other.
template <class L, class Out>
__device__ __forceinline__ void put_wide(Out out, int place, int channel, const word (&words)[4])
{
    const int t = threadIdx.x & 3;
    word w[4] = {words[0], words[1], words[2], words[3]};
#pragma unroll
    for (int reach = 1; reach < 4; reach *= 2) {
        const bool upper = t & reach;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (k & reach)
                continue;
            const word got =
                __shfl_xor_sync(0xffffffff, upper ? w[k] : w[k | reach], reach);
            if (upper)
                w[k] = got;
            else
                w[k | reach] = got;
        }
    }
    if (place >= 0)
        *reinterpret_cast<uint4*>(&out[place + channel / 2 + 4 * t]) =
            make_uint4(w[0], w[1], w[2], w[3]);
}

// The same for two columns: lanes 2k and 2k+1 exchange words, so that each writes two, and all four
// 32 bytes that follow each other.
template <class L, class Out>
__device__ __forceinline__ void put_twos(Out out, int place, int channel, word one, word other)
{
    const int t = threadIdx.x & 3, odd = t & 1;
    const word got = __shfl_xor_sync(0xffffffff, odd ? one : other, 1);
    if (place >= 0)
        *reinterpret_cast<uint2*>(&out[place + channel / 2 + 4 * odd + t - odd]) =
            odd ? make_uint2(got, other) : make_uint2(one, got);
}

// What a pooling window, or a single sum, comes to.
template <class L>
__device__ __forceinline__ float pooled(float a, float b, float c, float d)
{
    if (L::POOL == TW_POOL_MAX)
        return L::after(L::before(maximum(maximum(maximum(a, b), c), d)));
    if (L::POOL == TW_POOL_MAX_OF_EACH)  // of activations that do not keep order
        return L::after(maximum(maximum(maximum(L::before(a), L::before(b)), L::before(c)),
                                L::before(d)));
    return L::after(0.25f * ((L::before(a) + L::before(b)) + (L::before(c) + L::before(d))));
}

// Two channels of what is added to sums, or one.
template <class L>
__device__ __forceinline__ float2 more(const word* added, int place, int channel, bool one)
{
    if (channel >= L::FILTERS)
        return make_float2(0.0f, 0.0f);
#if TW_PER_WORD == 2
    return unpack(added[place + channel / 2]);
#else
    return make_float2(__uint_as_float(added[place + channel]),
                       !one && channel + 1 < L::FILTERS
                           ? __uint_as_float(added[place + channel + 1]) : 0.0f);
#endif
}

// Where a lane's results of a unit go, and where what is added to them lies: read before the sums,
// after which nobody should wait for device memory.
template <class L, bool ADDED>
struct Places {
    static constexpr int POSITIONS = L::POOL && !L::FOLDED ? 1 : 2;
    int to[POSITIONS], from[POSITIONS];

    __device__ __forceinline__ Places(const int* tables, int tile)
    {
        const int g = (threadIdx.x & 31) >> 2;
#pragma unroll
        for (int position = 0; position < POSITIONS; ++position) {
            const int at = tile * 8 * POSITIONS + position * 8 + g;
            to[position] = __ldg(tables + L::TILES * 16 + at);
            from[position] = ADDED ? __ldg(tables + L::TILES * 32 + at) : 0;
        }
    }
};

// The results of a warp's unit where the four sums of a pooling window are in columns: in four of
// them for two filters of each lane, in two for one filter.
template <class L, class To, class Out>
__device__ __forceinline__ void store_folded(
    const float (&sum)[L::ROWS][L::COLUMNS][4], const To& places, Out out, int first)
{
    const int t = threadIdx.x & 3;
#pragma unroll
    for (int position = 0; position < 2; ++position) {
        const int place = places.to[position];
        if (place < 0)
            continue;
#pragma unroll
        for (int y = 0; y < L::ROWS; ++y) {
            const int at = place + y * L::OUT_ROW;
#pragma unroll
            for (int n = 0; n < L::COLUMNS; n += 4) {
                const float(&one)[4] = sum[y][n], (&two)[4] = sum[y][n + 1];
                const int low = 2 * position, high = low + 1, channel = 2 * (first + n);
                if (n + 2 == L::COLUMNS) {
                    const float value = pooled<L>(one[low], one[high], two[low], two[high]);
                    if (L::TO == TW_TO_HALVES)
                        put_half<L>(out, at, channel + t, value);
                    else
                        put_one<L>(out, at, channel + t, value);
                    continue;
                }
                const float(&three)[4] = sum[y][(n + 2) % L::COLUMNS];
                const float(&four)[4] = sum[y][(n + 3) % L::COLUMNS];
                put<L>(out, at, channel + 2 * t,
                       pooled<L>(one[low], two[low], three[low], four[low]),
                       pooled<L>(one[high], two[high], three[high], four[high]));
            }
        }
    }
}

// The results of a warp's unit, two channels of a position at a time.
template <class L, class To, class Out>
__device__ __forceinline__ void store(
    const float (&sum)[L::ROWS][L::COLUMNS][4], const To& places, Out out, int first,
    const word* added)
{
    if constexpr (L::FOLDED) {
        store_folded<L>(sum, places, out, first);
        return;
    }
    const int t = threadIdx.x & 3;
    constexpr int HEIGHT = L::POOL ? L::ROWS / 2 : L::ROWS;
#pragma unroll
    for (int position = 0; position < To::POSITIONS; ++position) {
        const int place = places.to[position], other = places.from[position];
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) {
            float low[L::COLUMNS], high[L::COLUMNS];
#pragma unroll
            for (int n = 0; n < L::COLUMNS; ++n) {
                if (L::POOL) {
                    const float(&top)[4] = sum[2 * y][n];
                    const float(&bottom)[4] = sum[(2 * y + 1) % L::ROWS][n];
                    low[n] = pooled<L>(top[0], top[2], bottom[0], bottom[2]);
                    high[n] = pooled<L>(top[1], top[3], bottom[1], bottom[3]);
                } else if (L::ADDED) {
                    const int channel = (first + n) * 8 + (narrow<L>(n) ? t : 2 * t);
                    const float2 both =
                        more<L>(added, other + y * L::ADDED_ROW, channel, narrow<L>(n));
                    low[n] = L::after(L::before(sum[y][n][2 * position]) + both.x);
                    high[n] = L::after(L::before(sum[y][n][2 * position + 1]) + both.y);
                } else {
                    low[n] = L::after(sum[y][n][2 * position]);
                    high[n] = L::after(sum[y][n][2 * position + 1]);
                }
            }
            const int at = place < 0 ? -1 : place + y * L::OUT_ROW;
            if (L::WIDE == 2) {
#pragma unroll
                for (int n = 0; n < L::COLUMNS; n += 2) {
                    // Whether there are two, with 16 filters; all lanes say the same.
                    if (n + 1 < L::COLUMNS && (first + n + 2) * 8 <= L::FILTERS) {
                        put_twos<L>(out, at, (first + n) * 8, pack(low[n], high[n]),
                                    pack(low[n + 1], high[n + 1]));
                        continue;
                    }
#pragma unroll
                    for (int one = n; one < n + 2; ++one)
                        if (one < L::COLUMNS && at >= 0)
                            put<L>(out, at, (first + one) * 8 + 2 * t, low[one], high[one]);
                }
            } else if (L::WIDE == 4) {
#pragma unroll
                for (int n = 0; n + 3 < L::COLUMNS; n += 4) {
                    const word words[4] = {pack(low[n], high[n]), pack(low[n + 1], high[n + 1]),
                                           pack(low[n + 2], high[n + 2]),
                                           pack(low[n + 3], high[n + 3])};
                    put_wide<L>(out, at, (first + n) * 8, words);
                }
            } else if (at >= 0) {
#pragma unroll
                for (int n = 0; n < L::COLUMNS; ++n) {
                    if (narrow<L>(n))
                        put_one<L>(out, at, (first + n) * 8 + t, low[n]);
                    else
                        put<L>(out, at, (first + n) * 8 + 2 * t, low[n], high[n]);
                }
            }
        }
    }
}

// The same, as it is done for the first of several layers whose sums are alike, or another of them.
template <class L, class... Others, class To, class Out>
__device__ __forceinline__ void store_for(
    int which, const float (&sum)[L::ROWS][L::COLUMNS][4], const To& places, Out out, int first,
    const word* added)
{
    if constexpr (sizeof...(Others) > 0) {
        if (which > 0) {
            store_for<Others...>(which - 1, sum, places, out, first, added);
            return;
        }
    }
    store<L>(sum, places, out, first, added);
}

// A warp's unit of work: positions, and of the filters the share that it computes. Where results go
// to device memory, shares of the same positions follow each other, for what lies together to be
// written together: else parts of 128 bytes leave the second cache one by one.
struct Unit {
    int tile, split;
};

template <class L>
__device__ __forceinline__ Unit unit_of(int unit)
{
    constexpr int SPLITS = L::UNITS / L::TILES;
    if (SPLITS == 1)
        return {unit, 0};
    if (!L::BESIDE)
        return {unit % L::TILES, unit / L::TILES};
    constexpr int ALIKE = L::WARPGROUP ? 4 : 1;  // warps that have the same filters
    return {unit / (ALIKE * SPLITS) * ALIKE + unit % ALIKE, unit / ALIKE % SPLITS};
}

// All steps of a unit's sums, without rows that are zeros ABOVE and BELOW.
template <class L, int ABOVE, int BELOW>
__device__ __forceinline__ void all_steps(
    float (&sum)[L::ROWS][L::COLUMNS][4], float (&more)[L::TWICE ? L::ROWS : 1][L::COLUMNS][4],
    const word* even, const word* odd, const word* weights, int split)
{
    // Where this lane's words and weights are, in full steps and in half ones.
    constexpr int ONE_FULL = L::FULL ? L::FULL : 1, ONE_HALF = L::HALF ? L::HALF : 1;
    constexpr int HALF_STEP = TW_STEP / 2, EACH = L::TAPS_Y * L::ALL_COLUMNS * 8 * HALF_STEP;
    const int lane = threadIdx.x & 31, t = lane & 3;
    const int own = TW_TENSOR ? t : 0, both = L::PAIRS ? 2 * t : own;
    const int part = TW_TENSOR ? lane : 2 * t;
    const word* w = weights + split * L::COLUMNS * 8 * TW_STEP + 2 * part;
    const word* half = weights + split * L::COLUMNS * 8 * HALF_STEP + part
        + L::RUNS * L::FULL * 2 * EACH;
#pragma unroll L::UNROLL
    for (int i = 0; i < L::RUNS * L::FULL; ++i) {
        const int at = i / ONE_FULL * L::PITCH + i % ONE_FULL * TW_STEP + both;
        if constexpr (L::TWICE)
            step_twice<L, TW_STEP>(sum, more, even + at, odd + at, w + i * 2 * EACH);
        else
            step<L, TW_STEP, ABOVE, BELOW>(sum, even + at, odd + at, w + i * 2 * EACH);
    }
#pragma unroll L::UNROLL
    for (int i = 0; i < L::RUNS * L::HALF; ++i) {
        const int at = i / ONE_HALF * L::PITCH + L::FULL * TW_STEP + i % ONE_HALF * HALF_STEP + own;
        if constexpr (L::TWICE)
            step_twice<L, HALF_STEP>(sum, more, even + at, odd + at, half + i * EACH);
        else
            step<L, HALF_STEP, ABOVE, BELOW>(sum, even + at, odd + at, half + i * EACH);
    }
}

// A convolution, or a fully connected layer as a convolution with one position. The unit of work of
// a warp is 16 columns of the picture, ROWS high, for 8 * COLUMNS output channels; tables say where
// each column begins in the input, in the output and in what is `added` to the sums. Of several
// layers whose sums are alike `which` is the one that it is for.
template <class L, class... Others, class Out>
__device__ __forceinline__ void convolve(
    const word* in, const word* weights, const float* bias, const int* tables, Out out, int warp,
    const word* added = nullptr, int which = 0)
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    for (int unit = warp; unit < L::UNITS; unit += L::WARPS) {
        const auto [tile, split] = unit_of<L>(unit);
        const Places<L, (L::ADDED || ... || Others::ADDED)> places(tables, tile);
        const word* even = in + __ldg(tables + tile * 16 + g);
        const word* odd = in + __ldg(tables + tile * 16 + 8 + g);
        float sum[L::ROWS][L::COLUMNS][4];
#pragma unroll
        for (int n = 0; n < L::COLUMNS; ++n) {
            const float* from = bias + (split * L::COLUMNS + n) * 8;
            const float2 start = narrow<L>(n) ? make_float2(from[t], 0.0f)
                                              : *reinterpret_cast<const float2*>(from + 2 * t);
#pragma unroll
            for (int r = 0; r < L::ROWS; ++r) {
                sum[r][n][0] = sum[r][n][2] = start.x;
                sum[r][n][1] = sum[r][n][3] = start.y;
            }
        }
        float more[L::TWICE ? L::ROWS : 1][L::COLUMNS][4] = {};
        if (L::ABOVE && tile < L::TOPS)
            all_steps<L, L::ABOVE, 0>(sum, more, even, odd, weights, split);
        else if (L::BELOW && tile >= L::BOTTOMS)
            all_steps<L, 0, L::BELOW>(sum, more, even, odd, weights, split);
        else
            all_steps<L, 0, 0>(sum, more, even, odd, weights, split);
#pragma unroll
        for (int i = 0; i < (L::TWICE ? 4 * L::ROWS * L::COLUMNS : 0); ++i)
            sum[i / 4 / L::COLUMNS][i / 4 % L::COLUMNS][i % 4] +=
                more[i / 4 / L::COLUMNS][i / 4 % L::COLUMNS][i % 4];
        store_for<L, Others...>(which, sum, places, out, split * L::COLUMNS, added);
    }
}
