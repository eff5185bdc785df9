"""What tests build is what users build; where it cannot be, they get what users get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import quick_builds
from tests.rungs.gpu.kernels import sources
from tests.runtime.test_opencl import DOUBLE
from tilewright.model import zoo
from tilewright.runtime import opencl
from tilewright.runtime.device import OPENCL

REASON = opencl.missing(OPENCL)
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
INDEX = OPENCL.index


@pytest.fixture(scope="module")
def every_text():
    """A kernel made of each text, by the text."""
    return {source.text: source for source in sources([zoo.network("cifar10")])}


def test_every_text_is_built_as_a_users_is_too(every_text):
    """A function of a kernel's own may have the name of one that was not declared."""
    assert len(every_text) > 10
    for source in every_text.values():
        assert quick_builds.in_full(INDEX, source.complete).kernel_names == source.name


def test_no_text_needs_more_than_what_is_declared(every_text, monkeypatch):
    def refuse(cl, context, text, options, quick):
        build = cl.Program(context, quick_builds.DECLARATIONS + text).build
        return build(options=f"{options} {quick}")

    monkeypatch.setattr(quick_builds, "build", refuse)
    for source in every_text.values():
        assert opencl._program(INDEX, source.complete).kernel_names == source.name


def test_another_function_is_found():
    source = replace(DOUBLE, text=DOUBLE.text.replace("{", "{ float a = cbrt(8.0f);", 1))
    assert opencl._program(INDEX, source.complete).kernel_names == source.name


def test_the_words_about_an_error_are_those_of_users():
    said = []
    for build in (opencl._program, quick_builds.in_full):
        with pytest.raises(opencl.load().RuntimeError, match="program scope") as error:
            build(INDEX, DOUBLE.complete + "\nnonsense;\n")
        said.append([line.partition(".cl:")[2] for line in str(error.value).splitlines()])
    assert said[0] == said[1]
