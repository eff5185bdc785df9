"""Outputs of a network that ends in a softmax, and of one that does not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def are_probabilities(outputs: NDArray[np.float32]) -> bool:
    """Whether each image's outputs are shares of one: a network may end without a softmax."""
    return bool((outputs >= 0).all() and np.allclose(outputs.sum(1), 1, atol=1e-3))
