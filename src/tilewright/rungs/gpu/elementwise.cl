/* Every value by a function of its own, TW_FUNCTION; one thread a value. */
TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL float *out) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index first = (tw_index)TW_BLOCK_Z * TW_SIZE;
    if (index < TW_SIZE) {
        const float value = x[first + index];
        out[first + index] = TW_FUNCTION(value);
    }
}
