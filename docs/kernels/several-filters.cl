/* tilewright
name = "several-filters"
idea = "a thread computes EACH filters at its place: a pixel is loaded once for all of them"
against = "direct"
weight_order = "channel taps filter"  # the weights that a thread needs together lie together
constraints = ["TILE_Y < 2 * OUT_Y", "TILE_X < 2 * OUT_X", "FILTERS % EACH == 0"]

[parameters]
EACH = [8, 4, 2, 1]
TILE_Y = [16, 8, 4, 2, 1]
TILE_X = [16, 8, 4, 2, 1]

[sizes]
TILES_Y = "ceil_div(OUT_Y, TILE_Y)"
TILES_X = "ceil_div(OUT_X, TILE_X)"

[[kernel]]
entry = "several_filters_conv"
block = ["TILE_X", "TILE_Y"]
grid = ["TILES_X * TILES_Y", "FILTERS // EACH", "IMAGES"]
arguments = ["x", "weight", "bias", "out"]
*/

TW_ENTRY TW_NAME(TW_GLOBAL const float *TW_RESTRICT x, TW_GLOBAL const float *TW_RESTRICT weight,
                 TW_GLOBAL const float *TW_RESTRICT bias, TW_GLOBAL float *TW_RESTRICT out) {
    const int column = TW_BLOCK_X % TW_TILES_X * TW_THREADS_X + TW_THREAD_X;
    const int row = TW_BLOCK_X / TW_TILES_X * TW_THREADS_Y + TW_THREAD_Y;
    const int first = TW_BLOCK_Y * TW_EACH; /* of the filters */
    const tw_index image = TW_BLOCK_Z;
    if (column < TW_OUT_X && row < TW_OUT_Y) {
        float sum[TW_EACH];
        TW_UNROLL
        for (int i = 0; i < TW_EACH; i++) sum[i] = bias[first + i];
        for (int channel = 0; channel < TW_CHANNELS; channel++)
            for (int ky = 0; ky < TW_TAPS_Y; ky++)
                for (int kx = 0; kx < TW_TAPS_X; kx++) {
                    const int y = row * TW_STRIDE_Y - TW_PAD_Y + ky;
                    const int xx = column * TW_STRIDE_X - TW_PAD_X + kx;
#if TW_PAD_Y || TW_PAD_X
                    if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
#endif
                    {
                        const int tap = (channel * TW_TAPS_Y + ky) * TW_TAPS_X + kx;
                        const float pixel =
                            x[((image * TW_CHANNELS + channel) * TW_HEIGHT + y) * TW_WIDTH + xx];
                        TW_UNROLL
                        for (int i = 0; i < TW_EACH; i++)
                            sum[i] = TW_FMA(pixel, weight[tap * TW_FILTERS + first + i], sum[i]);
                    }
                }
        TW_UNROLL
        for (int i = 0; i < TW_EACH; i++)
            out[((image * TW_FILTERS + first + i) * TW_OUT_Y + row) * TW_OUT_X + column] = sum[i];
    }
}
