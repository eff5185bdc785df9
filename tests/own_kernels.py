# ruff: noqa: E501 - what is replaced in a line of a kernel is best read on one line
"""Kernel files for tests: two that are right, and mistakes to make in them."""

from __future__ import annotations

HEADER = """/* tilewright
name = "{name}"
idea = "{idea}"
against = "direct"
{more}
[sizes]
TILES_X = "ceil_div(OUT_X, {block})"
TILES_Y = "ceil_div(OUT_Y, {block})"
{scratch}
[[kernel]]
entry = "conv"
block = [{block}, {block}]
grid = ["TILES_X * TILES_Y * FILTERS", 1, "IMAGES"]
arguments = {arguments}
*/
"""
PLAIN_ARGUMENTS = '["x", "weight", "bias", "out"]'

PLACE = """    const int column = TW_BLOCK_X % TW_TILES_X * TW_THREADS_X + TW_THREAD_X;
    const int row = TW_BLOCK_X / TW_TILES_X % TW_TILES_Y * TW_THREADS_Y + TW_THREAD_Y;
    const int filter = TW_BLOCK_X / (TW_TILES_X * TW_TILES_Y);
    const tw_index image = TW_BLOCK_Z;
    const int top = row * TW_STRIDE_Y - TW_PAD_Y;
    const int left = column * TW_STRIDE_X - TW_PAD_X;
"""
STORE = """    if (column < TW_OUT_X && row < TW_OUT_Y)
        out[(image * TW_FILTERS + filter) * (TW_OUT_Y * TW_OUT_X) + row * TW_OUT_X + column] = sum;
}
"""
ENTRY = """TW_ENTRY conv(TW_GLOBAL const float *x, TW_GLOBAL const float *weight,
              TW_GLOBAL const float *bias, TW_GLOBAL float *out) {
"""

DIRECT = ENTRY + PLACE + """    float sum = bias[filter];
    if (column < TW_OUT_X && row < TW_OUT_Y)
    for (int channel = 0; channel < TW_CHANNELS; channel++)
        for (int ky = 0; ky < TW_TAPS_Y; ky++)
            for (int kx = 0; kx < TW_TAPS_X; kx++) {
                const int y = top + ky, xx = left + kx;
                if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
                    sum += x[((image * TW_CHANNELS + channel) * TW_HEIGHT + y) * TW_WIDTH + xx]
                         * weight[((filter * TW_CHANNELS + channel) * TW_TAPS_Y + ky) * TW_TAPS_X + kx];
            }
""" + STORE  # fmt: skip

SHARED = """#define TILE_Y ((TW_THREADS_Y - 1) * TW_STRIDE_Y + TW_TAPS_Y)
#define TILE_X ((TW_THREADS_X - 1) * TW_STRIDE_X + TW_TAPS_X)
#define TAPS (TW_TAPS_Y * TW_TAPS_X)
""" + ENTRY + """    TW_SHARED float pixels[TILE_Y * TILE_X];
    TW_SHARED float weights[TAPS];
    const int thread = TW_THREAD_Y * TW_THREADS_X + TW_THREAD_X;
""" + PLACE + """    const int first_y = top - TW_THREAD_Y * TW_STRIDE_Y;
    const int first_x = left - TW_THREAD_X * TW_STRIDE_X;
    float sum = bias[filter];
    for (int channel = 0; channel < TW_CHANNELS; channel++) {
        for (int i = thread; i < TILE_Y * TILE_X; i += 256) {
            const int y = first_y + i / TILE_X, xx = first_x + i % TILE_X;
            float value = 0;
            if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
                value = x[((image * TW_CHANNELS + channel) * TW_HEIGHT + y) * TW_WIDTH + xx];
            pixels[i] = value;
        }
        for (int i = thread; i < TAPS; i += 256)
            weights[i] = weight[(filter * TW_CHANNELS + channel) * TAPS + i];
        TW_BARRIER(); /* loaded */
        for (int ky = 0; ky < TW_TAPS_Y; ky++)
            for (int kx = 0; kx < TW_TAPS_X; kx++)
                sum += pixels[(TW_THREAD_Y * TW_STRIDE_Y + ky) * TILE_X + TW_THREAD_X * TW_STRIDE_X + kx]
                     * weights[ky * TW_TAPS_X + kx];
        TW_BARRIER(); /* used */
    }
""" + STORE  # fmt: skip


