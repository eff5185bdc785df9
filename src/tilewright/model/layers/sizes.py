"""Settings of layers, checked: whole numbers, pairs of them, pictures, windows."""

from __future__ import annotations

from tilewright.errors import TilewrightError

Shape = tuple[int, ...]
LARGEST = 1_000_000  # of any single size; what is larger is a mistake
Size = int | tuple[int, int]
# Above, left, below, right.
Sides = tuple[int, int, int, int]


def dimensions(shape: Shape) -> str:
    """A shape as people write it: 3x32x32."""
    return "x".join(map(str, shape))


def whole(what: str, value: object, *, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= LARGEST:
        shown = f"{value!r:.40}" if not isinstance(value, int) or abs(value) < 10**40 else "that"
        raise TilewrightError(
            f"{what} must be a whole number from {minimum} to {LARGEST}, not {shown}"
        )
    return value


def flag(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TilewrightError(f"{what} must be true or false, not {value!r}")
    return value


def pair(what: str, value: object, *, minimum: int) -> tuple[int, int]:
    """One number for both directions, or (vertical, horizontal)."""
    if isinstance(value, (list, tuple)):
        if len(value) != 2:
            raise TilewrightError(f"{what} must be one number or two, not {value!r}")
        return whole(what, value[0], minimum=minimum), whole(what, value[1], minimum=minimum)
    number = whole(what, value, minimum=minimum)
    return number, number


def sides(what: str, value: object) -> Sides:
    """One number for all sides, (vertical, horizontal), or (above, left, below, right)."""
    if isinstance(value, (list, tuple)) and len(value) == 4:
        above, left, below, right = (whole(what, each, minimum=0) for each in value)
        return above, left, below, right
    if isinstance(value, (list, tuple)) and len(value) != 2:
        raise TilewrightError(f"{what} must be one number, two or four, not {value!r}")
    vertical, horizontal = pair(what, value, minimum=0)
    return vertical, horizontal, vertical, horizontal


def symmetric(padding: Sides) -> bool:
    return padding[:2] == padding[2:]


def short(sizes: tuple[int, ...]) -> str:
    """As few numbers as say it: 2, 2x1, 2x1x0x1."""
    if len(sizes) == 4 and sizes[:2] == sizes[2:]:
        sizes = sizes[:2]
    return str(sizes[0]) if len(set(sizes)) == 1 else dimensions(sizes)


def picture(shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise TilewrightError(f"needs a picture (channels, height, width), not {dimensions(shape)}")
    return shape[0], shape[1], shape[2]


def windows(
    what: str, sizes: tuple[int, int], window: tuple[int, int], stride: tuple[int, int]
) -> tuple[int, int]:
    """How many windows fit along y and x."""
    if window[0] > sizes[0] or window[1] > sizes[1]:
        raise TilewrightError(
            f"{what} {dimensions(window)} is larger than its input {dimensions(sizes)}"
        )
    return (sizes[0] - window[0]) // stride[0] + 1, (sizes[1] - window[1]) // stride[1] + 1
