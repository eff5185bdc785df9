from __future__ import annotations

import sys

import pytest

from tilewright.errors import TilewrightError
from tilewright.runtime import nvrtc
from tilewright.runtime.dialect import Source
from tilewright.runtime.nvrtc import compile_cubin

needs_nvrtc = pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(nvrtc, "find_spec", lambda name: None)
    assert nvrtc.missing() == "cuda-bindings not installed: pip install 'tilewright[cuda]'"

    def no_parent(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(nvrtc, "find_spec", no_parent)
    assert "cuda-bindings not installed" in nvrtc.missing()


def test_without_the_library(monkeypatch):
    monkeypatch.setattr(nvrtc, "find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    assert "NVRTC does not load" in nvrtc.missing()
    assert "pip install 'tilewright[cuda]'" in nvrtc.missing()


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_75", "sm_90", "sm_120"])
def test_the_compilers_account(architecture):
    text = (
        "TW_ENTRY TW_NAME(TW_GLOBAL float *out, const int i TW_CONSTANT_ARGUMENT) {"
        " TW_SHARED float s[70]; s[TW_THREAD_X] = tw_constant[i]; TW_BARRIER();"
        " out[TW_THREAD_X] = s[TW_THREAD_X ^ 1]; }"
    )
    source = Source("account", text, (64, 1, 1), (), 70, 33)
    compiled = compile_cubin(source.name, source.complete, architecture)
    assert compiled.cubin.startswith(b"\x7fELF")
    assert b"account" in compiled.cubin
    assert (compiled.shared_bytes, compiled.constant_bytes) == (280, 132)
    assert 1 < compiled.registers < 40
    assert compiled.spilled_bytes == compiled.stack_bytes == 0


@needs_nvrtc
def test_the_drivers_cache_is_not_asked(monkeypatch):
    """What it has comes without a log: an H200 with a kernel in its cache gave 0 registers."""
    from cuda.bindings import nvrtc as library

    compile_program, asked = library.nvrtcCompileProgram, []

    def spy(program, count, options):
        asked.extend(options)
        return compile_program(program, count, options)

    monkeypatch.setattr(library, "nvrtcCompileProgram", spy)
    compile_cubin("asked", 'extern "C" __global__ void asked(int *x) { x[0] = 1; }', "sm_90")
    assert b"--no-cache" in asked
    success = (library.nvrtcResult.NVRTC_SUCCESS,)
    monkeypatch.setattr(library, "nvrtcGetProgramLog", lambda program, log: success)
    with pytest.raises(TilewrightError, match="no account of silent for sm_90"):
        compile_cubin("silent", 'extern "C" __global__ void silent(int *x) { x[0] = 2; }', "sm_90")


@needs_nvrtc
def test_spills_are_seen():
    """A thousand threads have 64 registers each: 200 sums do not fit."""
    text = (
        "TW_ENTRY TW_NAME(TW_GLOBAL float *out) { float sum[200];"
        " TW_UNROLL for (int i = 0; i < 200; i++) sum[i] = out[i];"
        " for (int k = 0; k < 99; k++)"
        " TW_UNROLL for (int i = 0; i < 200; i++) sum[i] = TW_FMA(sum[i], out[k], sum[199 - i]);"
        " TW_UNROLL for (int i = 0; i < 200; i++) out[i] = sum[i]; }"
    )
    source = Source("spilling", text, (1024, 1, 1), ())
    compiled = compile_cubin(source.name, source.complete, "sm_90")
    assert compiled.registers <= 64
    assert compiled.spilled_bytes > 0
    assert compiled.stack_bytes > 0


@needs_nvrtc
def test_an_architecture_that_is_none():
    with pytest.raises(TilewrightError, match="CUDA compiler, k for sm_1:") as error:
        compile_cubin("k", "", "sm_1")
    assert "\n" not in str(error.value)


@needs_nvrtc
def test_too_much_shared_memory_is_refused_by_the_compiler_too():
    """Only machine code is refused: this is why tests ask for it."""
    text = "TW_ENTRY TW_NAME(TW_GLOBAL float *out) { TW_SHARED float s[12289]; s[TW_THREAD_X] = 1;"
    text += " TW_BARRIER(); out[0] = s[TW_THREAD_X ^ 1]; }"
    source = Source("big", text, (64, 1, 1), (), 12289)
    with pytest.raises(TilewrightError, match="big"):
        compile_cubin(source.name, source.complete, "sm_90")