def kernel_file(
    body: str,
    *changes: tuple[str, str],
    name: str = "mine",
    more: str = "",
    arguments: str = PLAIN_ARGUMENTS,
    scratch: str = "",
    block: int = 16,
) -> str:
    """A file with a body in which some words are replaced by others; each must be there."""
    for old, new in changes:
        assert old in body, old
        body = body.replace(old, new)
    header = HEADER.format(
        name=name, idea="a kernel of a test", more=more, arguments=arguments, scratch=scratch,
        block=block,
    )  # fmt: skip
    return header + body


INSIDE = "y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH"
WRITTEN = "column < TW_OUT_X && row < TW_OUT_Y)\n        out"
SUM = "] = sum;"
FIRST_FILTERS = "(image * TW_FILTERS + filter)"

# Seen by a simulator alone: PoCL runs the threads of a block one after the other. Every thread is
# interpreted, so that there are few of them.
NO_BARRIER = kernel_file(SHARED, ("TW_BARRIER(); /* loaded */", ""), ("+= 256", "+= 16"), block=4)

# What is wrong: the file, and the word that the diagnosis must have first.
BROKEN: dict[str, tuple[str, str]] = {
    "no test at the left and right": (
        kernel_file(DIRECT, (INSIDE, "y >= 0 && y < TW_HEIGHT")), "border not tested",
    ),
    "no test at all": (kernel_file(DIRECT, (f"if ({INSIDE})", "")), "border not tested"),
    "first row taken for padding": (kernel_file(DIRECT, ("y >= 0", "y > 0")), "padding"),
    "last column taken for padding": (
        kernel_file(DIRECT, ("xx < TW_WIDTH", "xx < TW_WIDTH - 1")), "padding",
    ),
    "padding ignored": (
        kernel_file(DIRECT, (" - TW_PAD_Y", ""), (" - TW_PAD_X", "")), "padding",
    ),
    "padding off by one": (kernel_file(DIRECT, ("- TW_PAD_X;", "- TW_PAD_X + 1;")), "padding"),
    "stride ignored": (
        kernel_file(DIRECT, ("row * TW_STRIDE_Y", "row"), ("column * TW_STRIDE_X", "column")),
        "stride",
    ),
    "strides swapped": (
        kernel_file(
            DIRECT, ("row * TW_STRIDE_Y", "row * TW_STRIDE_Q"),
            ("column * TW_STRIDE_X", "column * TW_STRIDE_Y"), ("STRIDE_Q", "STRIDE_X"),
        ),
        "stride",
    ),
    "kernel flipped": (
        kernel_file(
            DIRECT, ("TW_TAPS_Y + ky)", "TW_TAPS_Y + TW_TAPS_Y - 1 - ky)"),
            ("TW_TAPS_X + kx]", "TW_TAPS_X + TW_TAPS_X - 1 - kx]"),
        ),
        "kernel flipped",
    ),
    "kernel transposed": (
        kernel_file(DIRECT, ("* TW_TAPS_Y + ky) * TW_TAPS_X + kx]", "* TW_TAPS_X + kx) * TW_TAPS_Y + ky]")),
        "y and x swapped",
    ),
    "input transposed": (
        kernel_file(DIRECT, ("* TW_HEIGHT + y) * TW_WIDTH + xx]", "* TW_WIDTH + xx) * TW_HEIGHT + y]")),
        "y and x swapped",
    ),
    "output transposed": (
        kernel_file(DIRECT, ("row * TW_OUT_X + column]", "column * TW_OUT_Y + row]")),
        "y and x swapped",
    ),
    "no bias": (kernel_file(DIRECT, ("sum = bias[filter]", "sum = 0")), "bias forgotten"),
    "bias for every channel": (
        kernel_file(DIRECT, ("for (int ky", "for (int ky = (sum += channel ? bias[filter] : 0, 0); ky < TW_TAPS_Y; ky++) //")),
        "bias added twice",
    ),
    "bias of filter 0": (
        kernel_file(DIRECT, ("bias[filter]", "bias[0]")), "bias of another filter",
    ),
    "last channel left out": (
        kernel_file(DIRECT, ("channel < TW_CHANNELS", "channel < TW_CHANNELS - (TW_CHANNELS > 1)")),
        "input channel left out",
    ),
    "last row of taps left out": (
        kernel_file(DIRECT, ("ky < TW_TAPS_Y", "ky < TW_TAPS_Y - 1")), "tap left out",
    ),
    "channels reversed": (
        kernel_file(DIRECT, ("TW_CHANNELS + channel) * TW_TAPS_Y", "TW_CHANNELS + TW_CHANNELS - 1 - channel) * TW_TAPS_Y")),
        "channels mixed up",
    ),
    "weights by channel first": (
        kernel_file(DIRECT, ("(filter * TW_CHANNELS + channel)", "(channel * TW_FILTERS + filter)")),
        "channels mixed up",
    ),
    "filters reversed": (
        kernel_file(DIRECT, (FIRST_FILTERS, "(image * TW_FILTERS + TW_FILTERS - 1 - filter)")),
        "filters mixed up",
    ),
    "last filter missing": (
        kernel_file(DIRECT, (WRITTEN, f"filter < TW_FILTERS - 1 && {WRITTEN}")), "never written",
    ),
    "last columns not written": (
        kernel_file(DIRECT, (WRITTEN, f"column < TW_OUT_X / 8 * 8 && {WRITTEN}")),
        "never written",
    ),
    "only the first 256 outputs": (
        kernel_file(DIRECT, (WRITTEN, f"row * TW_OUT_X + column + filter * TW_OUT_X * TW_OUT_Y < 256 && {WRITTEN}")),
        "never written",
    ),
    "only the first image": (
        kernel_file(DIRECT, ("image = TW_BLOCK_Z", "image = 0")), "never written",
    ),
    "every image is the first": (
        kernel_file(DIRECT, ("x[((image * TW_CHANNELS", "x[((0 * image * TW_CHANNELS")),
        "images mixed up",
    ),
    "only the first 100 images": (
        kernel_file(DIRECT, (WRITTEN, f"image < 100 && {WRITTEN}")), "never written",
    ),
    "index of 16 bits": (
        kernel_file(DIRECT, ("const tw_index image = TW_BLOCK_Z", "const short image = TW_BLOCK_Z"),
                    ("x[((image * TW_CHANNELS + channel) * TW_HEIGHT + y) * TW_WIDTH + xx]",
                     "x[(ushort)(((image * TW_CHANNELS + channel) * TW_HEIGHT + y) * TW_WIDTH + xx)]")),
        "later images only",
    ),
    "adds to its output": (kernel_file(DIRECT, (SUM, "] += sum;")), "adds to old output"),
    "writes outside": (
        kernel_file(DIRECT, (SUM, "] = sum; if (image == 0 && filter == 0 && row == 0 && column == 0) out[-3] = 1;")),
        "writes outside",
    ),
    "no test when it writes": (
        kernel_file(DIRECT, ("    if (column < TW_OUT_X && row < TW_OUT_Y)\n        out", "    if (row < TW_OUT_Y)\n        out")),
        "writes outside",
    ),
    "changes its input": (
        kernel_file(DIRECT, ("TW_GLOBAL const float *x", "TW_GLOBAL float *x"),
                    (SUM, "] = sum; if (row == 0 && column == 0 && filter == 0) x[image * TW_CHANNELS * TW_HEIGHT * TW_WIDTH] = 3;")),
        "changes its input",
    ),
    "changes its weights": (
        kernel_file(DIRECT, ("TW_GLOBAL const float *weight", "TW_GLOBAL float *weight"),
                    (SUM, "] = sum; if (image == 0 && filter == 0 && row == TW_OUT_Y - 1 && column == TW_OUT_X - 1) weight[0] = 3;")),
        "changes its weights",
    ),
    "operands of fp16": (
        kernel_file(DIRECT, ("sum += x[", "sum += ROUNDED(x["), ("* TW_WIDTH + xx]", "* TW_WIDTH + xx])"),
                    ("TW_ENTRY", "#define ROUNDED(v) as_float(as_uint(v) + 0x1000 & 0xffffe000)\nTW_ENTRY")),
        "precision",
    ),
    "result of fp16": (
        kernel_file(DIRECT, (SUM, "] = as_float(as_uint(sum) + 0x1000 & 0xffffe000);")), "precision",
    ),
    "rows as long as the output's": (
        kernel_file(DIRECT, ("* TW_WIDTH + xx]", "* TW_OUT_X + xx]")), "length of a row",
    ),
    "kernel taken for a square": (
        kernel_file(DIRECT, ("ky) * TW_TAPS_X + kx]", "ky) * TW_TAPS_Y + kx]")), "length of a row",
    ),
    "channels in fours": (
        kernel_file(DIRECT, ("channel < TW_CHANNELS;", "channel < TW_CHANNELS / 4 * 4;")),
        "nothing summed",
    ),
    "products subtracted": (kernel_file(DIRECT, ("sum += x", "sum -= x")), "sign"),
    "an average": (kernel_file(DIRECT, (SUM, "] = sum / TW_CHANNELS;")), "constant factor"),
    "sum in an int": (kernel_file(DIRECT, ("float sum", "int sum")), "precision"),
    "halo too small": (
        kernel_file(SHARED, ("TILE_X ((TW_THREADS_X - 1) * TW_STRIDE_X + TW_TAPS_X)", "TILE_X (TW_THREADS_X * TW_STRIDE_X)")),
        "edge of a tile",
    ),
    "with a ReLU": (kernel_file(DIRECT, (SUM, "] = sum > 0 ? sum : 0;")), "activation applied"),
    "swallows NaN": (
        kernel_file(DIRECT, (SUM, "] = sum == sum ? sum : 0;")), "swallows NaN",
    ),
    "shared memory read before it is written": (
        kernel_file(SHARED, ("float value = 0;\n            if", "float value = pixels[i];\n            if")),
        "reads what nothing wrote",
    ),
    "wrong edge of the tile": (
        kernel_file(SHARED, ("i < TILE_Y * TILE_X; i", "i < TILE_Y * TILE_X - TILE_X; i")),
        "reads what nothing wrote",
    ),
    "stale scratch": (
        kernel_file(
            DIRECT, ("TW_GLOBAL float *out)", "TW_GLOBAL float *out, TW_GLOBAL float *kept)"),
            (SUM, "] = sum + 0 * kept[image]; kept[image] = 1;"),
            arguments='["x", "weight", "bias", "out", "kept"]', scratch='[scratch]\nkept = 1',
        ),
        "reads what nothing wrote",
    ),
}  # fmt: skip

