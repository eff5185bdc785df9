/* A register tile a thread: TW_WIDE positions along x by TW_FILTERS_EACH filters. A block's threads
 * count tiles along x, rows, images, then groups of filters; blocks count tiles along x, then y, then
 * groups of filters. A few channels at a time, the pixels under the block's tile and its filters'
 * weights are staged in shared memory, in rows of TW_PITCH floats. */
#define TILE_Y ((TW_ROWS - 1) * TW_STRIDE_Y + TW_TAPS_Y)
#define SEGMENT ((TW_WIDE - 1) * TW_STRIDE_X + TW_TAPS_X)
#define QUADS TW_CEIL_DIV(SEGMENT, 4)
#define WINDOW (TW_TAPS_Y * TW_TAPS_X)
#define BLOCK_FILTERS (TW_GROUPS * TW_FILTERS_EACH)
#define PLANE (TILE_Y * TW_PITCH)

TW_ENTRY TW_NAME(TW_GLOBAL const float *TW_RESTRICT x, TW_GLOBAL const float *TW_RESTRICT weight,
                 TW_GLOBAL const float *TW_RESTRICT bias, TW_GLOBAL float *TW_RESTRICT out,
                 const int images) {
    TW_SHARED float pixels[TW_IMAGES * TW_STAGED * PLANE];
    TW_SHARED float weights[TW_STAGED * WINDOW * BLOCK_FILTERS];
    const int thread = TW_THREAD_X;
    const int tile = thread % TW_COLUMNS, line = thread / TW_COLUMNS % TW_ROWS;
    const int place = thread / (TW_COLUMNS * TW_ROWS) % TW_IMAGES;
    const int group = thread / (TW_COLUMNS * TW_ROWS * TW_IMAGES);
    const int first_column = TW_BLOCK_X % TW_TILES_X * (TW_COLUMNS * TW_WIDE);
    const int first_row = TW_BLOCK_X / TW_TILES_X % TW_TILES_Y * TW_ROWS;
    const int filters_block = TW_BLOCK_X / (TW_TILES_X * TW_TILES_Y);
    const int top = first_row * TW_STRIDE_Y - TW_PAD_Y, left = first_column * TW_STRIDE_X - TW_PAD_X;
    const tw_index first_image = (tw_index)TW_BLOCK_Z * TW_IMAGES;

    float sum[TW_FILTERS_EACH][TW_WIDE];
    TW_UNROLL for (int f = 0; f < TW_FILTERS_EACH; f++)
        TW_UNROLL for (int i = 0; i < TW_WIDE; i++) sum[f][i] = 0;

    for (int first = 0; first < TW_CHANNELS; first += TW_STAGED) {
        for (int i = thread; i < TW_IMAGES * TW_STAGED * PLANE; i += TW_THREADS_X) {
            const int y = top + i / TW_PITCH % TILE_Y, xx = left + i % TW_PITCH;
            const int channel = first + i / PLANE % TW_STAGED;
            const tw_index image = first_image + i / (PLANE * TW_STAGED);
            float value = 0;
            if (image < images && channel < TW_CHANNELS && y >= 0 && y < TW_HEIGHT && xx >= 0
                && xx < TW_WIDTH)
                value = x[(image * TW_CHANNELS + channel) * (TW_HEIGHT * TW_WIDTH) + y * TW_WIDTH
                          + xx];
            pixels[i] = value;
        }
        /* Packed by channel, tap, filter, and padded with zeros: a straight copy. */
        TW_GLOBAL const float *packed =
            weight + ((tw_index)filters_block * TW_CHANNELS_PADDED + first)
                         * (WINDOW * BLOCK_FILTERS);
        for (int i = 4 * thread; i < TW_STAGED * WINDOW * BLOCK_FILTERS; i += 4 * TW_THREADS_X)
            TW_STORE4(TW_LOAD4(packed + i), weights + i);
        TW_BARRIER();

        for (int channel = 0; channel < TW_STAGED; channel++) {
            TW_IN_SHARED const float *plane = pixels + (place * TW_STAGED + channel) * PLANE
                                      + line * (TW_STRIDE_Y * TW_PITCH)
                                      + tile * (TW_WIDE * TW_STRIDE_X);
            TW_IN_SHARED const float *taps = weights + channel * (WINDOW * BLOCK_FILTERS)
                                     + group * TW_FILTERS_EACH;
            for (int ky = 0; ky < TW_TAPS_Y; ky++) {
                float value[4 * QUADS];
                TW_UNROLL for (int q = 0; q < QUADS; q++) {
                    const float4 quad = TW_LOAD4(plane + ky * TW_PITCH + 4 * q);
                    value[4 * q] = quad.x, value[4 * q + 1] = quad.y;
                    value[4 * q + 2] = quad.z, value[4 * q + 3] = quad.w;
                }
                TW_UNROLL for (int kx = 0; kx < TW_TAPS_X; kx++)
                    TW_UNROLL for (int f = 0; f < TW_FILTERS_EACH; f += 4) {
                        const float4 quad =
                            TW_LOAD4(taps + (ky * TW_TAPS_X + kx) * BLOCK_FILTERS + f);
                        TW_UNROLL for (int i = 0; i < TW_WIDE; i++) {
                            const float pixel = value[i * TW_STRIDE_X + kx];
                            sum[f][i] = TW_FMA(pixel, quad.x, sum[f][i]);
                            sum[f + 1][i] = TW_FMA(pixel, quad.y, sum[f + 1][i]);
                            sum[f + 2][i] = TW_FMA(pixel, quad.z, sum[f + 2][i]);
                            sum[f + 3][i] = TW_FMA(pixel, quad.w, sum[f + 3][i]);
                        }
                    }
            }
        }
        TW_BARRIER();
    }

    const tw_index image = first_image + place;
    const int row = first_row + line, column = first_column + tile * TW_WIDE;
    if (image < images && row < TW_OUT_Y)
        TW_UNROLL for (int f = 0; f < TW_FILTERS_EACH; f++) {
            const int filter = filters_block * BLOCK_FILTERS + group * TW_FILTERS_EACH + f;
            if (filter < TW_FILTERS) {
                TW_GLOBAL float *target = out + (image * TW_FILTERS + filter) * (TW_OUT_Y * TW_OUT_X)
                                          + row * TW_OUT_X + column;
                const float start = bias[filter];
#if TW_OUT_X % 4 == 0
                if (column < TW_OUT_X)
                    TW_STORE4(TW_FLOAT4(sum[f][0] + start, sum[f][1] + start, sum[f][2] + start,
                                        sum[f][3] + start), target);
#else
                TW_UNROLL for (int i = 0; i < TW_WIDE; i++)
                    if (column + i < TW_OUT_X) target[i] = sum[f][i] + start;
#endif
            }
        }
}
