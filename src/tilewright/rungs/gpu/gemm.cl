/* The convolution as a matrix product: (filters x taps) times (taps x positions). A block computes a
 * tile of it, TW_DEPTH taps at a time, from two tiles in shared memory; a thread one element. With
 * TW_FUSED the second matrix is never made: its elements are taken from the image as they are needed.
 * Blocks count tiles of positions, then of filters. */
#define POSITIONS (TW_OUT_Y * TW_OUT_X)
#define WINDOW (TW_TAPS_Y * TW_TAPS_X)
#define TAPS (TW_CHANNELS * WINDOW)
#define COLUMNS TW_THREADS_X
#define ROWS TW_THREADS_Y
#define THREADS (TW_THREADS_X * TW_THREADS_Y)

TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL const float *weight,
                 TW_GLOBAL const float *bias, TW_GLOBAL float *out) {
    TW_SHARED float left[ROWS][TW_DEPTH + 1]; /* one more, so that a column is in several banks */
    TW_SHARED float right[TW_DEPTH][COLUMNS];
    const int thread = TW_THREAD_Y * TW_THREADS_X + TW_THREAD_X;
    const int first_position = TW_BLOCK_X % TW_TILES_X * COLUMNS;
    const int first_filter = TW_BLOCK_X / TW_TILES_X * ROWS;
    const tw_index image = TW_BLOCK_Z;
    float sum = 0;
    for (int first_tap = 0; first_tap < TAPS; first_tap += TW_DEPTH) {
        for (int i = thread; i < ROWS * TW_DEPTH; i += THREADS) {
            const int filter = first_filter + i / TW_DEPTH, tap = first_tap + i % TW_DEPTH;
            float value = 0;
            if (filter < TW_FILTERS && tap < TAPS) value = weight[filter * TAPS + tap];
            left[i / TW_DEPTH][i % TW_DEPTH] = value;
        }
        for (int i = thread; i < TW_DEPTH * COLUMNS; i += THREADS) {
            const int tap = first_tap + i / COLUMNS, position = first_position + i % COLUMNS;
            float value = 0;
            if (tap < TAPS && position < POSITIONS) {
#if TW_FUSED
                const int channel = tap / WINDOW;
                const int y = position / TW_OUT_X * TW_STRIDE_Y - TW_PAD_Y
                              + tap / TW_TAPS_X % TW_TAPS_Y;
                const int xx = position % TW_OUT_X * TW_STRIDE_X - TW_PAD_X + tap % TW_TAPS_X;
                if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
                    value = x[(image * TW_CHANNELS + channel) * (TW_HEIGHT * TW_WIDTH)
                              + y * TW_WIDTH + xx];
#else
                value = x[(image * TAPS + tap) * POSITIONS + position];
#endif
            }
            right[i / COLUMNS][i % COLUMNS] = value;
        }
        TW_BARRIER();
        for (int k = 0; k < TW_DEPTH; k++)
            sum = TW_FMA(left[TW_THREAD_Y][k], right[k][TW_THREAD_X], sum);
        TW_BARRIER();
    }
    const int filter = first_filter + TW_THREAD_Y, position = first_position + TW_THREAD_X;
    if (filter < TW_FILTERS && position < POSITIONS)
        out[(image * TW_FILTERS + filter) * POSITIONS + position] = sum + bias[filter];
}
