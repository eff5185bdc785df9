"""A small network and images for it, and what one process makes of them."""

from __future__ import annotations

import numpy as np

from tilewright.job import Request
from tilewright.model.formats.description import from_mapping
from tilewright.truth.trials import random_parameters

GENERATOR = np.random.default_rng(5)
DESCRIBED = from_mapping({
    "name": "small", "input": {"shape": [1, 9, 7]},
    "layers": [
        {"type": "convolution", "filters": 3, "kernel": 3}, {"type": "relu"},
        {"type": "flatten"}, {"type": "fully_connected", "outputs": 5}, {"type": "softmax"},
    ],
})  # fmt: skip
NETWORK = DESCRIBED.with_parameters(random_parameters(DESCRIBED, GENERATOR))
IMAGES = GENERATOR.integers(0, 256, (230, 1, 9, 7), np.uint8)
LABELS = GENERATOR.integers(0, 5, 230)
REQUEST = Request(net=NETWORK, data=(IMAGES, LABELS), batch=8, rung="im2col")
