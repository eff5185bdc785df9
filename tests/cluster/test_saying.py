from __future__ import annotations

import threading

import pytest

from tilewright.cluster.saying import Alive, Done, Failed, Told, listen, said
from tilewright.errors import TilewrightError


class Gone(Exception):
    pass


def test_what_is_said_comes_as_it_is_said():
    def work(tell):
        tell("compiling")
        tell("timing")
        return 7

    assert list(said(work)) == [Told("compiling"), Told("timing"), Done(7)]
    told = []
    assert listen(said(work), told.append) == 7
    assert told == ["compiling", "timing"]


def test_whoever_works_long_gives_signs_of_life():
    heard = threading.Event()
    signs = said(lambda tell: heard.wait(20), beat=0.01)
    assert next(signs) == Alive()
    heard.set()
    assert listen(signs, pytest.fail) is True


@pytest.mark.parametrize(
    ("error", "expected", "raised"),
    [
        (Gone("it is gone"), Failed("it is gone", False, "Gone"), Gone),
        (TilewrightError("no such network"), Failed("no such network", True), TilewrightError),
        (KeyError("x"), Failed("internal error, KeyError: 'x'", False), Gone),
        (SystemExit(3), Failed("internal error, SystemExit: 3", False), Gone),
    ],
)
def test_no_end_is_silent(error, expected, raised):
    def work(tell):
        raise error

    assert list(said(work, (Gone,))) == [expected]
    with pytest.raises(raised, match=r"gone|network|KeyError|SystemExit"):
        listen([expected], print, Gone)


def test_a_known_error_comes_as_what_it_was():
    class Late(Gone):
        pass

    def work(tell):
        raise Late("too late")

    with pytest.raises(Late, match="too late"):
        listen(said(work, (Late, Gone)), print, Gone, (Late, Gone))


def test_a_stream_that_ends_without_an_end():
    with pytest.raises(Gone, match="nothing more"):
        listen([Told("a")], lambda words: None, Gone)
