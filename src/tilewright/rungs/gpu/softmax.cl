/* Scores into probabilities: one thread an image. */
TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL float *out, const int images) {
    const tw_index image = (tw_index)TW_BLOCK_Z * TW_THREADS_X + TW_THREAD_X;
    if (image < images) {
        float largest = x[image * TW_SIZE], sum = 0;
        for (int i = 1; i < TW_SIZE; i++) {
            const float value = x[image * TW_SIZE + i];
            largest = TW_MAX(largest, value);
        }
        for (int i = 0; i < TW_SIZE; i++) {
            const float value = TW_EXP(x[image * TW_SIZE + i] - largest);
            sum += value;
            out[image * TW_SIZE + i] = value;
        }
        for (int i = 0; i < TW_SIZE; i++) out[image * TW_SIZE + i] /= sum;
    }
}
