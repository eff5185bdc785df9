"""What a worker of a cluster says while it works, as a stream: words of progress, then the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from tilewright.errors import TilewrightError

Word = TypeVar("Word")
Found = TypeVar("Found")
TOLD_SECONDS = 0.1  # between two words of progress
BEAT_SECONDS = 1.0  # between two signs of life


@dataclass(frozen=True)
class Told(Generic[Word]):
    """Something on the way."""

    words: Word


@dataclass(frozen=True)
class Alive:
    """Nothing new, but somebody is there."""


@dataclass(frozen=True)
class Done(Generic[Found]):
    """What came of it."""

    found: Found


@dataclass(frozen=True)
class Failed:
    """Why nothing came of it; `expected` if the work itself said so, `kind` of a known error."""

    words: str
    expected: bool
    kind: str = ""


@dataclass(frozen=True)
class Doing:
    """What is being done, how much of it is done, and how much there is."""

    doing: str
    done: int
    of: int


class Often:
    """Tells somebody far away how far something is, not more often than is worth it."""

    def __init__(self, tell: Callable[[Doing], None]) -> None:
        self.tell, self.last = tell, 0.0

    def progress(self, doing: str, done: int, of: int) -> None:
        now = time.monotonic()
        if now - self.last >= TOLD_SECONDS:
            self.last = now
            self.tell(Doing(doing, done, of))


Said = Told[Word] | Alive | Done[Found] | Failed


def said(
    work: Callable[[Callable[[Word], None]], Found],
    known: tuple[type[Exception], ...] = (),
    beat: float = BEAT_SECONDS,
) -> Iterator[Said[Word, Found]]:
    """All that is said while some work is done in a thread; errors that are `known` have words
    for people.
    """
    heard: SimpleQueue[Said[Word, Found]] = SimpleQueue()

    def do() -> None:
        try:
            heard.put(Done(work(lambda words: heard.put(Told(words)))))
        except BaseException as error:  # nobody would hear of it in this thread
            heard.put(failed(error, known))

    Thread(target=do, daemon=True).start()
    while True:
        try:
            words = heard.get(timeout=beat)
        except Empty:
            yield Alive()
            continue
        yield words
        if not isinstance(words, Told):
            return


def failed(error: BaseException, known: tuple[type[Exception], ...] = ()) -> Failed:
    if isinstance(error, (TilewrightError, *known)):
        kind = type(error).__name__ if isinstance(error, known) else ""
        return Failed(str(error), isinstance(error, TilewrightError), kind)
    return Failed(f"internal error, {type(error).__name__}: {error}", expected=False)


def listen(
    answers: Iterable[Said[Word, Found]],
    tell: Callable[[Word], None],
    unexpected: type[Exception] = TilewrightError,
    known: tuple[type[Exception], ...] = (),
) -> Found:
    """What came of it; an error that was neither expected nor known is raised as another kind."""
    for words in answers:
        if isinstance(words, Done):
            return words.found
        if isinstance(words, Failed):
            raise error_of(words, unexpected, known)
        if isinstance(words, Told):
            tell(words.words)
    raise unexpected("its worker said nothing more")


def error_of(
    words: Failed, unexpected: type[Exception], known: tuple[type[Exception], ...] = ()
) -> Exception:
    other = TilewrightError if words.expected else unexpected
    kind = next((each for each in known if each.__name__ == words.kind), other)
    return kind(words.words)
