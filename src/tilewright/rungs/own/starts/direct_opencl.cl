/* tilewright
name = "@name@"
idea = "a thread an output: say here what you change, and why it should help"
language = "opencl"             # plain OpenCL C; without this line it is the dialect
against = "direct"              # the rung that yours is compared with

# Sizes of your tiles. The first choice that meets the constraints and fits the device is taken.
constraints = ["TILE_Y < 2 * OUT_Y", "TILE_X < 2 * OUT_X"]

[parameters]
TILE_Y = [16, 8, 4, 2, 1]
TILE_X = [16, 8, 4, 2, 1]

# Sizes worked out from others. The source knows every size as a constant, too: TW_TILES_X.
[sizes]
TILES_Y = "ceil_div(OUT_Y, TILE_Y)"
TILES_X = "ceil_div(OUT_X, TILE_X)"

# A launch: blocks along x, y and z, threads of a block, and what the kernel is given.
[[kernel]]
entry = "@entry@_conv"
block = ["TILE_X", "TILE_Y"]
grid = ["TILES_X * TILES_Y", "FILTERS", "IMAGES"]
arguments = [
    "out", "x", "weight", "bias", "FILTERS", "CHANNELS", "HEIGHT", "WIDTH", "OUT_Y", "OUT_X",
    "TAPS_Y", "TAPS_X", "STRIDE_Y", "STRIDE_X", "PAD_Y", "PAD_X",
]
*/

/* One thread, one output: out[image][filter][row][column]. A block is a tile of one output plane.
 * x is [image][channel][y][x], weight is [filter][channel][ky][kx], bias is [filter]. */
__kernel void @entry@_conv(__global float *out, __global const float *x,
    __global const float *weight, __global const float *bias, const int filters, const int channels, const int height,
    const int width, const int out_y, const int out_x, const int taps_y, const int taps_x,
    const int stride_y, const int stride_x, const int pad_y, const int pad_x) {
    const int column = (int)get_group_id(0) % TW_TILES_X * TW_TILE_X + (int)get_local_id(0);
    const int row = (int)get_group_id(0) / TW_TILES_X * TW_TILE_Y + (int)get_local_id(1);
    const int filter = (int)get_group_id(1);
    const long image = get_group_id(2); /* 64 bits: a whole batch may be large */

    /* The last tiles reach beyond the plane. */
    if (column < out_x && row < out_y) {
        float sum = bias[filter];
        for (int channel = 0; channel < channels; channel++)
            for (int ky = 0; ky < taps_y; ky++)
                for (int kx = 0; kx < taps_x; kx++) {
                    const int y = row * stride_y - pad_y + ky;
                    const int xx = column * stride_x - pad_x + kx;
                    /* Outside the image everything is zero. */
                    if (y >= 0 && y < height && xx >= 0 && xx < width)
                        sum +=
                            x[((image * channels + channel) * height + y) * width + xx]
                            * weight[((filter * channels + channel) * taps_y + ky) * taps_x + kx];
                }
        out[((image * filters + filter) * out_y + row) * out_x + column] = sum;
    }
}
