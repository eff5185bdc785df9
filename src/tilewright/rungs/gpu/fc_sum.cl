/* The parts of each output's sum and its bias, added up: one thread an output. */
TW_ENTRY TW_NAME(TW_GLOBAL const float *parts, TW_GLOBAL const float *bias, TW_GLOBAL float *out) {
    const int output = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index image = TW_BLOCK_Z;
    if (output < TW_OUTPUTS) {
        float sum = bias[output];
        for (int part = 0; part < TW_PARTS; part++)
            sum += parts[(image * TW_PARTS + part) * TW_OUTPUTS + output];
        out[image * TW_OUTPUTS + output] = sum;
    }
}
