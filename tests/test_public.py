"""The names a program uses: found, documented, typed."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import tilewright


def test_dir_shows_the_public_names():
    assert set(dir(tilewright)) == {*tilewright.__all__, "__version__"}


@pytest.mark.parametrize("name", tilewright.__all__)
def test_every_public_name_has_its_documentation(name):
    public = getattr(tilewright, name)
    assert len(inspect.getdoc(public).split()) > 8
    if inspect.isfunction(public):
        taken = inspect.signature(public)
        assert taken.return_annotation is not taken.empty
        assert all(each.annotation is not each.empty for each in taken.parameters.values())


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = tilewright.lode


def test_importing_it_imports_no_library():
    program = "import sys, tilewright; dir(tilewright); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
