"""Kernel files as rungs: proven like the ladder's own, refused where they are not for a layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.rungs.gpu.kernels import USUAL
from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.model.layers import Convolution, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.rungs import choose, find
from tilewright.rungs.gpu.design import Geometry, NotForLayer
from tilewright.rungs.gpu.prepare import most_images, serving
from tilewright.rungs.own import load
from tilewright.runtime import cuda, nvrtc, opencl
from tilewright.runtime.device import CPU, CUDA, OPENCL
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth.trials import random_parameters
from tilewright.truth.verify import verify_at_hand

KERNELS = Path(__file__).parent / "kernels"
needs_opencl = pytest.mark.skipif(
    opencl.missing(OPENCL) is not None, reason=str(opencl.missing(OPENCL))
)
needs_nvrtc = pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))
# Without padding, and with as large a stride both ways, as the course has it.
PLAIN = (Convolution(3, 3), ReLU(), Convolution(5, 2, stride=2, bias=False))
ODD = (Convolution(3, (3, 2), padding=(1, 2), stride=(1, 2)), ReLU(), Convolution(18, 3, padding=1))


def network(layers):
    made = Network("small", Pixels((2, 9, 11)), layers)
    return made.with_parameters(random_parameters(made, np.random.default_rng(1)))


def geometry(**changed):
    sizes = {"channels": 2, "height": 9, "width": 11, "filters": 3, "taps_y": 3, "taps_x": 3}
    sizes |= {"stride_y": 1, "stride_x": 1, "pad_y": 0, "pad_x": 0, "out_y": 7, "out_x": 9}
    return Geometry(**{**sizes, **changed})


def written(folder, text, name="mine.cl"):
    path = folder / name
    path.write_text(text)
    return path


@needs_opencl
@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize(
    ("name", "layers"), [("plane.cl", ODD), ("padded.cl", ODD), ("course.cl", PLAIN)]
)
def test_a_kernel_file_is_proven_like_any_rung(name, layers):
    rung = choose(OPENCL, str(KERNELS / name))
    verdict = verify_at_hand(rung, OPENCL, network(layers), batch=7)
    assert verdict.fault is None
    assert verdict.trials > 10


@needs_opencl
@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("y >= 0 &&", "y > 0 &&"),
        ("float sum = bias[filter]", "float sum = 0"),
        ('weight_order = "channel taps filter"', 'weight_order = "channel filter taps"'),
        ('grid = ["IMAGES", "FILTERS"]', 'grid = ["IMAGES", "FILTERS - 1"]'),
    ],
)
def test_a_wrong_one_is_found(right, wrong, tmp_path):
    text = (KERNELS / "padded.cl").read_text()
    assert text.count(right) == 1
    rung = choose(OPENCL, str(written(tmp_path, text.replace(right, wrong))))
    assert verify_at_hand(rung, OPENCL, network(ODD), batch=3).fault is not None


@needs_opencl
def test_large_batches_go_in_pieces_whatever_axis_images_are_along():
    """The second kernel has them along x, the first along y, where a grid ends at 65,535."""
    design = load(KERNELS / "padded.cl").convolutions.design(geometry(), USUAL)
    first, second = design.works
    assert second.grid(1000) == (1000, 3, 1)
    assert first.grid(65_536)[1] == 65_536
    assert (first.most_images, second.most_images) == (65_535, 65_535)
    assert most_images(design, USUAL) == 65_535


@needs_nvrtc
@pytest.mark.parametrize("name", ["plane.cl", "padded.cl", "course.cu"])
def test_the_same_file_is_cuda(name):
    design = load(KERNELS / name).convolutions.design(geometry(), USUAL)
    for work in design.works:
        compiled = nvrtc.compile_source(work.source, "sm_90")
        assert compiled.registers > 0
        assert compiled.constant_bytes == 4 * work.source.constant_floats
        taken = nvrtc.parameters(compiled)
        assert work.source.parameters in (None, taken)
        assert len(taken) == len(work.arguments)


def test_files_run_where_their_language_does():
    assert find(str(KERNELS / "plane.cl")).devices == ("opencl", "cuda")
    assert find(str(KERNELS / "course.cu")).devices == ("cuda",)
    with pytest.raises(TilewrightError, match=r"course.cu runs with --device cuda, not on opencl"):
        choose(OPENCL, str(KERNELS / "course.cu"))
    with pytest.raises(TilewrightError, match=r"course.cl runs with --device opencl, not on cuda"):
        choose(CUDA, str(KERNELS / "course.cl"))
    with pytest.raises(TilewrightError, match=r"--device opencl or --device cuda, not on cpu"):
        choose(CPU, str(KERNELS / "plane.cl"))


@needs_opencl
def test_a_layer_that_is_not_for_it_is_refused_by_name():
    rung = choose(OPENCL, str(KERNELS / "course.cl"))
    made = network(ODD)
    with pytest.raises(
        NotForLayer, match=r"^conv1: .*course.cl requires PAD_Y == 0 .* PAD_X is 2, PAD_Y is 1;"
    ):
        Program(made, uniform(made, rung, OPENCL, 4), {rung.name: rung})


def test_another_rung_takes_what_is_not_for_it():
    own = load(KERNELS / "padded.cl").convolutions
    large = geometry(channels=300, filters=64)
    assert [w.source.name for w in own.design(large, USUAL).works] == ["direct_conv"]
    assert len(own.design(geometry(), USUAL).works) == 2


def test_parameters_are_tried_in_the_order_they_are_given():
    own = load(KERNELS / "plane.cl").convolutions
    assert own.choose(geometry(), USUAL) == {"TILE_Y": 8, "TILE_X": 16}  # under twice 7 and 9
    every = list(own.candidates(geometry(), USUAL))
    assert len(every) == 4 * 5
    assert own.build(geometry(), every[-1]).works[0].source.block == (1, 1, 1)


def test_what_fits_no_device_is_not_chosen(tmp_path):
    text = (KERNELS / "plane.cl").read_text().replace("[16, 8, 4, 2, 1]", "[64, 32, 4]")
    own = load(written(tmp_path, text.replace("2 * OUT", "20 * OUT"))).convolutions
    assert own.choose(geometry(), USUAL) == {"TILE_Y": 64, "TILE_X": 4}  # at most 1,024 threads
    own = load(written(tmp_path, text.replace("< 2 * OUT_Y", "> 100"))).convolutions
    with pytest.raises(DoesNotFit, match=r"mine.cl meets its constraints"):
        own.choose(geometry(), USUAL)


def test_a_grid_larger_than_any_is_refused(tmp_path):
    text = (KERNELS / "padded.cl").read_text()
    text = text.replace('["IMAGES", "FILTERS"]', '["IMAGES", 65536]')
    own = load(written(tmp_path, text)).convolutions
    with pytest.raises(DoesNotFit, match=r"a grid of 1 x 65,536 x 1 blocks"):
        own.choose(geometry(), USUAL)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, r"^cannot read the kernel file .*mine.cl: No such file"),
        (b"\n\xff", r"mine.cl:2: not UTF-8"),
        (b" " * 1_000_001, r"mine.cl has more than 1,000,000 bytes"),
        (b"", r"mine.cl:1: a kernel file begins with a comment"),
    ],
)
def test_files_that_are_none(content, problem, tmp_path):
    path = tmp_path / "mine.cl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TilewrightError, match=problem):
        load(path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('name = "tuned"', "'tuned' is that of a rung on the ladder"),
        ('against = "shred"', "against: unknown rung 'shred'; did you mean 'shared'"),
        ('otherwise = "fused"', "otherwise: unknown GPU rung 'fused'"),
    ],
)
def test_names_of_rungs_are_those_of_the_ladder(line, problem, tmp_path):
    text = (KERNELS / "plane.cl").read_text().replace('name = "plane"\n', f"{line}\n")
    text = text if "against" not in line else text.replace('against = "direct"\n', "")
    with pytest.raises(TilewrightError, match=problem):
        load(written(tmp_path, text))


@needs_opencl
def test_a_bias_is_added_only_where_there_is_one():
    made = network(PLAIN)  # the first convolution has a bias, the second has none
    rung = choose(OPENCL, str(KERNELS / "course.cl"))
    program = Program(made, uniform(made, rung, OPENCL, 4), {rung.name: rung})
    launched = {
        step.layers[0]: [work.source.name for work, _ in step.launch.kernels]
        for step in program.steps
    }
    assert launched["conv1"] == ["conv_forward_kernel", "own_course_bias"]
    assert launched["conv2"] == ["conv_forward_kernel"]


CONSTANT = """/* tilewright
name = "in-constant"
bias = "added"
requires = "PAD_Y == 0 and PAD_X == 0"

[[kernel]]
entry = "conv"
block = [32]
grid = ["ceil_div(FILTERS * OUT_Y * OUT_X, THREADS)", "IMAGES"]
arguments = ["out", "x"]
constant = "weight"
constant_symbol = "mask"
*/
__constant__ float mask[TW_CONSTANT_FLOATS];

