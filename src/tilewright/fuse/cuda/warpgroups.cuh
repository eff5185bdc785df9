// ---- sums by four warps ------------------------------------------------------------------------
//
// `multiply_wide` is written for each number of columns: 64 rows, 16 of each warp from its
// registers, times 8 * COLUMNS filters, whose weights lie in shared memory where a descriptor says:
// matrices of 8 filters by 16 bytes, one behind the other along the sum, then along the filters.
// It begins, and ends some time later.

__device__ __forceinline__ unsigned long long descriptor(const word* matrices)
{
    const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(matrices));
    constexpr unsigned long long ALONG = 128 / 16, ACROSS = 256 / 16;  // in units of 16 bytes
    return ((place & 0x3ffff) >> 4) | ALONG << 16 | ACROSS << 32;
}

// What was fetched is seen by tensor cores, too.
__device__ __forceinline__ void fetched_for_all()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// As `convolve`; all warps have the same number of units, and four that follow each other the same
// filters.
template <class L, class... Others, class Out>
__device__ __forceinline__ void convolve_wide(
    const word* in, const word* weights, const float* bias, const int* tables, Out out, int warp,
    const word* added = nullptr, int which = 0)
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    constexpr int AT_A_TIME = L::WARPGROUP < L::ROWS ? L::WARPGROUP : L::ROWS;
    constexpr int INPUT_ROWS = AT_A_TIME - 1 + L::TAPS_Y;
    const unsigned long long matrices = descriptor(weights);
    for (int turn = 0; turn < L::UNITS / L::WARPS; ++turn) {
        const auto [tile, split] = unit_of<L>(warp + turn * L::WARPS);
        const Places<L, (L::ADDED || ... || Others::ADDED)> places(tables, tile);
        const int own = L::PAIRS ? 2 * t : t;
        const word* even = in + __ldg(tables + tile * 16 + g) + own;
        const word* odd = in + __ldg(tables + tile * 16 + 8 + g) + own;
        float sum[L::ROWS][L::COLUMNS][4];
#pragma unroll
        for (int n = 0; n < L::COLUMNS; ++n) {
            const float2 start =
                *reinterpret_cast<const float2*>(bias + (split * L::COLUMNS + n) * 8 + 2 * t);
#pragma unroll
            for (int r = 0; r < L::ROWS; ++r) {
                sum[r][n][0] = sum[r][n][2] = start.x;
                sum[r][n][1] = sum[r][n][3] = start.y;
            }
        }
#pragma unroll 1
        for (int i = 0; i < L::RUNS * L::FULL; ++i) {
            const int at = i / L::FULL * L::PITCH + i % L::FULL * TW_STEP;
            const unsigned long long step =
                matrices + (i * L::TAPS_Y * L::ALL_COLUMNS + split * L::COLUMNS) * 16;
#pragma unroll
            for (int top = 0; top < L::ROWS; top += AT_A_TIME) {
                Rows rows[INPUT_ROWS];
#pragma unroll
                for (int j = 0; j < INPUT_ROWS; ++j)
                    if (top + j < L::INPUT_ROWS)
                        rows[j] = read_rows<L, TW_STEP, L::PAIRS>(even + at, odd + at, top + j);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int ky = 0; ky < L::TAPS_Y; ++ky)
#pragma unroll
                    for (int r = 0; r < AT_A_TIME; ++r)
                        if (top + r < L::ROWS)
                            multiply_wide(sum[top + r], rows[r + ky],
                                          step + ky * L::ALL_COLUMNS * 16);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            }
        }
        store_for<L, Others...>(which, sum, places, out, split * L::COLUMNS, added);
    }
}
