"""A network into a file: the name's end says which format."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, check_writable, reason
from tilewright.model.formats import convnetjs, description
from tilewright.model.formats import weights as weight_file
from tilewright.model.network import Network

# What says which network a ConvNetJS snapshot in the same folder is of.
BESIDE = "network.json"


def write(network: Network, target: Path) -> list[Path]:
    """Store a network and its weights; the files that were written.

    `.onnx` and `.safetensors` hold all of it, `.json` the layers, with the weights in a
    `.safetensors` file beside it; a name without an end is a folder for a ConvNetJS snapshot.
    """
    match target.suffix:
        case ".onnx":
            from tilewright.model.formats import onnx_export

            onnx_export.save(network, target)
            return [target]
        case ".safetensors":
            weight_file.save(network, target)
            return [target]
        case ".json":
            return _described(network, target)
        case "":
            return _snapshot(network, target)
    raise TilewrightError(
        f"{target}: the name must end in .onnx, .safetensors or .json, or have no end, for a "
        "ConvNetJS folder"
    )


def _described(network: Network, target: Path) -> list[Path]:
    weights = target.with_suffix(".safetensors")
    check_writable(target)
    if network.parameters:
        weight_file.save(network, weights)
    with atomic_write(target) as file:
        file.write(description.to_json(network).encode())
    return [target, weights] if network.parameters else [target]


def _snapshot(network: Network, target: Path) -> list[Path]:
    """A new folder, which is there as a whole or not at all."""
    if network.parameter_shapes and not network.parameters:
        raise TilewrightError(f"network {network.name!r} has no weights to save")
    if target.exists():
        raise TilewrightError(f"cannot write {target}: it is there already")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".convert-") as made:
            inside = Path(made) / target.name
            inside.mkdir()
            convnetjs.write(network, inside)
            with atomic_write(inside / BESIDE) as file:
                file.write(description.to_json(network).encode())
            shutil.move(inside, target)
    except OSError as error:
        raise TilewrightError(f"cannot write {target}: {reason(error)}") from error
    return sorted(target.iterdir())
