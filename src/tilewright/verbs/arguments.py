"""What is given to a verb, checked: the same words whether it came from a program or a shell."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, SupportsIndex, TypeVar

from tilewright.errors import TilewrightError
from tilewright.runtime.device import Device

if TYPE_CHECKING:
    from tilewright.rungs.rung import Rung

LARGEST, LARGEST_SEED = 10**9, 2**32 - 1
PRECISIONS = ("fp16", "tf32", "tf32x3", "fp32", "fp32-winograd", "fp32-winograd4")
CLUSTERS = ("ray",)
Taken = ParamSpec("Taken")
Given = TypeVar("Given")
# Called with what is being done, how much of it is done, and how much there is.
Tell = Callable[[str, int, int], None]
# True: a bar on standard error, where somebody looks.
Progress = Tell | bool


def whole(name: str, value: object, least: int, most: int) -> int:
    """A whole number, NumPy's too, within bounds."""
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = index(value)
        if least <= number <= most:
            return number
    raise TilewrightError(
        f"argument {name}: {value!r:.40} is not a whole number from {least} to {most}"
    )


def positive(name: str, value: object) -> int:
    return whole(name, value, 1, LARGEST)


def positive_or_none(name: str, value: object) -> int | None:
    return None if value is None else positive(name, value)


def seed_or_none(value: object) -> int | None:
    return None if value is None else whole("seed", value, 0, LARGEST_SEED)


def one_of(name: str, value: str | None, known: Sequence[str]) -> str | None:
    if value is not None and value not in known:
        raise TilewrightError(
            f"argument {name}: invalid choice: {value!r:.40} (choose from {', '.join(known)})"
        )
    return value


def memory_plan(value: str | None, *more: str) -> str | None:
    from tilewright.memory import DEVICE_PLANS

    return one_of("memory", value, (*DEVICE_PLANS, *more))


def device_of(value: str | Device) -> Device:
    return value if isinstance(value, Device) else Device.parse(str(value))


def on_cluster(on: str | None, workers: int | None, address: str | None) -> bool:
    """Whether the work is to be sent to a cluster; nothing else may have workers or an address."""
    positive_or_none("workers", workers)
    if one_of("on", on, CLUSTERS) is not None:
        return True
    for name, value in (("workers", workers), ("address", address)):
        if value is not None:
            raise TilewrightError(f"--{name} is for --on ray: one process has neither")
    return False


def file_or_none(name: str, value: str | Path | None) -> Path | None:
    if not isinstance(value, str | Path | None):
        raise TilewrightError(f"argument {name}: {value!r:.40} is not a path")
    return None if value is None else Path(value)


def one_or_several(name: str, given: str | Path | Sequence[str | Path]) -> list[str]:
    """Names or paths."""
    if isinstance(given, str | Path):
        return [str(given)]
    several = list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(each, str | Path) for each in several):
        raise TilewrightError(
            f"argument {name}: {given!r:.40} is neither a name or path nor several"
        )
    return [str(each) for each in several]


def own_rungs(device: Device, files: str | Path | Sequence[str | Path]) -> list[Rung]:
    """The rungs in kernel files; all other rungs have names."""
    from tilewright.rungs import OWN_SUFFIXES, choose

    names = one_or_several("rung", files)
    for name in names:
        if not name.endswith(OWN_SUFFIXES):
            raise TilewrightError(
                f"--rung {name}: names a kernel file of your own here, .cl or .cu"
            )
    return [choose(device, name) for name in names]


def names_in(given: str | Sequence[str]) -> list[str]:
    """Names one by one, or in one text with commas between them."""
    names = given.split(",") if isinstance(given, str) else one_or_several("rungs", given)
    return [name.strip() for name in names if name.strip()]


def quiet(verb: Callable[Taken, Given]) -> Callable[Taken, Given]:
    """A verb without what libraries have to say to the programmers of its insides.

    Proofs send NaN and infinity through every kernel, and NumPy would warn of each.
    """

    @wraps(verb)
    def quieted(*arguments: Taken.args, **named: Taken.kwargs) -> Given:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return verb(*arguments, **named)

    return quieted


@contextmanager
def telling(progress: Progress) -> Iterator[Tell]:
    """Whom to tell how far the work is: a function that was given, a bar, or nobody."""
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool):
        raise TilewrightError(
            f"argument progress: {progress!r:.40} is neither True or False nor a function"
        )
    elif progress:
        from tilewright.views import console

        with console.progress_line() as tell:
            yield tell
    else:
        yield lambda doing, done, of: None
