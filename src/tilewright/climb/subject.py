"""What a ladder is measured on: a network, and images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.contest import RANDOM_SEED
from tilewright.data import drawn
from tilewright.data.catalogue import SAMPLE, Source, open_data
from tilewright.data.dataset import Dataset, checked_labels
from tilewright.model.load import Net, Weights, load
from tilewright.model.network import Network
from tilewright.truth.trials import random_parameters

SAMPLE_CLASSES = 10  # of the sample that ships, which networks of one channel are measured on


@dataclass(frozen=True)
class Subject:
    """What the ladder is measured on."""

    network: Network
    dataset: Dataset
    weights_note: str


def prepare(
    net: Net, weights: Weights | None, data: Source | None, images: int, or_all: bool = False
) -> Subject:
    """The network and images to measure on; `or_all`, if there are fewer.

    Time does not depend on values, so what is not here is made, and the note or the data set's
    source says so: random weights where none are shipped, pictures where no data set is named.
    """
    network = load(net, weights)
    note = "trained weights" if network.parameters else "random weights"
    if not network.parameters:
        generator = np.random.default_rng(RANDOM_SEED)
        network = network.with_parameters(random_parameters(network, generator))
    shape = network.input.shape
    if data is None:
        enough = math.prod(network.output_shape) >= SAMPLE_CLASSES
        data = SAMPLE if shape[0] == 1 and enough else drawn.NAME
    made = isinstance(data, str) and data == drawn.NAME
    dataset = open_data(data, shape, images if made or not or_all else None)
    dataset = dataset.first(min(images, len(dataset)))
    if dataset.labels is not None:
        checked_labels(dataset.labels, math.prod(network.output_shape), dataset.source)
    return Subject(network, dataset, note)
