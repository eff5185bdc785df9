"""Every kernel is CUDA C++: it compiles for four generations of GPUs, and takes what it declares.

PoCL would accept shared and constant arrays that NVIDIA refuses, and NVRTC refuses them only when
asked for machine code: so machine code it is.
"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from tests.kept import compile_cubin
from tests.rungs.gpu.kernels import GPU_RUNGS, ODD, USUAL, sources
from tilewright.errors import TilewrightError
from tilewright.rungs.gpu.design import Geometry, shared_size
from tilewright.runtime import nvrtc, opencl
from tilewright.runtime.device import OPENCL
from tilewright.runtime.dialect import DoesNotFit, Source, prelude

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_120")
OLDEST = ARCHITECTURES[0]

needs_nvrtc = pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))


def check(source, architecture):
    compiled = compile_cubin(source.name, source.complete, architecture)
    assert compiled.cubin[:4] == b"\x7fELF"
    assert compiled.shared_bytes == 4 * source.shared_floats, source.name
    assert compiled.constant_bytes == 4 * source.constant_floats, source.name
    return compiled


def by_text(kernels):
    found = {}
    for source in kernels:
        found.setdefault(source.text, []).append(source)
    return list(found.values())


# Every kernel for one architecture, every text for all of them: what a kernel declares is the same
# everywhere, only registers differ from one to the next.
@needs_nvrtc
def test_kernels_of_the_zoo():
    texts = by_text(sources(map(tilewright.load, ("cifar10", "ece408"))))
    assert len(texts) > 10
    for kernels in texts:
        for number in range(max(len(kernels), len(ARCHITECTURES))):
            source = kernels[number % len(kernels)]
            compiled = check(source, ARCHITECTURES[number % len(ARCHITECTURES)])
            assert compiled.spilled_bytes == 0, f"{source.name} spills"


@needs_nvrtc
@pytest.mark.parametrize("network", ODD, ids=lambda network: network.name)
def test_kernels_of_odd_shapes(network):
    for source in sources([network]):
        check(source, OLDEST)


@needs_nvrtc
def test_a_wrong_declaration_would_be_noticed():
    text = (
        "TW_ENTRY TW_NAME(TW_GLOBAL float *out) { TW_SHARED float a[3], b[5]; a[TW_THREAD_X] = b[0]"
    )
    text += " = out[0]; TW_BARRIER(); out[TW_THREAD_X] = a[0] + b[TW_THREAD_X]; }"
    source = Source("wrong", text, (3, 1, 1), (), shared_floats=3 + 5)
    with pytest.raises(AssertionError):
        check(source, "sm_90")
    check(replace(source, shared_floats=shared_size(3, 5)), "sm_90")


@needs_nvrtc
def test_what_is_not_the_dialect_is_one_line_with_the_kernels_name():
    source = Source("broken_conv", "TW_ENTRY TW_NAME(int *) { nonsense; }", (1, 1, 1), ())
    with pytest.raises(TilewrightError, match=r"broken_conv for sm_90: .*nonsense") as error:
        compile_cubin(source.name, source.complete, "sm_90")
    assert "\n" not in str(error.value)


def test_defines_then_prelude_then_text():
    source = Source("k", "text\n", (8, 4, 2), (("SIZE", 3), ("SCALE", 1 / 255)), 0, 5)
    assert source.complete == f"{source.defines}{prelude()}\ntext\n"
    lines = source.defines.splitlines()
    assert lines[:2] == ["#define TW_NAME k", "#define TW_THREADS_X 8"]
    assert "#define TW_CONSTANT_FLOATS 5" in lines
    assert "#define TW_SIZE 3" in lines


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_in_the_source_has_its_bits(value):
    (line,) = Source("k", "", (1, 1, 1), (("A", value),)).defines.splitlines()[5:]
    word = line.removeprefix("#define TW_A ")
    assert word.endswith("f")
    assert np.float32(word[:-1]).tobytes() == np.float32(value).tobytes()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            Source("k", "", (32, 33, 1), ()),
            "k needs a block of 1,056 threads; the device has 1,024",
        ),
        (
            Source("k", "", (1, 1, 65), ()),
            "k needs a block of 65 threads along z; the device has 64",
        ),
        (
            Source("k", "", (1, 1, 1), (), shared_floats=12289),
            "k needs shared memory of 49,156 bytes; the device has 49,152",
        ),
        (
            Source("k", "", (1, 1, 1), (), constant_floats=16385),
            "k needs constant memory of 65,540 bytes; the device has 65,536",
        ),
    ],
)
def test_what_does_not_fit_says_what_and_by_how_much(source, words):
    with pytest.raises(DoesNotFit) as error:
        source.check(USUAL)
    assert str(error.value) == words
    replace(source, block=(1, 1, 1), shared_floats=12288, constant_floats=16384).check(USUAL)


FILES = sorted(
    file.name for file in files("tilewright.rungs.gpu").iterdir() if file.name.endswith(".cl")
)


@pytest.mark.parametrize("file", FILES)
def test_kernels_keep_to_the_rules_that_compilers_do_not_check(file):
    """Each of these compiles, and runs, on one of the two sides."""
    text = (files("tilewright.rungs.gpu") / file).read_text()
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert len(re.findall(r"\bTW_ENTRY TW_NAME\(", code)) == 1
    words = set(re.findall(r"\w+", code))
    assert not words & {
        "template", "bool", "half", "double", "return", "goto", "__syncthreads", "barrier",
        "threadIdx", "blockIdx", "get_local_id", "get_global_id", "__shfl_sync", "sub_group_reduce",
        "__global__", "__global", "__kernel", "__local", "__shared__", "__constant", "long",
    }  # fmt: skip
    # Shared arrays are declared in the kernel's outermost scope: four spaces in.
    for line in code.splitlines():
        if "TW_SHARED" in line:
            assert line.startswith("    TW_SHARED float "), line


def test_kernels_carry_the_name_of_their_rung():
    network = tilewright.load("cifar10")
    for rung in GPU_RUNGS:
        for stage in network.stages:
            if stage.kind == "conv":
                for work in rung.convolutions.design(Geometry.of(stage), USUAL).works:
                    assert work.source.name.startswith(rung.name.replace("-", "_") + "_")


def test_the_example_in_the_documentation_runs():
    document = (Path(__file__).parents[2] / "docs" / "dialect.md").read_text()
    (text,) = re.findall(r"```c\n(.*?)```", document, flags=re.DOTALL)
    (lines,) = re.findall(r"```python\n(.*?)```", document, flags=re.DOTALL)
    if reason := opencl.missing(OPENCL):
        pytest.skip(reason)
    names = {"text": text}
    exec(lines, names)
    assert names["result"].shape == (5, 3, 21)
    assert names["result"][4, 2].tolist() == [2.0, *[3.0] * 19, 2.0]
    if nvrtc.missing() is None:
        check(names["source"], "sm_90")


def test_the_documentation_knows_every_name_of_the_prelude():
    document = (Path(__file__).parents[2] / "docs" / "dialect.md").read_text()
    defined = set(re.findall(r"#define (TW_\w+)", prelude()))
    abbreviated = {f"TW_{what}_{axis}" for what in ("THREAD", "BLOCK") for axis in "YZ"}
    assert len(defined) > 20
    assert {name for name in defined if f"`{name}" not in document} == abbreviated
