/* (images x inputs) times (inputs x outputs): a block computes a tile of TW_IMAGES by TW_ACROSS, a
 * thread TW_EACH by TW_EACH of it in registers, TW_DEPTH inputs at a time from shared memory. Long
 * sums are split: each of TW_PARTS blocks takes its inputs, and fc_sum.cl adds up what they found,
 * with the bias; a sum in one piece is complete here.
 * Blocks count tiles of outputs, then parts. */
TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL const float *weight,
                 TW_GLOBAL const float *bias, TW_GLOBAL float *parts, const int images) {
    TW_SHARED float left[TW_DEPTH][TW_IMAGES + 4]; /* 4 more: rows start in other banks */
    TW_SHARED float right[TW_DEPTH][TW_ACROSS + 4];
    const int thread = TW_THREAD_Y * TW_THREADS_X + TW_THREAD_X;
    const int first_output = TW_BLOCK_X % TW_TILES * TW_ACROSS, part = TW_BLOCK_X / TW_TILES;
    const int begin = part * TW_PART_INPUTS;
    const int end = begin + TW_PART_INPUTS < TW_INPUTS ? begin + TW_PART_INPUTS : TW_INPUTS;
    const tw_index first_image = (tw_index)TW_BLOCK_Z * TW_IMAGES;
    float sum[TW_EACH][TW_EACH];
    TW_UNROLL for (int i = 0; i < TW_EACH; i++)
        TW_UNROLL for (int j = 0; j < TW_EACH; j++) sum[i][j] = 0;

    for (int first = begin; first < end; first += TW_DEPTH) {
        for (int i = thread; i < TW_DEPTH * TW_IMAGES; i += TW_THREADS_X * TW_THREADS_Y) {
            const int input = first + i % TW_DEPTH;
            const tw_index image = first_image + i / TW_DEPTH;
            float value = 0;
            if (input < end && image < images) value = x[image * TW_INPUTS + input];
            left[i % TW_DEPTH][i / TW_DEPTH] = value;
        }
        for (int i = thread; i < TW_DEPTH * TW_ACROSS; i += TW_THREADS_X * TW_THREADS_Y) {
            const int input = first + i % TW_DEPTH, output = first_output + i / TW_DEPTH;
            float value = 0;
            if (input < end && output < TW_OUTPUTS)
                value = weight[(tw_index)output * TW_INPUTS + input];
            right[i % TW_DEPTH][i / TW_DEPTH] = value;
        }
        TW_BARRIER();
        TW_UNROLL for (int k = 0; k < TW_DEPTH; k++) {
            const float4 a = TW_LOAD4(&left[k][TW_EACH * TW_THREAD_Y]);
            const float4 b = TW_LOAD4(&right[k][TW_EACH * TW_THREAD_X]);
            const float rows[4] = {a.x, a.y, a.z, a.w}, columns[4] = {b.x, b.y, b.z, b.w};
            TW_UNROLL for (int i = 0; i < TW_EACH; i++)
                TW_UNROLL for (int j = 0; j < TW_EACH; j++)
                    sum[i][j] = TW_FMA(rows[i], columns[j], sum[i][j]);
        }
        TW_BARRIER();
    }
    TW_UNROLL for (int i = 0; i < TW_EACH; i++)
        TW_UNROLL for (int j = 0; j < TW_EACH; j++) {
            const tw_index image = first_image + TW_EACH * TW_THREAD_Y + i;
            const int output = first_output + TW_EACH * TW_THREAD_X + j;
            if (image < images && output < TW_OUTPUTS)
                parts[(image * TW_PARTS + part) * TW_OUTPUTS + output] =
                    TW_PARTS == 1 ? sum[i][j] + bias[output] : sum[i][j];
        }
}
