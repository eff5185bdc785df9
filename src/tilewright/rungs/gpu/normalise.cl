/* A pixel's byte into the network's value. */
TW_ENTRY TW_NAME(TW_GLOBAL const tw_byte *x, TW_GLOBAL float *out) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index first = (tw_index)TW_BLOCK_Z * TW_SIZE;
    if (index < TW_SIZE)
        out[first + index] = TW_FMA((float)x[first + index], TW_SCALE(index / TW_PLANE),
                                    TW_SHIFT(index / TW_PLANE));
}
