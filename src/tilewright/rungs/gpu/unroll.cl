/* The unrolled matrix: a row for each tap, a column for each output position. One thread copies the
 * window of one position in one channel. */
#define POSITIONS (TW_OUT_Y * TW_OUT_X)
#define TAPS (TW_TAPS_Y * TW_TAPS_X)

TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL float *unrolled) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index image = TW_BLOCK_Z;
    if (index < TW_CHANNELS * POSITIONS) {
        const int channel = index / POSITIONS, position = index % POSITIONS;
        const int top = position / TW_OUT_X * TW_STRIDE_Y - TW_PAD_Y;
        const int left = position % TW_OUT_X * TW_STRIDE_X - TW_PAD_X;
        for (int ky = 0; ky < TW_TAPS_Y; ky++)
            for (int kx = 0; kx < TW_TAPS_X; kx++) {
                const int y = top + ky, xx = left + kx;
                float value = 0;
                if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
                    value = x[(image * TW_CHANNELS + channel) * (TW_HEIGHT * TW_WIDTH)
                              + y * TW_WIDTH + xx];
                const int tap = channel * TAPS + ky * TW_TAPS_X + kx;
                unrolled[(image * (TW_CHANNELS * TAPS) + tap) * POSITIONS + position] = value;
            }
    }
}
