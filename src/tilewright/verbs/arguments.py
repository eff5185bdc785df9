"""What is given to a verb, checked: the same words whether it came from a program or a shell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError
from tilewright.runtime.device import Device

if TYPE_CHECKING:
    from tilewright.rungs.rung import Rung

LARGEST = 10**9
PRECISIONS = ("fp16", "tf32", "fp32")
# Called with what is being done, how much of it is done, and how much there is.
Tell = Callable[[str, int, int], None]
# True: a bar on standard error, where somebody looks.
Progress = Tell | bool


def positive(name: str, value: object) -> int:
    """A whole number from 1 to a billion."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise not_positive(name, value)
    number: int = value.__index__()
    if not 1 <= number <= LARGEST:
        raise not_positive(name, value)
    return number


def not_positive(name: str, value: object) -> TilewrightError:
    return TilewrightError(
        f"argument {name}: {value!r:.40} is not a whole number from 1 to {LARGEST}"
    )


def positive_or_none(name: str, value: object) -> int | None:
    return None if value is None else positive(name, value)


def one_of(name: str, value: str | None, known: Sequence[str]) -> str | None:
    if value is not None and value not in known:
        raise TilewrightError(
            f"argument {name}: invalid choice: {value!r:.40} (choose from {', '.join(known)})"
        )
    return value


def memory_plan(value: str | None) -> str | None:
    from tilewright.memory import DEVICE_PLANS

    return one_of("memory", value, DEVICE_PLANS)


def device_of(value: str | Device) -> Device:
    return value if isinstance(value, Device) else Device.parse(str(value))


def file_or_none(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value)


def own_rungs(device: Device, files: str | Path | Sequence[str | Path]) -> list[Rung]:
    """The rungs in kernel files; all other rungs have names."""
    from tilewright.rungs import OWN_SUFFIXES, choose

    names = [str(name) for name in ([files] if isinstance(files, str | Path) else files)]
    for name in names:
        if not name.endswith(OWN_SUFFIXES):
            raise TilewrightError(
                f"--rung {name}: names a kernel file of your own here, .cl or .cu"
            )
    return [choose(device, name) for name in names]


@contextmanager
def telling(progress: Progress) -> Iterator[Tell]:
    """Whom to tell how far the work is: a function that was given, a bar, or nobody."""
    if callable(progress):
        yield progress
    elif progress:
        from tilewright.views import console

        with console.progress_line() as tell:
            yield tell
    else:
        yield lambda doing, done, of: None
