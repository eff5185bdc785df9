"""Images with their predictions as pictures in text: wrong ones first, then the least certain.

Half blocks in colour, two pixels a character; shades of grey where there is no colour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from rich.text import Text

from tilewright.results.probabilities import are_probabilities
from tilewright.views import units
from tilewright.views.colours import BROKEN, GOOD

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from tilewright.data.dataset import Dataset

WIDEST = 28  # characters of a picture
GAP = 2
HALF = "▀"
SHADES = " ░▒▓█"
CLASSES = {
    "fashion-mnist": (
        "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
        "ankle boot",
    ),
    "cifar10": (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Pictures:
    """Some images of a data set with what was predicted, and how likely that was said to be."""

    dataset: Dataset
    predicted: NDArray[np.int64]
    outputs: NDArray[np.float32]
    count: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        coloured = console.color_system is not None and not console.no_color
        chosen = self.chosen()
        blocks = [_lines(_small(self.dataset.images[image]), coloured) for image in chosen]
        captions = [self._caption(image) for image in chosen]
        # A picture may be smaller than what is said of it, which is never cut.
        width = max(
            *(cell_len(text) for lines in captions for text, _ in lines), blocks[0][0].cell_len
        )
        each_line = max(1, (options.max_width + GAP) // (width + GAP))
        for first in range(0, len(chosen), each_line):
            row = slice(first, first + each_line)
            for line in zip(*blocks[row], strict=True):
                yield _beside(line, width)
            for caption in zip(*captions[row], strict=True):
                yield _beside([Text(text, style) for text, style in caption], width)
            yield ""

    def chosen(self) -> list[int]:
        """Wrong ones first, the most certain of them before the others; then the least certain."""
        sure = self.outputs[np.arange(len(self.predicted)), self.predicted]
        labels = self.dataset.labels
        wrong = np.zeros(len(sure), bool) if labels is None else self.predicted != labels
        order = np.lexsort((np.where(wrong, -sure, sure), ~wrong))
        return [int(image) for image in order[: self.count]]

    def _caption(self, image: int) -> list[tuple[str, str]]:
        names = CLASSES.get(self.dataset.name)

        def name(number: int) -> str:
            return names[number] if names and number < len(names) else f"class {number}"

        predicted = int(self.predicted[image])
        value = float(self.outputs[image, predicted])
        likely = units.share(value) if are_probabilities(self.outputs) else f"{value:.3g}"
        labels = self.dataset.labels
        right = labels is None or int(labels[image]) == predicted
        truth = f"#{image}" if labels is None else f"#{image}: {name(int(labels[image]))}"
        style = "" if labels is None else GOOD if right else BROKEN
        verdict = "" if labels is None or right else "WRONG: "
        return [(f"{verdict}{name(predicted)} {likely}", style), (truth, "dim")]


def _beside(parts: Iterable[Text], width: int) -> Text:
    """Each in as many columns."""
    cells = [part.copy() for part in parts]
    for cell in cells:
        cell.pad_right(width - cell.cell_len)
    return Text(" " * GAP).join(cells)


def _small(image: NDArray[np.generic]) -> NDArray[np.uint8]:
    """(y, x, RGB) of at most so many columns and an even number of rows, as bytes."""
    values = np.asarray(image, np.float64)
    if image.dtype != np.uint8:  # ready for a network: whatever their range is
        low, high = float(values.min()), float(values.max())
        values = 255 * (values - low) / (high - low or 1.0)
    channels, height, width = values.shape
    if channels != 3:
        values = np.repeat(values[:1], 3, axis=0)
    columns = min(width, WIDEST)
    rows = max(2, 2 * round(height * columns / width / 2))
    y = np.linspace(0, height - 1, rows).round().astype(int)
    x = np.linspace(0, width - 1, columns).round().astype(int)
    return np.rint(values[:, y][:, :, x]).clip(0, 255).astype(np.uint8).transpose(1, 2, 0)


def _lines(picture: NDArray[np.uint8], coloured: bool) -> list[Text]:
    """Two rows of pixels a line."""
    lines = []
    for upper, lower in zip(picture[::2], picture[1::2], strict=True):
        line = Text()
        for top, bottom in zip(upper, lower, strict=True):
            if coloured:
                style = Style(color=_colour(top), bgcolor=_colour(bottom))
                line.append(HALF, style)
            else:
                grey = (int(top.sum()) + int(bottom.sum())) / 6
                line.append(SHADES[int(grey * len(SHADES) / 256)])
        lines.append(line)
    return lines


def _colour(pixel: NDArray[np.uint8]) -> Color:
    return Color.from_rgb(*map(int, pixel))
