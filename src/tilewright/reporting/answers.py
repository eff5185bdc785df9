"""What a network answered: right ones at the course's sizes, what was taken for what, mistakes."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.job import Result
from tilewright.results.climbed import COURSE_SIZES
from tilewright.results.ladder import Correctness
from tilewright.results.page import AnswersRecord, Mistake
from tilewright.results.probabilities import are_probabilities

SHOWN = 12  # mistakes
LARGEST_SIDE = 96  # pixels of a picture


def answers(result: Result) -> AnswersRecord | None:
    """Of a run; None where nobody knows what would have been right."""
    labels, predicted = result.dataset.labels, result.predicted
    if labels is None:
        return None
    right = predicted == labels
    sizes = [*(size for size in COURSE_SIZES if size < len(right)), len(right)]
    classes = result.outputs.shape[1]
    confusion = np.zeros((classes, classes), np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    wrong = np.flatnonzero(~right)
    sure = result.outputs[wrong, predicted[wrong]]
    shares = are_probabilities(result.outputs)
    worst = wrong[np.argsort(-sure, kind="stable")][:SHOWN]
    return AnswersRecord(
        network=result.network.name, device=str(result.plan.device), device_name=result.device,
        environment=result.environment, data=result.dataset.source, images=len(right),
        rung=result.rung.label,
        correctness=tuple(
            Correctness(images=size, share=float(right[:size].mean())) for size in sizes
        ),
        classes=_names(result.dataset.classes, classes),
        confusion=tuple(tuple(map(int, row)) for row in confusion),
        mistakes=tuple(
            Mistake(
                image=int(index), label=int(labels[index]), predicted=int(predicted[index]),
                probability=min(1.0, float(result.outputs[index, predicted[index]]))
                if shares
                else None,
                png=picture(result.dataset.images[index]),
            )
            for index in worst
        ),
    )  # fmt: skip


def _names(known: Sequence[str], classes: int) -> tuple[str, ...]:
    """Of all classes; those without a name are numbers."""
    return tuple(known[i] if i < len(known) else str(i) for i in range(classes))


def picture(image: NDArray[np.generic]) -> str:
    """An image as PNG in base64; nothing where its values are no pixels of grey or colour."""
    if image.dtype != np.uint8 or image.shape[0] not in (1, 3):
        return ""
    from PIL import Image

    made = Image.fromarray(image[0] if len(image) == 1 else np.moveaxis(image, 0, 2))
    made.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    file = io.BytesIO()
    made.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()
