/* A block a group of outputs; TW_THREADS_X threads share an output's sum, then add up their parts
 * pairwise in shared memory. Outputs count along x, y, then filters. */
#define TAPS (TW_CHANNELS * TW_TAPS_Y * TW_TAPS_X)
#define OUTPUTS (TW_FILTERS * TW_OUT_Y * TW_OUT_X)

TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL const float *weight,
                 TW_GLOBAL const float *bias, TW_GLOBAL float *out) {
    TW_SHARED float part[TW_THREADS_Y][TW_THREADS_X];
    const int output = TW_BLOCK_X * TW_THREADS_Y + TW_THREAD_Y;
    const int filter = output / (TW_OUT_Y * TW_OUT_X);
    const int row = output / TW_OUT_X % TW_OUT_Y, column = output % TW_OUT_X;
    const tw_index image = TW_BLOCK_Z;
    float sum = 0;
    if (output < OUTPUTS)
        for (int tap = TW_THREAD_X; tap < TAPS; tap += TW_THREADS_X) {
            const int channel = tap / (TW_TAPS_Y * TW_TAPS_X);
            const int y = row * TW_STRIDE_Y - TW_PAD_Y + tap / TW_TAPS_X % TW_TAPS_Y;
            const int xx = column * TW_STRIDE_X - TW_PAD_X + tap % TW_TAPS_X;
#if TW_PAD_Y || TW_PAD_X
            if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
#endif
            sum = TW_FMA(x[(image * TW_CHANNELS + channel) * (TW_HEIGHT * TW_WIDTH) + y * TW_WIDTH
                           + xx],
                         weight[filter * TAPS + tap], sum);
        }
    part[TW_THREAD_Y][TW_THREAD_X] = sum;
    for (int reach = TW_THREADS_X / 2; reach > 0; reach /= 2) {
        TW_BARRIER();
        if (TW_THREAD_X < reach)
            part[TW_THREAD_Y][TW_THREAD_X] += part[TW_THREAD_Y][TW_THREAD_X + reach];
    }
    /* The whole sum is where this thread itself has put it. */
    if (TW_THREAD_X == 0 && output < OUTPUTS)
        out[image * OUTPUTS + output] = part[TW_THREAD_Y][0] + bias[filter];
}
