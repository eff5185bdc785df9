"""Kernel files to start from: they work as they are, and are launched like their rungs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rungs.gpu.kernels import USUAL
from tests.rungs.own.test_rung import ODD, geometry, needs_nvrtc, needs_opencl, network
from tilewright.errors import TilewrightError
from tilewright.rungs import NAMES, find
from tilewright.rungs.own import load
from tilewright.rungs.own.start import LIKE, start
from tilewright.runtime import nvrtc
from tilewright.runtime.device import OPENCL
from tilewright.truth.verify import verify_at_hand

STARTS = [*((like, "dialect") for like in LIKE), ("direct", "cuda"), ("direct", "opencl")]
starts = pytest.mark.parametrize(("like", "language"), STARTS)


def written(folder, like, language="dialect"):
    path = folder / ("mine.cu" if language == "cuda" else "mine.cl")
    path.write_text(start("my-own", like, language))
    return path


@needs_opencl
@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize(("like", "language"), [each for each in STARTS if each[1] != "cuda"])
def test_a_start_is_proven_as_it_is(like, language, tmp_path):
    verdict = verify_at_hand(load(written(tmp_path, like, language)), OPENCL, network(ODD), batch=5)
    assert verdict.fault is None


@needs_nvrtc
@pytest.mark.parametrize(("like", "language"), [each for each in STARTS if each[1] != "opencl"])
def test_a_start_compiles_for_cuda_without_a_gpu(like, language, tmp_path):
    design = load(written(tmp_path, like, language)).convolutions.design(geometry(), USUAL)
    for work in design.works:
        compiled = nvrtc.compile_source(work.source, "sm_90")
        assert compiled.shared_bytes == 4 * work.source.shared_floats


PADDED = {"HEIGHT", "WIDTH", "PAD_Y", "PAD_X"}


@pytest.mark.parametrize("like", [like for like in LIKE if like not in ("direct", "tuned")])
@pytest.mark.parametrize(
    "sizes",
    [
        geometry(),
        geometry(channels=17, filters=40, pad_y=2, pad_x=1, out_y=11, out_x=11),
        geometry(height=64, width=70, stride_x=2, out_y=62, out_x=34),
        geometry(channels=1, taps_y=1, taps_x=2, filters=1, out_y=9, out_x=10),
    ],
)
def test_a_start_is_launched_like_its_rung(like, sizes, tmp_path):
    own = load(written(tmp_path, like)).convolutions.design(sizes, USUAL)
    rung = find(like).convolutions.design(sizes, USUAL)
    assert own.scratch == rung.scratch
    for mine, theirs in zip(own.works, rung.works, strict=True):
        assert mine.source.block == theirs.source.block
        assert mine.grid(5) == theirs.grid(5)
        assert mine.arguments == theirs.arguments
        assert mine.source.shared_floats == theirs.source.shared_floats
        wanted = dict(theirs.source.constants)
        if "padded" in mine.arguments:  # said again in the source, for the second kernel
            wanted = {name: value for name, value in wanted.items() if name not in PADDED}
        assert wanted.items() <= dict(mine.source.constants).items()
    weight, bias = np.ones((sizes.filters, sizes.channels, sizes.taps_y, sizes.taps_x)), np.ones(3)
    packed = own.pack(weight, bias)
    for name, array in rung.pack(weight, bias).items():
        assert np.array_equal(packed[name], array)


@starts
def test_a_start_explains_itself(like, language):
    text = start("my-own", like, language)
    assert 'name = "my-own"' in text and "my_own_" in text and "@" not in text
    assert f'against = "{like}"' in text and "say here what you change" in text
    header = text[: text.index("*/")]
    assert all(len(line) <= 100 for line in header.splitlines())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("Mine", "direct", "dialect"), "'Mine': a kernel's name has small letters"),
        (("../mine", "direct", "dialect"), "a kernel's name has small letters"),
        (("shared", "direct", "dialect"), "'shared' is the name of a rung"),
        (("mine", "network", "dialect"), "--like network: no kernel file can say what that rung"),
        (("mine", "share", "dialect"), "--like share: unknown rung 'share'; did you mean 'shared'"),
        (("mine", "shared", "cuda"), "--like shared is in the dialect, which runs on CUDA"),
    ],
)
def test_what_cannot_be_started(arguments, problem):
    with pytest.raises(TilewrightError, match=problem):
        start(*arguments)


def test_a_name_may_begin_with_a_digit():
    assert 'entry = "k2nd_try_conv"' in start("2nd-try", "direct", "dialect")


def test_starts_are_of_rungs_on_the_ladder():
    assert set(LIKE) <= set(NAMES)
