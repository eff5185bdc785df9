/* Nothing but multiply-adds on registers: what the device can do at best. All in a straight line, so
 * that a compiler for CPUs can put neighbouring threads into one vector. */
TW_ENTRY TW_NAME(TW_GLOBAL float *out) {
    const int place = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const float factor = out[place];
    float sum[TW_SUMS], total = 0;
    TW_UNROLL for (int i = 0; i < TW_SUMS; i++) sum[i] = (float)i;
    TW_UNROLL for (int round = 0; round < TW_ROUNDS; round++)
        TW_UNROLL for (int i = 0; i < TW_SUMS; i++) sum[i] = TW_FMA(sum[i], factor, factor);
    TW_UNROLL for (int i = 0; i < TW_SUMS; i++) total += sum[i];
    out[place] = total;
}
