/* The input with a border of zeros around every plane; one thread an element of the result. */
#define PADDED_Y (TW_HEIGHT + 2 * TW_PAD_Y)
#define PADDED_X (TW_WIDTH + 2 * TW_PAD_X)

TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL float *padded) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index image = TW_BLOCK_Z;
    if (index < TW_CHANNELS * PADDED_Y * PADDED_X) {
        const int channel = index / (PADDED_Y * PADDED_X);
        const int y = index / PADDED_X % PADDED_Y - TW_PAD_Y, xx = index % PADDED_X - TW_PAD_X;
        float value = 0;
        if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
            value = x[(image * TW_CHANNELS + channel) * (TW_HEIGHT * TW_WIDTH) + y * TW_WIDTH + xx];
        padded[image * (TW_CHANNELS * PADDED_Y * PADDED_X) + index] = value;
    }
}
