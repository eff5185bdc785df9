/* Chosen rows and columns of every channel, one thread an output: TW_ROW and TW_COLUMN say which. */
TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL float *out) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index image = TW_BLOCK_Z;
    if (index < TW_CHANNELS * TW_OUT_Y * TW_OUT_X) {
        const int channel = index / (TW_OUT_Y * TW_OUT_X);
        const int row = TW_ROW(index / TW_OUT_X % TW_OUT_Y);
        const int column = TW_COLUMN(index % TW_OUT_X);
        out[image * (TW_CHANNELS * TW_OUT_Y * TW_OUT_X) + index] =
            x[((image * TW_CHANNELS + channel) * TW_HEIGHT + row) * TW_WIDTH + column];
    }
}
