"""Images as text: which are shown, and that they can be recognised."""

from __future__ import annotations

import io

import numpy as np
from rich.cells import cell_len
from rich.console import Console

from tilewright.data.dataset import Dataset
from tilewright.results.probabilities import are_probabilities
from tilewright.views.pictures import Pictures

IMAGES = np.zeros((4, 1, 8, 8), np.uint8)
IMAGES[:, 0, :, 4:] = 255  # dark to the left, light to the right
LABELS = np.array([0, 1, 2, 3])
PREDICTED = np.array([0, 2, 1, 3])
OUTPUTS = np.full((4, 4), 0.01, np.float32)
OUTPUTS[range(4), PREDICTED] = 0.9, 0.6, 0.8, 0.5
OUTPUTS[range(4), (PREDICTED + 1) % 4] += 1 - OUTPUTS.sum(1)  # probabilities


def made(labels=LABELS, count=4, images=IMAGES):
    return Pictures(Dataset("fashion-mnist", images, labels, "x"), PREDICTED, OUTPUTS, count)


def shown(pictures, width=60, **settings):
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, **settings)
    console.print(pictures)
    return console.file.getvalue()


def test_wrong_ones_come_first_the_most_certain_of_them_before_the_others():
    assert made().chosen() == [2, 1, 3, 0]
    assert made(labels=None).chosen() == [3, 1, 2, 0]
    assert made(count=1).chosen() == [2]


def test_without_colour_they_are_shades():
    lines = shown(made(count=1)).splitlines()
    assert lines[0].rstrip() == "    ████"
    assert lines[4].startswith("WRONG: ")
    plain = shown(made(), force_terminal=True, no_color=True)
    assert "█" in plain and "▀" not in plain


def test_in_colour_a_character_is_two_pixels():
    text = shown(made(count=1), force_terminal=True, color_system="truecolor", no_color=False)
    assert "38;2;255;255;255;48;2;255;255;255m▀" in text


def test_many_are_broken_into_lines_that_fit():
    wide = np.repeat(np.repeat(IMAGES, 4, 2), 4, 3)
    text = shown(made(images=wide), width=60)
    assert max(map(cell_len, text.splitlines())) <= 60
    assert text.count("#") == 4
    assert "WRONG: trouser 80.0 %" in text and "#2: pullover" in text


def test_values_of_any_range_are_pictures():
    floats = (IMAGES.astype(np.float32) - 128) / 3
    assert shown(made(images=floats, count=1)).splitlines()[0].rstrip() == "    ████"


def test_outputs_of_a_network_without_softmax_are_no_probabilities():
    assert are_probabilities(np.array([[0.25, 0.75], [1, 0]], np.float32))
    assert not are_probabilities(np.array([[5.6, -1.0], [1, 0]], np.float32))
    assert not are_probabilities(np.array([[0.2, 0.2]], np.float32))


def test_what_is_said_of_a_small_picture_is_whole():
    """Pictures of 8 columns: words are wider, and every picture stands above its own."""
    lines = shown(made()).splitlines()
    said = [line for line in lines if "%" in line]
    assert said[0].startswith("WRONG: trouser 80.0 %   WRONG: pullover 60.0 %")
    assert lines[0].index("█", 10) == len("WRONG: pullover 60.0 %") + 2 + 4
    assert max(map(cell_len, lines)) <= 60
