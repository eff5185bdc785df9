"""Tilewright's own weight file: safetensors, with the network's description in its metadata.

Tensors are named `LAYER.weight` and `LAYER.bias` and laid out as the layers say: a convolution's
weight is filter, channel, y, x; a fully connected layer's is output, input. They may be stored
as float16, float32 or float64 and are float32 in memory. Because the file says which network
it belongs to, it can stand alone: `--net FILE.safetensors`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, check_file, reason
from tilewright.model.formats.description import from_json, to_json
from tilewright.model.network import MOST_LAYERS, Network

DESCRIPTION = "tilewright.network"
LARGEST_BYTES = 4 << 30
MOST_TENSORS = 2 * MOST_LAYERS
STORED = (np.float16, np.float32, np.float64, "float16", "float32", "float64")


@dataclass(frozen=True)
class WeightFile:
    """What a file holds: its tensors, the network it describes (if it does), and its notes."""

    tensors: Mapping[str, NDArray[np.generic]]
    network: Network | None
    notes: Mapping[str, str]


def save(network: Network, path: str | Path, dtype: DTypeLike = np.float32) -> None:
    """Store a network and its weights; `dtype` float16 halves the file."""
    from safetensors.numpy import save as to_bytes

    if not isinstance(network, Network) or not isinstance(path, str | Path):
        raise TilewrightError(
            f"save takes a Network and a path, not {type(network).__name__} and "
            f"{type(path).__name__}"
        )
    if not network.parameters:
        raise TilewrightError(f"network {network.name!r} has no weights to save")
    if Path(path).suffix != ".safetensors":
        raise TilewrightError(f"{path}: the name must end in .safetensors; others: convert")
    if dtype not in STORED:
        raise TilewrightError(f"weights are stored as float16, float32 or float64, not {dtype!r}")
    with np.errstate(over="ignore"):
        tensors = {name: value.astype(dtype) for name, value in network.parameters.items()}
    for name, value in tensors.items():
        if not np.isfinite(value).all():
            raise TilewrightError(f"cannot store {name} as {np.dtype(dtype)}: values too large")
    metadata = {**network.notes, DESCRIPTION: to_json(network)}
    with atomic_write(Path(path)) as file:
        file.write(to_bytes(tensors, metadata=metadata))


def read(path: Path) -> WeightFile:
    with _opened(path) as file:
        names = file.keys()
        if len(names) > MOST_TENSORS:
            raise TilewrightError(
                f"{path}: {len(names):,} tensors are more than a network of {MOST_LAYERS:,} "
                "layers can have"
            )
        metadata = dict(sorted((file.metadata() or {}).items()))
        tensors = {name: file.get_tensor(name) for name in names}
    description = metadata.pop(DESCRIPTION, None)
    network = from_json(description, str(path)) if description is not None else None
    return WeightFile(tensors, network, metadata)


def read_network(path: Path) -> Network | None:
    """The network that a file describes, if it does; its tensors are not read."""
    with _opened(path) as file:
        description = (file.metadata() or {}).get(DESCRIPTION)
    return from_json(description, str(path)) if description is not None else None


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The library's reader, with its errors as ours."""
    from safetensors import SafetensorError, safe_open

    check_file(path)
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise TilewrightError(f"{path}: larger than the {LARGEST_BYTES:,} bytes that are read")
        with safe_open(path, framework="numpy") as file:
            yield file
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    except (SafetensorError, TypeError, ValueError, AttributeError) as error:
        # NumPy lacks some of the format's types (bfloat16, fp8); the library then raises these.
        text = " ".join(str(error).split())
        raise TilewrightError(f"{path}: not a usable safetensors file: {text}") from error
