"""Arrays in the host's memory, whoever's: read as NumPy's, and given back as the caller's kind."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.fuse.cpu.arrays import batch_of
from tilewright.model.layers import Shape, dimensions
from tilewright.model.network import Network

# DLPack's numbers of memory that the host can read: its own, and that of it which CUDA pinned.
HOST_MEMORY = (1, 3)
FLOAT32 = np.dtype(np.float32)


def is_tensor(array: object) -> bool:
    """Whether it is PyTorch's, which need not be imported to find that it is not."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def on_host(array: Any) -> bool:
    """Whether the host can read it, as far as it says."""
    if isinstance(array, np.ndarray):
        return True
    if hasattr(array, "__dlpack_device__"):
        try:
            return int(array.__dlpack_device__()[0]) in HOST_MEMORY
        except Exception as error:  # whatever that library raises, as of memory that is not there
            said = str(error).partition("\n")[0]
            kind = f"{type(array).__module__}.{type(array).__qualname__}"
            raise TilewrightError(f"an array of type {kind} has no memory: {said}") from error
    return not hasattr(array, "__cuda_array_interface__")


def read(images: Any, network: Network) -> NDArray[Any]:
    """A batch for a network as a contiguous array; a copy only where it is not contiguous."""
    if not on_host(images):
        raise TilewrightError(
            "images lie on a GPU, and the network was compiled for the host's memory: compile it "
            "with device='cuda', or copy them, as x.cpu() or x.get() does"
        )
    return batch_of(images, network.input.shape, network.name)


def results(
    images: Any, batch: NDArray[Any], out: Any, shape: Shape
) -> tuple[NDArray[np.float32], Any]:
    """An array to fill for a batch, and what the caller gets: the same memory as his own kind."""
    if out is not None:
        return target(out, shape, batch), out
    array = np.empty(shape, np.float32)
    if not is_tensor(images):
        return array, array
    return array, sys.modules["torch"].from_numpy(array)


def target(out: Any, shape: Shape, batch: NDArray[Any]) -> NDArray[np.float32]:
    """The memory of `out`, if results of such a shape can be written there as they come."""
    if not on_host(out):
        raise TilewrightError("out lies on a GPU, and the images in the host's memory")
    try:
        array = out if isinstance(out, np.ndarray) else _memory(out)
    except Exception as error:  # whatever that library raises
        said = str(error).partition("\n")[0]
        raise TilewrightError(f"out of type {type(out).__name__}: {said}") from error
    if array.dtype != FLOAT32:
        raise TilewrightError(f"out is {array.dtype}, and outputs are float32")
    if array.shape != shape:
        raise wrong_out(array.shape, shape)
    if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
        raise TilewrightError("out is not contiguous, or must not be written to")
    if np.may_share_memory(array, batch):
        raise TilewrightError("out lies where the images do: they are read while it is written")
    return array


def wrong_out(found: Shape, wanted: Shape) -> TilewrightError:
    return TilewrightError(
        f"out is {dimensions(found) or 'a single number'}, and the outputs are {dimensions(wanted)}"
    )


def _memory(out: Any) -> NDArray[Any]:
    return np.asarray(out.numpy() if is_tensor(out) else np.from_dlpack(out))
