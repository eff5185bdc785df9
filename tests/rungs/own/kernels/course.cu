/* tilewright
name = "course"
idea = "the course's kernel as it is"
bias = "added"
requires = ["PAD_Y == 0 and PAD_X == 0", "STRIDE_Y == STRIDE_X", "TAPS_Y == TAPS_X"]

[[kernel]]
entry = "conv_forward_kernel"
block = [16, 16]
grid = ["FILTERS", "ceil_div(OUT_Y, 16) * ceil_div(OUT_X, 16)", "IMAGES"]
arguments = ["out", "x", "weight", "IMAGES", "FILTERS", "CHANNELS", "HEIGHT", "WIDTH", "TAPS_Y",
             "STRIDE_Y"]
*/
#define TILE_WIDTH 16

__global__ void conv_forward_kernel(float *output, const float *input, const float *mask,
                                    const int B, const int M, const int C, const int H, const int W, const int K, const int S)
{
    const int H_out = (H - K) / S + 1;
    const int W_out = (W - K) / S + 1;
#define out_4d(i3, i2, i1, i0) output[(i3) * (M * H_out * W_out) + (i2) * (H_out * W_out) + (i1) * (W_out) + i0]
#define in_4d(i3, i2, i1, i0) input[(i3) * (C * H * W) + (i2) * (H * W) + (i1) * (W) + i0]
#define mask_4d(i3, i2, i1, i0) mask[(i3) * (C * K * K) + (i2) * (K * K) + (i1) * (K) + i0]
    int W_grid = (W_out + TILE_WIDTH - 1) / TILE_WIDTH;
    int m = blockIdx.x;
    int h = blockIdx.y / W_grid * TILE_WIDTH + threadIdx.y;
    int w = blockIdx.y % W_grid * TILE_WIDTH + threadIdx.x;
    int b = blockIdx.z;
    float acc = 0.0f;
    if (h < H_out && w < W_out) {
        for (int c = 0; c < C; c++)
            for (int p = 0; p < K; p++)
                for (int q = 0; q < K; q++)
                    acc += in_4d(b, c, h * S + p, w * S + q) * mask_4d(m, c, p, q);
        out_4d(b, m, h, w) = acc;
    }
}
