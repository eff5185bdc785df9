/* tilewright
name = "plane"
idea = "a thread an output, tiles that shrink with the plane"
against = "direct"

constraints = ["TILE_Y < 2 * OUT_Y", "TILE_X < 2 * OUT_X"]

[parameters]
TILE_Y = [16, 8, 4, 2, 1]
TILE_X = [16, 8, 4, 2, 1]

[sizes]
TILES_Y = "ceil_div(OUT_Y, TILE_Y)"
TILES_X = "ceil_div(OUT_X, TILE_X)"

[[kernel]]
entry = "plane_conv"
block = ["TILE_X", "TILE_Y"]
grid = ["TILES_X * TILES_Y * FILTERS", 1, "IMAGES"]
arguments = ["x", "weight", "bias", "out"]
*/
#define TAPS (TW_TAPS_Y * TW_TAPS_X)

TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL const float *weight,
                 TW_GLOBAL const float *bias, TW_GLOBAL float *out) {
    const int column = TW_BLOCK_X % TW_TILES_X * TW_THREADS_X + TW_THREAD_X;
    const int row = TW_BLOCK_X / TW_TILES_X % TW_TILES_Y * TW_THREADS_Y + TW_THREAD_Y;
    const int filter = TW_BLOCK_X / (TW_TILES_X * TW_TILES_Y);
    const tw_index image = TW_BLOCK_Z;
    if (column < TW_OUT_X && row < TW_OUT_Y) {
        float sum = bias[filter];
        for (int channel = 0; channel < TW_CHANNELS; channel++)
            for (int ky = 0; ky < TW_TAPS_Y; ky++)
                for (int kx = 0; kx < TW_TAPS_X; kx++) {
                    const int y = row * TW_STRIDE_Y - TW_PAD_Y + ky;
                    const int xx = column * TW_STRIDE_X - TW_PAD_X + kx;
                    if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
                        sum = TW_FMA(x[(image * TW_CHANNELS + channel) * (TW_HEIGHT * TW_WIDTH)
                                       + y * TW_WIDTH + xx],
                                     weight[(filter * TW_CHANNELS + channel) * TAPS
                                            + ky * TW_TAPS_X + kx], sum);
                }
        out[(image * TW_FILTERS + filter) * (TW_OUT_Y * TW_OUT_X) + row * TW_OUT_X + column] = sum;
    }
}
