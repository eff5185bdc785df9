/* tilewright
name = "two-steps"
idea = "padded by a first kernel, weights in constant memory with the filter last"
against = "padded"
weight_order = "channel taps filter"
requires = "4 * FILTERS * CHANNELS * TAPS_Y * TAPS_X <= 65536"
otherwise = "direct"

[sizes]
PADDED_Y = "HEIGHT + 2 * PAD_Y"
PADDED_X = "WIDTH + 2 * PAD_X"
SIZE = "CHANNELS * PADDED_Y * PADDED_X"

[scratch]
padded = "SIZE"

[[kernel]]
entry = "two_steps_pad"
block = [64]
grid = ["ceil_div(SIZE, THREADS)", "IMAGES"]
arguments = ["x", "padded"]

[[kernel]]
entry = "two_steps_conv"
block = [8, 8]
grid = ["IMAGES", "FILTERS"]
arguments = ["padded", "bias", "out", "IMAGES", "OUT_X"]
constant = "weight"
*/
TW_ENTRY two_steps_pad(TW_GLOBAL const float *x, TW_GLOBAL float *padded) {
    const int index = TW_BLOCK_X * TW_THREADS_X + TW_THREAD_X;
    const tw_index image = TW_BLOCK_Y;
    if (index < TW_SIZE) {
        const int channel = index / (TW_PADDED_Y * TW_PADDED_X);
        const int y = index / TW_PADDED_X % TW_PADDED_Y - TW_PAD_Y;
        const int xx = index % TW_PADDED_X - TW_PAD_X;
        float value = 0;
        if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
            value = x[((image * TW_CHANNELS + channel) * TW_HEIGHT + y) * TW_WIDTH + xx];
        padded[image * TW_SIZE + index] = value;
    }
}

#if TW_CONSTANT_FLOATS
TW_ENTRY two_steps_conv(TW_GLOBAL const float *padded, TW_GLOBAL const float *bias,
                        TW_GLOBAL float *out, const int images, const int out_x
                        TW_CONSTANT_ARGUMENT) {
    const tw_index image = TW_BLOCK_X;
    const int filter = TW_BLOCK_Y;
    for (int row = TW_THREAD_Y; row < TW_OUT_Y; row += TW_THREADS_Y)
        for (int column = TW_THREAD_X; column < out_x; column += TW_THREADS_X) {
            float sum = bias[filter];
            for (int channel = 0; channel < TW_CHANNELS; channel++)
                for (int tap = 0; tap < TW_TAPS_Y * TW_TAPS_X; tap++) {
                    const int y = row * TW_STRIDE_Y + tap / TW_TAPS_X;
                    const int xx = column * TW_STRIDE_X + tap % TW_TAPS_X;
                    sum = TW_FMA(padded[image * TW_SIZE + (channel * TW_PADDED_Y + y) * TW_PADDED_X
                                        + xx],
                                 tw_constant[(channel * (TW_TAPS_Y * TW_TAPS_X) + tap) * TW_FILTERS
                                             + filter], sum);
                }
            if (image < images)
                out[((image * TW_FILTERS + filter) * TW_OUT_Y + row) * out_x + column] = sum;
        }
}
#endif
