"""`tilewright.load`: from a name, a file or a description to the Network that all use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError, unknown
from tilewright.files import ASSETS
from tilewright.model import zoo
from tilewright.model.formats import convnetjs, description
from tilewright.model.formats import weights as weight_file
from tilewright.model.formats.convert import BESIDE
from tilewright.model.network import NONE, Network

# Files that have all of a network, and those that are programs for Python's unpickler.
WHOLE = (".onnx", ".pt2")
UNSAFE = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin")
KERAS = (".keras", ".h5", ".hdf5")

# All that a network may be given as: a mapping is what a `.json` description holds.
Net = str | Path | Network | Mapping[str, object]
Weights = str | Path | Mapping[str, NDArray[np.generic]]


def load(net: Net, weights: Weights | None = None) -> Network:
    """A network by zoo name, `.json` description or file that has its weights, too.

    Such a file is an `.onnx` model, a `.safetensors` file, a `.pt2` program of PyTorch's, or a
    folder with a ConvNetJS snapshot and its `network.json`. A description may as well be given as
    the dict that its JSON stands for. `weights` is a `.safetensors` file, a folder with a ConvNetJS
    snapshot, or a mapping of arrays. Without it a network of a file gets the weights in it, and a
    zoo network those shipped with Tilewright, where there are any; else the network has no
    parameters.
    """
    if weights is None and isinstance(net, str | Path) and Path(net).suffix in WHOLE:
        return _whole(Path(net))
    return load_parameters(describe(net), net, weights)


def describe(net: Net) -> Network:
    """The network without its parameters: all that shapes, FLOP and `show` need."""
    if isinstance(net, Network):
        return replace(net, parameters=NONE, notes={})
    if isinstance(net, Mapping):
        return description.from_mapping(net)
    if not isinstance(net, str | Path):
        raise TilewrightError(
            "a network is given by its name or path, as a Network or as a dict, not as "
            f"{type(net).__name__}"
        )
    if not str(net).strip():
        raise TilewrightError(f"a network's name or path is empty; known: {', '.join(zoo.ZOO)}")
    path = Path(net)
    if path.suffix in WHOLE:
        return replace(_whole(path), parameters=NONE, notes={})
    if path.suffix in UNSAFE:
        raise _unsafe(path)
    if path.suffix == ".json":
        return description.read(path)
    if path.suffix == ".safetensors":
        network = weight_file.read_network(path)
        if network is None:
            raise TilewrightError(
                f"{path}: holds weights but no description of the network: name the network "
                "with --net and give this file as --weights"
            )
        return network
    if isinstance(net, str) and net in zoo.ZOO:
        return zoo.network(net)
    if path.is_dir():
        if (path / BESIDE).is_file():
            return description.read(path / BESIDE)
        raise TilewrightError(
            f"{path} is a folder: a ConvNetJS snapshot does not say its strides or padding, "
            f"so name the network with --net and give the folder as --weights, or put its "
            f"description into it as {BESIDE}"
        )
    if path.exists() or len(path.parts) > 1:
        if path.exists() and path.suffix in KERAS:
            raise TilewrightError(
                f"{path}: Keras's own file is not read; Keras writes ONNX: "
                "model.export('model.onnx', format='onnx')"
            )
        what = (
            "is neither a .json description nor an .onnx, .pt2 or .safetensors file"
            if path.exists()
            else "does not exist"
        )
        raise TilewrightError(f"network {str(path)!r} {what}")
    raise unknown("network", str(net), zoo.ZOO)


def load_parameters(network: Network, net: Net, weights: Weights | None) -> Network:
    """`network`, as `describe(net)` gave it, with the weights that `load` promises."""
    if weights is not None:
        return _given(network, weights)
    if isinstance(net, Network):
        return net
    if isinstance(net, Mapping):
        return network
    path = Path(net)
    if path.suffix in WHOLE:
        return _whole(path)
    if path.suffix == ".safetensors" or (net not in zoo.ZOO and path.is_dir()):
        return _given(network, net)
    shipped = ASSETS / "weights" / f"{net}.safetensors"
    if net in zoo.ZOO and shipped.is_file():
        return _given(network, shipped)
    return network


def _unsafe(path: Path) -> TilewrightError:
    return TilewrightError(
        f"{path}: a pickle may run any code when it is read, so it is not: load it where you trust "
        "it, and give the module to tilewright.from_torch, or torch.onnx.export it"
    )


def _whole(path: Path) -> Network:
    """A network with its weights, from a file that has both."""
    if path.suffix == ".onnx":
        from tilewright.model.formats import onnx_import

        return onnx_import.read(path)
    from tilewright.model.formats import torch_import

    return torch_import.read(path)


def _given(network: Network, weights: Weights) -> Network:
    if isinstance(weights, Mapping):
        return network.with_parameters(weights)
    if not isinstance(weights, str | Path):
        raise TilewrightError(
            "weights are given by their path or as a mapping of arrays, not as "
            f"{type(weights).__name__}"
        )
    path = Path(weights)
    notes: Mapping[str, str] = {}
    if path.is_dir():
        tensors: Mapping[str, NDArray[np.generic]] = convnetjs.read(path, network)
    elif path.suffix == ".safetensors":
        stored = weight_file.read(path)
        tensors, notes = stored.tensors, stored.notes
    elif path.suffix in UNSAFE:
        raise _unsafe(path)
    else:
        problem = (
            "is neither a .safetensors file nor a folder" if path.exists() else "does not exist"
        )
        raise TilewrightError(f"weights {str(path)!r} {problem}")
    try:
        return network.with_parameters(tensors, notes)
    except TilewrightError as error:
        raise TilewrightError(f"{path}: {error}") from error
