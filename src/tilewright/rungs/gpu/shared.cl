/* Channel by channel, a block loads the input it needs and one filter's weights into shared memory;
 * then every thread sums its output from there. Blocks count tiles along x, y, then filters. */
#define TILE_Y ((TW_THREADS_Y - 1) * TW_STRIDE_Y + TW_TAPS_Y)
#define TILE_X ((TW_THREADS_X - 1) * TW_STRIDE_X + TW_TAPS_X)
#define TAPS (TW_TAPS_Y * TW_TAPS_X)
#define THREADS (TW_THREADS_X * TW_THREADS_Y)

TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL const float *weight,
                 TW_GLOBAL const float *bias, TW_GLOBAL float *out) {
    TW_SHARED float pixels[TILE_Y][TILE_X];
    TW_SHARED float weights[TAPS];
    const int thread = TW_THREAD_Y * TW_THREADS_X + TW_THREAD_X;
    const int first_column = TW_BLOCK_X % TW_TILES_X * TW_THREADS_X;
    const int first_row = TW_BLOCK_X / TW_TILES_X % TW_TILES_Y * TW_THREADS_Y;
    const int filter = TW_BLOCK_X / (TW_TILES_X * TW_TILES_Y);
    const int column = first_column + TW_THREAD_X, row = first_row + TW_THREAD_Y;
    const int top = first_row * TW_STRIDE_Y - TW_PAD_Y, left = first_column * TW_STRIDE_X - TW_PAD_X;
    const tw_index image = TW_BLOCK_Z;
    float sum = bias[filter];
    for (int channel = 0; channel < TW_CHANNELS; channel++) {
        for (int i = thread; i < TILE_Y * TILE_X; i += THREADS) {
            const int y = top + i / TILE_X, xx = left + i % TILE_X;
            float value = 0;
            if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
                value = x[(image * TW_CHANNELS + channel) * (TW_HEIGHT * TW_WIDTH) + y * TW_WIDTH
                          + xx];
            pixels[i / TILE_X][i % TILE_X] = value;
        }
        for (int i = thread; i < TAPS; i += THREADS)
            weights[i] = weight[(filter * TW_CHANNELS + channel) * TAPS + i];
        TW_BARRIER();
        for (int ky = 0; ky < TW_TAPS_Y; ky++)
            for (int kx = 0; kx < TW_TAPS_X; kx++)
                sum = TW_FMA(pixels[TW_THREAD_Y * TW_STRIDE_Y + ky][TW_THREAD_X * TW_STRIDE_X + kx],
                             weights[ky * TW_TAPS_X + kx], sum);
        TW_BARRIER();
    }
    if (column < TW_OUT_X && row < TW_OUT_Y)
        out[(image * TW_FILTERS + filter) * (TW_OUT_Y * TW_OUT_X) + row * TW_OUT_X + column] = sum;
}