# Sums in another order, or with fewer roundings, are right as well.
RIGHT: dict[str, str] = {
    "direct": kernel_file(DIRECT),
    "shared": kernel_file(SHARED),
    "sums from the end": kernel_file(
        DIRECT, ("int channel = 0; channel < TW_CHANNELS; channel++", "int channel = TW_CHANNELS - 1; channel >= 0; channel--"),
        ("int ky = 0; ky < TW_TAPS_Y; ky++", "int ky = TW_TAPS_Y - 1; ky >= 0; ky--"),
        ("float sum = bias[filter];", "float sum = 0;"), (SUM, "] = sum + bias[filter];"),
    ),
    "a tree of sums": kernel_file(
        DIRECT, ("float sum = bias[filter];", "float sum = bias[filter], part[4] = {0, 0, 0, 0};"),
        ("sum += x", "part[(channel + ky + kx) % 4] += x"),
        (SUM, "] = ((part[0] + part[1]) + (part[2] + part[3])) + sum;"),
    ),
    "Kahan's sum": kernel_file(
        DIRECT, ("float sum = bias[filter];", "volatile float sum = bias[filter], lost = 0, next;"),
        ("sum += x", "{ const float term = x"), ("TW_TAPS_X + kx];", "TW_TAPS_X + kx] - lost; next = sum + term; lost = (next - sum) - term; sum = next; }"),
    ),
}  # fmt: skip

