"""What a report says of a network's answers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.results.made import ENVIRONMENT
from tilewright.data.catalogue import open_data
from tilewright.data.dataset import Dataset
from tilewright.reporting import answers as answers_module
from tilewright.reporting.answers import answers


@pytest.mark.parametrize(("outputs", "probability"), [((0.1, 0.9), 0.9), ((-3.0, 5.6), None)])
def test_scores_are_not_called_probabilities(outputs, probability):
    images = np.zeros((1, 1, 2, 2), np.uint8)
    result = SimpleNamespace(
        dataset=Dataset("made", images, np.array([0]), "made"), predicted=np.array([1]),
        outputs=np.array([outputs], np.float32), network=SimpleNamespace(name="n"), device="d",
        plan=SimpleNamespace(device="cpu"), environment=ENVIRONMENT,
        rung=SimpleNamespace(label="serial"),
    )  # fmt: skip
    (mistake,) = answers(result).mistakes
    assert mistake.probability == (None if probability is None else pytest.approx(probability))
    assert (mistake.label, mistake.predicted) == (0, 1)


def test_classes_have_their_names_and_those_without_are_numbers():
    assert answers_module._names(("cat", "dog"), 3) == ("cat", "dog", "2")
    assert open_data("fashion-mnist-sample", (1, 28, 28), 1).classes[9] == "ankle boot"