__global__ void conv(float *out, const float *x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int filter = i / (TW_OUT_Y * TW_OUT_X), row = i / TW_OUT_X % TW_OUT_Y;
    const int column = i % TW_OUT_X;
    const long long image = blockIdx.y;
    if (filter >= TW_FILTERS) return;
    float sum = 0;
    for (int channel = 0; channel < TW_CHANNELS; channel++)
        for (int tap = 0; tap < TW_TAPS_Y * TW_TAPS_X; tap++) {
            const int y = row * TW_STRIDE_Y + tap / TW_TAPS_X;
            const int xx = column * TW_STRIDE_X + tap % TW_TAPS_X;
            sum += x[((image * TW_CHANNELS + channel) * TW_HEIGHT + y) * TW_WIDTH + xx]
                   * mask[(filter * TW_CHANNELS + channel) * TW_TAPS_Y * TW_TAPS_X + tap];
        }
    out[image * (TW_FILTERS * TW_OUT_Y * TW_OUT_X) + i] = sum;
}
"""


@needs_nvrtc
def test_constant_memory_of_cuda_c_has_its_own_name_and_is_large_enough(tmp_path):
    works = (
        load(written(tmp_path, CONSTANT, "mine.cu")).convolutions.design(geometry(), USUAL).works
    )
    compiled = nvrtc.compile_source(works[0].source, "sm_90")
    assert compiled.constant_bytes == 4 * 3 * 2 * 3 * 3
    assert works[0].source.constant_symbol == "mask"
    text = CONSTANT.replace("mask[TW_CONSTANT_FLOATS]", "mask[TW_CONSTANT_FLOATS - 1]")
    works = load(written(tmp_path, text, "mine.cu")).convolutions.design(geometry(), USUAL).works
    with pytest.raises(TilewrightError, match=r"mine.cu: .* hold 216 bytes, and 212 are declared"):
        nvrtc.compile_source(works[0].source, "sm_90")


@pytest.mark.cuda
@pytest.mark.skipif(cuda.missing(CUDA) is not None, reason=str(cuda.missing(CUDA)))
@pytest.mark.parametrize(
    ("name", "layers"),
    [("plane.cl", ODD), ("padded.cl", ODD), ("course.cu", PLAIN), ("constant.cu", PLAIN)],
)
def test_a_kernel_file_is_proven_on_a_gpu(name, layers, tmp_path):
    path = written(tmp_path, CONSTANT, name) if name == "constant.cu" else KERNELS / name
    assert verify_at_hand(choose(CUDA, str(path)), CUDA, network(layers), batch=7).fault is None


GROUPED = (Convolution(4, 3, padding=(0, 0, 1, 1), groups=2), ReLU(), Convolution(3, 2))


def test_a_layer_that_is_out_of_the_ordinary_is_not_for_a_file():
    rung = choose(OPENCL, str(KERNELS / "plane.cl"))
    stage = network(GROUPED).stages[1]
    with pytest.raises(NotForLayer, match="not for layers with groups and other padding on") as no:
        serving(stage, rung.convolutions)
    assert 'otherwise = "direct"' in str(no.value)


@needs_opencl
@pytest.mark.usefixtures("not_optimised")
def test_another_rung_may_take_it(tmp_path):
    text = (KERNELS / "plane.cl").read_text()
    first, _, rest = text.partition("\n")
    path = written(tmp_path, f'{first}\notherwise = "direct"\n{rest}')
    verdict = verify_at_hand(choose(OPENCL, str(path)), OPENCL, network(GROUPED), batch=3)
    assert verdict.fault is None and verdict.trials > 5
