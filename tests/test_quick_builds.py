"""What tests build is what users build; where it cannot be, they get what users get."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain

import pytest

from tests import quick_builds
from tests.rungs.gpu.kernels import sources
from tests.runtime.test_opencl import DOUBLE
from tilewright.model import zoo
from tilewright.model.layers import GELU, Convolution, Pixels, TanhGELU
from tilewright.model.network import Network
from tilewright.runtime import opencl, opencl_programs, pocl_builds
from tilewright.runtime.device import OPENCL

REASON = opencl.missing(OPENCL)
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
INDEX = OPENCL.index
REPEATED = '#pragma clang diagnostic ignored "-Wtypedef-redefinition"'  # of each one's prelude
DEFINED = re.compile(r"^ *# *define (\w+)", re.MULTILINE)


@pytest.fixture(scope="module")
def every_text():
    """A kernel made of each text, by the text."""
    functions = Network("functions", Pixels((1, 4, 4)), (Convolution(2, 3), GELU(), TanhGELU()))
    return {each.text: each for each in sources([zoo.network("cifar10"), functions])}


def test_every_text_is_built_as_a_users_is_too(every_text):
    """A function of a kernel's own may have the name of one that was not declared. All in one
    program: for each, PoCL would read all declarations again."""
    assert len(every_text) > 10
    texts = [source.complete for source in every_text.values()]
    forgotten = ["\n".join(f"#undef {name}" for name in DEFINED.findall(text)) for text in texts]
    parts = chain.from_iterable(zip(texts, forgotten, strict=True))
    together = "\n".join([REPEATED, *parts])
    found = quick_builds.in_full(INDEX, together).kernel_names.split(";")
    assert sorted(found) == sorted(source.name for source in every_text.values())


def test_no_text_needs_more_than_what_is_declared(every_text, monkeypatch):
    def refuse(cl, context, text, options):
        build = cl.Program(context, pocl_builds.DECLARATIONS + text).build
        return build(f"{options} {pocl_builds.WITHOUT_HEADER}")

    monkeypatch.setattr(pocl_builds, "build", refuse)
    for source in every_text.values():
        assert opencl_programs.program(INDEX, source.complete).kernel_names == source.name


def test_another_function_is_found():
    source = replace(DOUBLE, text=DOUBLE.text.replace("{", "{ float a = cbrt(8.0f);", 1))
    assert opencl_programs.program(INDEX, source.complete).kernel_names == source.name


def test_the_words_about_an_error_are_those_of_users():
    said = []
    for build in (opencl_programs.program, quick_builds.in_full):
        with pytest.raises(opencl.load().RuntimeError, match="program scope") as error:
            build(INDEX, DOUBLE.complete + "\nnonsense;\n")
        said.append([line.partition(".cl:")[2] for line in str(error.value).splitlines()])
    assert said[0] == said[1]


def test_files_of_users_have_all_of_opencls_functions(monkeypatch):
    """As exp of a double: without its declaration, a float's would be taken."""
    asked = []

    def remember(index, text, ours=False):
        asked.append(ours)
        return quick_builds.in_full(index, text)

    monkeypatch.setattr(opencl_programs, "program", remember)
    runtime = opencl.open_runtime(OPENCL, "resident")
    for file in (None, "mine.cl"):
        runtime.compile(replace(DOUBLE, file=file))
    assert asked == [True, False]
    monkeypatch.setattr(pocl_builds, "build", lambda cl, context, text, options: text)
    build = quick_builds.in_full.__wrapped__
    assert build(INDEX, "text", ours=True) == "text"
    assert build(INDEX, DOUBLE.complete).kernel_names == DOUBLE.name
