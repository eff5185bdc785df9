/* Every output starts as its filter's bias. */
TW_ENTRY TW_NAME(TW_GLOBAL const float *bias, TW_GLOBAL float *out) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index image = TW_BLOCK_Z;
    if (index < TW_FILTERS * TW_OUT_Y * TW_OUT_X)
        out[image * (TW_FILTERS * TW_OUT_Y * TW_OUT_X) + index] = bias[index / (TW_OUT_Y * TW_OUT_X)];
}
