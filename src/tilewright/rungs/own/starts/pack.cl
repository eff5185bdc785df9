/* Weights in the order in which the next kernel stages them: by block of filters, channel, tap,
 * filter; filled up with zeros. A thread an element. */
#define WINDOW (TW_TAPS_Y * TW_TAPS_X)
#define BLOCK_FILTERS (TW_GROUPS * TW_FILTERS_EACH)

TW_ENTRY TW_NAME(TW_GLOBAL const float *weight, TW_GLOBAL float *packed) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    if (index < TW_PACKED) {
        const int filters_block = index / (TW_CHANNELS_PADDED * WINDOW * BLOCK_FILTERS);
        const int filter = filters_block * BLOCK_FILTERS + index % BLOCK_FILTERS;
        const int channel = index / (WINDOW * BLOCK_FILTERS) % TW_CHANNELS_PADDED;
        const int tap = index / BLOCK_FILTERS % WINDOW;
        float value = 0;
        if (filter < TW_FILTERS && channel < TW_CHANNELS)
            value = weight[(filter * TW_CHANNELS + channel) * WINDOW + tap];
        packed[index] = value;
    }
}
