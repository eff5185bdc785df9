/* The maximum or the average of each window, one thread an output. NaN stays. */
TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL float *out) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index image = TW_BLOCK_Z;
    if (index < TW_CHANNELS * TW_OUT_Y * TW_OUT_X) {
        const int channel = index / (TW_OUT_Y * TW_OUT_X);
        const int top = index / TW_OUT_X % TW_OUT_Y * TW_STRIDE_Y;
        const int left = index % TW_OUT_X * TW_STRIDE_X;
        TW_GLOBAL const float *window =
            x + (image * TW_CHANNELS + channel) * (TW_HEIGHT * TW_WIDTH) + top * TW_WIDTH + left;
        float result = TW_AVERAGE ? 0 : window[0];
        for (int y = 0; y < TW_TAPS_Y; y++)
            for (int xx = 0; xx < TW_TAPS_X; xx++) {
                const float value = window[y * TW_WIDTH + xx];
                if (TW_AVERAGE)
                    result += value;
                else if (value > result || value != value)
                    result = value;
            }
        if (TW_AVERAGE) result /= (float)(TW_TAPS_Y * TW_TAPS_X);
        out[image * (TW_CHANNELS * TW_OUT_Y * TW_OUT_X) + index] = result;
    }
}
