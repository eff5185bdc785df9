/* One thread, one output: the convolution's definition. Blocks count the tiles of an output plane
 * along x, then along y, then filters. Weights come from constant memory if the kernel has some. */
#define CHANNELS (TW_CHANNELS / TW_GROUPS) /* that a filter sees */
#if TW_CONSTANT_FLOATS
#define WEIGHT(filter, tap) tw_constant[((filter) - TW_FIRST_FILTER) * (CHANNELS * TAPS) + (tap)]
#else
#define WEIGHT(filter, tap) weight[(filter) * (CHANNELS * TAPS) + (tap)]
#endif
#define TAPS (TW_TAPS_Y * TW_TAPS_X)

TW_ENTRY TW_NAME(TW_GLOBAL const float *x,
#if !TW_CONSTANT_FLOATS
                 TW_GLOBAL const float *weight,
#endif
                 TW_GLOBAL const float *bias, TW_GLOBAL float *out TW_CONSTANT_ARGUMENT) {
    const int column = TW_BLOCK_X % TW_TILES_X * TW_THREADS_X + TW_THREAD_X;
    const int row = TW_BLOCK_X / TW_TILES_X % TW_TILES_Y * TW_THREADS_Y + TW_THREAD_Y;
    const int filter = TW_BLOCK_X / (TW_TILES_X * TW_TILES_Y) + TW_FIRST_FILTER;
    const tw_index image = TW_BLOCK_Z;
    if (column < TW_OUT_X && row < TW_OUT_Y) {
        const int top = row * TW_STRIDE_Y - TW_PAD_Y;
        const int left = column * TW_STRIDE_X - TW_PAD_X;
        const int first = filter / (TW_FILTERS / TW_GROUPS) * CHANNELS;
        float sum = bias[filter];
        for (int channel = 0; channel < CHANNELS; channel++)
            for (int ky = 0; ky < TW_TAPS_Y; ky++)
                for (int kx = 0; kx < TW_TAPS_X; kx++) {
                    const int y = top + ky * TW_DILATION_Y, xx = left + kx * TW_DILATION_X;
#if TW_PADDED
                    if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
#endif
                    sum = TW_FMA(x[(image * TW_CHANNELS + first + channel) * (TW_HEIGHT * TW_WIDTH)
                                   + y * TW_WIDTH + xx],
                                 WEIGHT(filter, channel * TAPS + ky * TW_TAPS_X + kx), sum);
                }
        out[(image * TW_FILTERS + filter) * (TW_OUT_Y * TW_OUT_X) + row * TW_OUT_X + column] = sum;
    }
}
