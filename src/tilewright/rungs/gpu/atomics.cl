/* One thread adds one channel's share to one output, atomically: channels are spread over blocks.
 * Blocks count tiles along x, then y, then channels, then filters. */
#define TAPS (TW_TAPS_Y * TW_TAPS_X)

TW_DEFINE_ATOMIC_ADD

TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL const float *weight, TW_GLOBAL float *out) {
    const int column = TW_BLOCK_X % TW_TILES_X * TW_THREADS_X + TW_THREAD_X;
    const int row = TW_BLOCK_X / TW_TILES_X % TW_TILES_Y * TW_THREADS_Y + TW_THREAD_Y;
    const int channel = TW_BLOCK_X / (TW_TILES_X * TW_TILES_Y) % TW_CHANNELS;
    const int filter = TW_BLOCK_X / (TW_TILES_X * TW_TILES_Y) / TW_CHANNELS;
    const tw_index image = TW_BLOCK_Z;
    if (column < TW_OUT_X && row < TW_OUT_Y) {
        float sum = 0;
        for (int ky = 0; ky < TW_TAPS_Y; ky++)
            for (int kx = 0; kx < TW_TAPS_X; kx++) {
                const int y = row * TW_STRIDE_Y - TW_PAD_Y + ky;
                const int xx = column * TW_STRIDE_X - TW_PAD_X + kx;
                if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
                    sum = TW_FMA(x[(image * TW_CHANNELS + channel) * (TW_HEIGHT * TW_WIDTH)
                                   + y * TW_WIDTH + xx],
                                 weight[(filter * TW_CHANNELS + channel) * TAPS + ky * TW_TAPS_X
                                        + kx], sum);
            }
        tw_atomic_add(&out[(image * TW_FILTERS + filter) * (TW_OUT_Y * TW_OUT_X) + row * TW_OUT_X
                           + column], sum);
    }
}
