/* Nothing but moving: the second half of a buffer over its first, four neighbours a thread. */
TW_ENTRY TW_NAME(TW_GLOBAL float *values) {
    const tw_index place = 4 * ((tw_index)TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X);
    TW_STORE4(TW_LOAD4(values + TW_FROM + place), values + place);
}
