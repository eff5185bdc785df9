/* Two inputs multiplied; one thread a value. Of the second, TW_OTHER says which number it is. */
TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL const float *other, TW_GLOBAL float *out) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index place = (tw_index)TW_BLOCK_Z * TW_SIZE + index;
    if (index < TW_SIZE)
        out[place] = x[place] * other[(tw_index)TW_BLOCK_Z * TW_OTHER_SIZE + TW_OTHER(index)];
}