# Tiles of 2x2 outputs, a thread a tile: 16 products for 4 outputs instead of 36.
WINOGRAD = """/* tilewright
name = "winograd"
idea = "F(2x2, 3x3): fewer products"
precision = "{precision}"
requires = "TAPS_Y == 3 and TAPS_X == 3 and STRIDE_Y == 1 and STRIDE_X == 1"
[sizes]
TILES_X = "ceil_div(OUT_X, 2)"
TILES_Y = "ceil_div(OUT_Y, 2)"
[[kernel]]
entry = "conv"
block = [64]
grid = ["ceil_div(TILES_X * TILES_Y, 64)", "FILTERS", "IMAGES"]
arguments = ["x", "weight", "bias", "out"]
*/
TW_ENTRY conv(TW_GLOBAL const float *x, TW_GLOBAL const float *weight,
              TW_GLOBAL const float *bias, TW_GLOBAL float *out) {{
    const int tile = TW_BLOCK_X * 64 + TW_THREAD_X, filter = TW_BLOCK_Y;
    const tw_index image = TW_BLOCK_Z;
    const int row = tile / TW_TILES_X * 2, column = tile % TW_TILES_X * 2;
    float sum[4][4], d[4][4], t[4][4], u[4][3];
    for (int i = 0; i < 16; i++) sum[i / 4][i % 4] = 0;
    if (tile < TW_TILES_X * TW_TILES_Y) {{
        for (int channel = 0; channel < TW_CHANNELS; channel++) {{
            TW_GLOBAL const float *g = weight + (filter * TW_CHANNELS + channel) * 9;
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) {{
                    const int y = row - TW_PAD_Y + i, xx = column - TW_PAD_X + j;
                    d[i][j] = 0;
                    if (y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH)
                        d[i][j] = x[((image * TW_CHANNELS + channel) * TW_HEIGHT + y) * TW_WIDTH + xx];
                }}
            for (int j = 0; j < 4; j++) {{
                t[0][j] = d[0][j] - d[2][j]; t[1][j] = d[1][j] + d[2][j];
                t[2][j] = d[2][j] - d[1][j]; t[3][j] = d[1][j] - d[3][j];
            }}
            for (int j = 0; j < 3; j++) {{
                u[0][j] = g[j]; u[3][j] = g[6 + j];
                u[1][j] = 0.5f * (g[j] + g[3 + j] + g[6 + j]);
                u[2][j] = 0.5f * (g[j] - g[3 + j] + g[6 + j]);
            }}
            for (int i = 0; i < 4; i++) {{
                sum[i][0] += u[i][0] * (t[i][0] - t[i][2]);
                sum[i][1] += 0.5f * (u[i][0] + u[i][1] + u[i][2]) * (t[i][1] + t[i][2]);
                sum[i][2] += 0.5f * (u[i][0] - u[i][1] + u[i][2]) * (t[i][2] - t[i][1]);
                sum[i][3] += u[i][2] * (t[i][1] - t[i][3]);
            }}
        }}
        for (int j = 0; j < 4; j++) {{
            t[0][j] = sum[0][j] + sum[1][j] + sum[2][j];
            t[1][j] = sum[1][j] - sum[2][j] - sum[3][j];
        }}
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++)
                if (row + i < TW_OUT_Y && column + j < TW_OUT_X)
                    out[((image * TW_FILTERS + filter) * TW_OUT_Y + row + i) * TW_OUT_X + column + j] =
                        bias[filter] + (j ? t[i][1] - t[i][2] - t[i][3] : t[i][0] + t[i][1] + t[i][2]);
    }}
}}
"""
RIGHT["Winograd, in its class"] = WINOGRAD.format(precision="fp32-winograd")
# What is exact in its own class is not in another.
OUT_OF_CLASS = {
    "Winograd as a direct sum": WINOGRAD.format(precision="fp32"),
    "fp16 as Winograd": kernel_file(
        DIRECT, (SUM, "] = as_float(as_uint(sum) + 0x1000 & 0xffffe000);"),
        more='precision = "fp32-winograd"',
    ),
    "fp16 as FFT": kernel_file(
        DIRECT, (SUM, "] = as_float(as_uint(sum) + 0x1000 & 0xffffe000);"),
        more='precision = "fp32-fft"',
    ),
    "TF32 as Winograd": BROKEN["operands of fp16"][0].replace(
        'against = "direct"', 'against = "direct"\nprecision = "fp32-winograd"'
    ),
}  # fmt: skip
