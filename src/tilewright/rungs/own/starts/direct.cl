/* tilewright
name = "@name@"
idea = "a thread an output: say here what you change, and why it should help"
against = "direct"              # the rung that yours is compared with

# Sizes of your tiles. The first choice that meets the constraints and fits the device is taken.
constraints = ["TILE_Y < 2 * OUT_Y", "TILE_X < 2 * OUT_X"]

[parameters]
TILE_Y = [16, 8, 4, 2, 1]
TILE_X = [16, 8, 4, 2, 1]

# Sizes worked out from others; the source knows them as TW_TILES_Y and TW_TILES_X.
[sizes]
TILES_Y = "ceil_div(OUT_Y, TILE_Y)"
TILES_X = "ceil_div(OUT_X, TILE_X)"

# A launch: blocks along x, y and z, threads of a block, and what the kernel is given.
[[kernel]]
entry = "@entry@_conv"
block = ["TILE_X", "TILE_Y"]
grid = ["TILES_X * TILES_Y", "FILTERS", "IMAGES"]
arguments = ["x", "weight", "bias", "out"]
*/

/* One thread, one output: out[image][filter][row][column]. A block is a tile of one output plane.
 * x is [image][channel][y][x], weight is [filter][channel][ky][kx], bias is [filter]. */
TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL const float *weight,
                 TW_GLOBAL const float *bias, TW_GLOBAL float *out) {
    const int column = TW_BLOCK_X % TW_TILES_X * TW_THREADS_X + TW_THREAD_X;
    const int row = TW_BLOCK_X / TW_TILES_X * TW_THREADS_Y + TW_THREAD_Y;
    const int filter = TW_BLOCK_Y;
    const tw_index image = TW_BLOCK_Z; /* 64 bits: a whole batch may be large */

    /* The last tiles reach beyond the plane. */
    if (column < TW_OUT_X && row < TW_OUT_Y) {
        float sum = bias[filter];
        for (int channel = 0; channel < TW_CHANNELS; channel++)
            for (int ky = 0; ky < TW_TAPS_Y; ky++)
                for (int kx = 0; kx < TW_TAPS_X; kx++) {
                    const int y = row * TW_STRIDE_Y - TW_PAD_Y + ky;
                    const int xx = column * TW_STRIDE_X - TW_PAD_X + kx;
                    /* Outside the image everything is zero. */
                    if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
                        sum = TW_FMA(
                            x[((image * TW_CHANNELS + channel) * TW_HEIGHT + y) * TW_WIDTH + xx],
                            weight[((filter * TW_CHANNELS + channel) * TW_TAPS_Y + ky) * TW_TAPS_X
                                   + kx],
                            sum);
                }
        out[((image * TW_FILTERS + filter) * TW_OUT_Y + row) * TW_OUT_X + column] = sum;
    }
}
