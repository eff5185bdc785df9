/* tilewright
name = "register-tile"
idea = "a thread computes EACH filters at WIDE places in a row: a weight is loaded once for these"
against = "direct"
weight_order = "channel taps filter"  # the weights that a thread needs together lie together
constraints = ["TILE_Y < 2 * OUT_Y", "WIDE * TILE_X < 2 * OUT_X + WIDE", "FILTERS % EACH == 0"]

[parameters]
EACH = [8, 4, 2, 1]
WIDE = [4, 2, 1]
TILE_Y = [16, 8, 4, 2, 1]
TILE_X = [16, 8, 4, 2, 1]

[sizes]
TILES_Y = "ceil_div(OUT_Y, TILE_Y)"
TILES_X = "ceil_div(OUT_X, TILE_X * WIDE)"

[[kernel]]
entry = "register_tile_conv"
block = ["TILE_X", "TILE_Y"]
grid = ["TILES_X * TILES_Y", "FILTERS // EACH", "IMAGES"]
arguments = ["x", "weight", "bias", "out"]
*/

/* What a thread reads of a row for its places along it. */
#define PIXELS ((TW_WIDE - 1) * TW_STRIDE_X + TW_TAPS_X)

TW_ENTRY TW_NAME(TW_GLOBAL const float *TW_RESTRICT x, TW_GLOBAL const float *TW_RESTRICT weight,
                 TW_GLOBAL const float *TW_RESTRICT bias, TW_GLOBAL float *TW_RESTRICT out) {
    const int column = (TW_BLOCK_X % TW_TILES_X * TW_THREADS_X + TW_THREAD_X) * TW_WIDE;
    const int row = TW_BLOCK_X / TW_TILES_X * TW_THREADS_Y + TW_THREAD_Y;
    const int first = TW_BLOCK_Y * TW_EACH; /* of the filters */
    const tw_index image = TW_BLOCK_Z;
    if (column < TW_OUT_X && row < TW_OUT_Y) {
        float sum[TW_EACH][TW_WIDE];
        TW_UNROLL
        for (int i = 0; i < TW_EACH; i++)
            TW_UNROLL
            for (int j = 0; j < TW_WIDE; j++) sum[i][j] = bias[first + i];
        for (int channel = 0; channel < TW_CHANNELS; channel++)
            for (int ky = 0; ky < TW_TAPS_Y; ky++) {
                const int y = row * TW_STRIDE_Y - TW_PAD_Y + ky;
                const int left = column * TW_STRIDE_X - TW_PAD_X;
                TW_GLOBAL const float *line =
                    x + ((image * TW_CHANNELS + channel) * TW_HEIGHT + y) * TW_WIDTH;
                float pixel[PIXELS];
                TW_UNROLL
                for (int j = 0; j < PIXELS; j++)
                    pixel[j] = y >= 0 && y < TW_HEIGHT && left + j >= 0 && left + j < TW_WIDTH
                                   ? line[left + j]
                                   : 0.0f;
                TW_UNROLL
                for (int kx = 0; kx < TW_TAPS_X; kx++)
                    TW_UNROLL
                    for (int i = 0; i < TW_EACH; i++) {
                        const int tap = (channel * TW_TAPS_Y + ky) * TW_TAPS_X + kx;
                        const float value = weight[tap * TW_FILTERS + first + i];
                        TW_UNROLL
                        for (int j = 0; j < TW_WIDE; j++)
                            sum[i][j] = TW_FMA(pixel[j * TW_STRIDE_X + kx], value, sum[i][j]);
                    }
            }
        TW_UNROLL
        for (int i = 0; i < TW_EACH; i++)
            TW_UNROLL
            for (int j = 0; j < TW_WIDE; j++)
                if (column + j < TW_OUT_X)
                    out[((image * TW_FILTERS + first + i) * TW_OUT_Y + row) * TW_OUT_X + column
                        + j] = sum[i][j];
    }
}
