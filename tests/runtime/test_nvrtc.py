from __future__ import annotations

import sys
from concurrent.futures import Future

import pytest

from tilewright.errors import TilewrightError
from tilewright.runtime import nvrtc
from tilewright.runtime.dialect import Source
from tilewright.runtime.nvrtc import compile_ahead, compile_cubin
from tilewright.store import KINDS, Store

needs_nvrtc = pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    """Nothing was compiled before, and nothing is kept in memory."""
    monkeypatch.setattr(nvrtc, "open_store", lambda kind: Store(tmp_path / kind, KINDS[kind]))
    compile_cubin.cache_clear()
    return Store(tmp_path / "cubins", KINDS["cubins"])


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


KEPT = ("kept", 'extern "C" __global__ void kept(int *x) { x[0] = 1; }', "sm_90")


@needs_nvrtc
def test_what_was_compiled_is_read_from_the_store(own_store, monkeypatch):
    made = compile_cubin(*KEPT)
    assert made.registers > 0
    compile_cubin.cache_clear()

    def never(*question):
        raise AssertionError("compiled once more")

    monkeypatch.setattr(nvrtc, "translate", never)
    assert compile_cubin(*KEPT) == made
    name, text, architecture = KEPT
    for other in (
        ("k", text, architecture),
        (name, text + " ", architecture),
        (name, text, "sm_80"),
    ):
        with pytest.raises(AssertionError, match="once more"):
            compile_cubin(*other)
    compile_cubin.cache_clear()
    monkeypatch.setattr(nvrtc, "_compiler", lambda: ("14.0", ""))
    with pytest.raises(AssertionError, match="once more"):
        compile_cubin(*KEPT)


@needs_nvrtc
def test_machine_code_that_was_changed_is_not_used(own_store):
    made = compile_cubin(*KEPT)
    (path,) = own_store.entries()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    compile_cubin.cache_clear()
    assert compile_cubin(*KEPT) == made


@needs_nvrtc
def test_errors_are_not_kept(own_store):
    with pytest.raises(TilewrightError, match="CUDA compiler, k for sm_90"):
        compile_cubin("k", "no kernel", "sm_90")
    assert own_store.entries() == []


class Queue:
    """What was begun: done at once, or never."""

    def __init__(self, starts):
        self.starts, self.futures = starts, {}

    def submit(self, question):
        future = self.futures[question] = Future()
        if self.starts:
            future.set_running_or_notify_cancel()
            future.set_result("made ahead")
        return future


def test_what_was_begun_is_waited_for(monkeypatch):
    begun = Queue(starts=True)
    monkeypatch.setattr(nvrtc, "_pool", lambda: begun)
    first, second = compile_ahead([KEPT, KEPT])
    assert first is second
    assert list(begun.futures) == [KEPT]
    assert compile_cubin(*KEPT) == "made ahead"
    assert nvrtc._ahead == {}


def test_what_has_not_begun_is_compiled_here(monkeypatch):
    begun = Queue(starts=False)
    monkeypatch.setattr(nvrtc, "_pool", lambda: begun)
    monkeypatch.setattr(nvrtc, "_compile", lambda translate, question: "made here")
    compile_ahead([KEPT])
    assert compile_cubin(*KEPT) == "made here"
    assert begun.futures[KEPT].cancelled()


@needs_nvrtc
def test_only_texts_of_our_own_are_compiled_without_textures():
    texture = """extern "C" __global__ void read(cudaTextureObject_t from, float *to) {
        *to = tex1Dfetch<float>(from, 0);
    }"""
    assert compile_cubin("read", f'\n#line 1 "own.cu"\n{texture}', "sm_90").registers
    with pytest.raises(TilewrightError, match="cudaTextureObject_t"):
        compile_cubin("read", texture, "sm_90")
