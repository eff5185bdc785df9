/* One of several inputs, TW_SIZE values an image, to its place in the TW_WHOLE of the output. */
TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL float *out) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index image = TW_BLOCK_Z;
    if (index < TW_SIZE) out[image * TW_WHOLE + TW_FIRST + index] = x[image * TW_SIZE + index];
}
