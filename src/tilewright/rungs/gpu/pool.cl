/* The maximum or the average of each window, one thread an output. NaN stays. Where windows reach
 * over the picture, what is outside is left out; padding may count in an average. */
TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL float *out) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index image = TW_BLOCK_Z;
    if (index < TW_CHANNELS * TW_OUT_Y * TW_OUT_X) {
        const int channel = index / (TW_OUT_Y * TW_OUT_X);
        const int top = index / TW_OUT_X % TW_OUT_Y * TW_STRIDE_Y - TW_PAD_Y;
        const int left = index % TW_OUT_X * TW_STRIDE_X - TW_PAD_X;
        TW_GLOBAL const float *plane =
            x + (image * TW_CHANNELS + channel) * (TW_HEIGHT * TW_WIDTH);
        float result = TW_AVERAGE ? 0.0f : -TW_INFINITY;
        for (int ky = 0; ky < TW_TAPS_Y; ky++)
            for (int kx = 0; kx < TW_TAPS_X; kx++) {
                const int y = top + ky, xx = left + kx;
#if TW_CLIPPED
                if (y < 0 || y >= TW_HEIGHT || xx < 0 || xx >= TW_WIDTH) continue;
#endif
                const float value = plane[y * TW_WIDTH + xx];
                if (TW_AVERAGE)
                    result += value;
                else if (value > result || value != value)
                    result = value;
            }
#if TW_AVERAGE
        int rows = TW_TAPS_Y, columns = TW_TAPS_X;
#if TW_CLIPPED
        const int below = top + TW_TAPS_Y - (TW_HEIGHT + TW_COUNTED_Y);
        const int right = left + TW_TAPS_X - (TW_WIDTH + TW_COUNTED_X);
        if (below > 0) rows -= below;
        if (right > 0) columns -= right;
        if (!TW_COUNTS_PADDING && top < 0) rows += top;
        if (!TW_COUNTS_PADDING && left < 0) columns += left;
#endif
        result /= (float)(rows * columns);
#endif
        out[image * (TW_CHANNELS * TW_OUT_Y * TW_OUT_X) + index] = result;
    }
}
