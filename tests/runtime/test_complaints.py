"""What compilers say of a user's kernel, at the user's own lines and without their noise."""

from __future__ import annotations

import pickle

import pytest

from tilewright.errors import TilewrightError
from tilewright.runtime import nvrtc, opencl
from tilewright.runtime.complaints import (
    CompilerMessage,
    CompilerRefused,
    KernelDoesNotCompile,
    check_parameters,
    in_users_lines,
    no_such_kernel,
)
from tilewright.runtime.device import OPENCL
from tilewright.runtime.dialect import Source
from tilewright.runtime.opencl_runtime import OpenClRuntime

TEXT = """/* what it does */
TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL float *out, const int size) {
    const int i = TW_THREAD_X;
\tif (i < size) out[i] = TW_FMA(x[i], wieght, TW_MAX(x[0], nothing));
    return 1 +;
}
"""


def source(text=TEXT, parameters="**i"):
    return Source("mine", text, (8, 1, 1), (), file="mine.cl", parameters=parameters)


def opencl_error(text=TEXT, **options):
    with pytest.raises(TilewrightError) as caught:
        OpenClRuntime(OPENCL).compile(source(text, **options))
    return caught.value


def cuda_error(text=TEXT, **options):
    with pytest.raises(TilewrightError) as caught:
        nvrtc.compile_source(source(text, **options), "sm_90")
    return caught.value


COMPILERS = [
    pytest.param(
        opencl_error,
        marks=pytest.mark.skipif(opencl.missing(OPENCL) is not None, reason="no OpenCL"),
    ),
    pytest.param(
        cuda_error, marks=pytest.mark.skipif(nvrtc.missing() is not None, reason="no NVRTC")
    ),
]
compilers = pytest.mark.parametrize("error_of", COMPILERS)


@compilers
def test_errors_are_at_the_user_s_lines_with_a_caret(error_of):
    error = error_of()
    assert isinstance(error, KernelDoesNotCompile)
    assert {message.line for message in error.messages} == {4, 5}
    assert len(error.messages) >= 3
    lines = error.report.splitlines()
    assert lines[0].startswith("mine.cl does not compile: ")
    at = next(i for i, line in enumerate(lines) if "wieght" in line and "mine.cl:4" in line)
    shown, caret = lines[at + 1 : at + 3]
    assert shown.startswith("            if (i < size)")  # a tab is eight places
    assert caret.strip() == "^"
    at = next(i for i, line in enumerate(lines) if line.startswith("mine.cl:5:"))
    assert lines[at + 1] == "        return 1 +;"
    assert lines[at + 2].index("^") == lines[at + 1].index(";")
    assert "/" not in error.report.replace("/* ", "") and "prelude" not in error.report
    assert "\n" not in str(error) and str(error).startswith("mine.cl:4:")


@compilers
def test_a_kernel_that_takes_something_else_is_told(error_of):
    right = (
        TEXT.replace("wieght", "1.0f").replace("nothing", "2.0f").replace("    return 1 +;\n", "")
    )
    assert "takes 3 arguments, and its header gives it 2" in str(error_of(right, parameters="**"))
    assert "takes a buffer as argument 2, and its header gives it a whole number" in str(
        error_of(right, parameters="*ii")
    )
    assert "there is no kernel 'mine' in the source; it has " in str(
        error_of(right.replace("TW_NAME", "other"))
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mine.cl:3:7: error: bad", CompilerMessage(3, 7, "bad")),
        ("/tmp/x/mine.cl:3:7: fatal error: bad", CompilerMessage(3, 7, "bad")),
        ("error: mine.cl:3:7: bad", CompilerMessage(3, 7, "bad")),
        ("error: mine.cl:3:7 <Spelling=mine.cl:3:9>: bad", CompilerMessage(3, 9, "bad")),
        ("error: mine.cl:3:7 <Spelling=/a/b.cl:80:9>: bad", CompilerMessage(3, 7, "bad")),
        ("error: mine.cl:3:7 <Spelling=<scratch space>:9:1>: bad", CompilerMessage(3, 7, "bad")),
        ("mine.cl(3): error: bad\n      x;\n      ^", CompilerMessage(3, 5, "bad")),
        ("mine.cl(3): error #20: bad", CompilerMessage(3, None, "bad")),
    ],
)
def test_forms_of_messages(line, message):
    log = f"Build on <device>:\n\nwarning: mine.cl:1:1: unused\n{line}\nmine.cl:1:1: warning: x\n"
    error = in_users_lines(source(), CompilerRefused("no", log))
    assert isinstance(error, KernelDoesNotCompile)
    assert error.messages == (message,)


def test_a_log_without_places_is_one_line_without_paths():
    log = "info\nptxas error : Entry function 'mine' uses too much shared data in /tmp/abc/x.ptx\n"
    error = in_users_lines(source(), CompilerRefused("no", log))
    assert str(error) == (
        "mine.cl does not compile: ptxas error : Entry function 'mine' uses too much shared data "
        "in x.ptx"
    )
    assert "does not say why" in str(in_users_lines(source(), CompilerRefused("no", "")))


def test_many_errors_are_cut_short():
    log = "".join(f"mine.cl:{n}:1: error: e{n}\n" for n in range(1, 31))
    error = in_users_lines(source(), CompilerRefused("no", log))
    assert error.report.endswith("and 22 more")
    assert str(error) == "mine.cl:1:1: e1 (and 29 more errors)"


def test_complaints_travel_between_processes():
    error = in_users_lines(source(), CompilerRefused("no", "mine.cl:3:7: error: bad"))
    again = pickle.loads(pickle.dumps(error))
    assert (again.report, str(again)) == (error.report, str(error))
    refused = pickle.loads(pickle.dumps(CompilerRefused("no", "log")))
    assert (str(refused), refused.log) == ("no", "log")


def test_kernels_of_our_own_are_not_checked():
    check_parameters(Source("mine", TEXT, (8, 1, 1), ()), "**")


def test_a_name_that_opencl_has_already():
    assert "'all' is a function of OpenCL C's own" in str(no_such_kernel("all", ["_cl_all"]))
    assert "it has b, c" in str(no_such_kernel("a", iter(["b", "c"])))
