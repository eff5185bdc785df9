/* Every output has its filter's bias added. */
TW_ENTRY TW_NAME(TW_GLOBAL const float *bias, TW_GLOBAL float *out) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index image = TW_BLOCK_Z;
    const int filter = index / (TW_OUT_Y * TW_OUT_X);
    if (filter < TW_FILTERS)
        out[image * (TW_FILTERS * TW_OUT_Y * TW_OUT_X) + index] += bias[filter];
}
