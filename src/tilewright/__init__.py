"""Tilewright: small convolutional networks, from a for-loop to one fused kernel.

    network = tilewright.load("cifar10")       # a network and its weights
    classify = tilewright.compile(network)     # one function for this CPU
    probabilities = classify(images)           # uint8 pixels: image, channel, y, x
    print(tilewright.ladder(network))          # as the command does: run, profile, explain, verify

docs/python.md has all of it. The command line does more: `tilewright --help`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.errors import TilewrightError
    from tilewright.model.formats.torch_import import from_torch
    from tilewright.model.formats.weights import save
    from tilewright.model.load import Net, load
    from tilewright.model.network import Network
    from tilewright.serving.compiled import Compiled
    from tilewright.verbs.explain import explain
    from tilewright.verbs.explained import ExplainResult
    from tilewright.verbs.ladder import LadderResult, ladder
    from tilewright.verbs.profile import ComparisonResult, ProfileResult, profile
    from tilewright.verbs.run import RunResult, run
    from tilewright.verbs.spread import SpreadResult
    from tilewright.verbs.verify import VerifyResult, verify

__version__ = "0.1.0"

# Where a public name lives; imported on first use, so that `tilewright --help` needs none.
_ELSEWHERE = {
    "Network": "tilewright.model.network",
    "TilewrightError": "tilewright.errors",
    "from_torch": "tilewright.model.formats.torch_import",
    "load": "tilewright.model.load",
    "save": "tilewright.model.formats.weights",
    # The verbs of the command line, and what they give.
    "run": "tilewright.verbs.run",
    "RunResult": "tilewright.verbs.run",
    "SpreadResult": "tilewright.verbs.spread",
    "ladder": "tilewright.verbs.ladder",
    "LadderResult": "tilewright.verbs.ladder",
    "profile": "tilewright.verbs.profile",
    "ProfileResult": "tilewright.verbs.profile",
    "ComparisonResult": "tilewright.verbs.profile",
    "explain": "tilewright.verbs.explain",
    "ExplainResult": "tilewright.verbs.explained",
    "verify": "tilewright.verbs.verify",
    "VerifyResult": "tilewright.verbs.verify",
}
__all__ = [
    "ComparisonResult",
    "ExplainResult",
    "LadderResult",
    "Network",
    "ProfileResult",
    "RunResult",
    "SpreadResult",
    "TilewrightError",
    "VerifyResult",
    "compile",
    "explain",
    "from_torch",
    "ladder",
    "load",
    "profile",
    "run",
    "save",
    "verify",
]


def compile(
    network: Net,
    device: str = "cpu",
    *,
    precision: str | None = None,
    batch: int | None = None,
    trial: bool = False,
) -> Compiled:
    """The network with its weights as one function for a device: cpu, cuda or opencl.

    A network may be given by its name or path, too, as `load` takes it.
    Call what comes back with a batch of images, (image, channel, y, x), of any size: uint8 pixels,
    which the network's input scales, or float32 values, which enter the first layer as they are.
    It gives the last layer's output for each image, in float32, as the caller's kind of array;
    calls may come from several threads at once. `precision` is fp32 unless less is asked for (fp16,
    tf32 or tf32x3 on cuda); `batch` is the largest batch, if that is known. Machine code is made
    once for a network's shapes and kept on disk. With `trial`, on cuda, the few plans of the
    kernels that are estimated best are timed on the GPU first, and the fastest is kept on disk,
    too. docs/serving.md has the rest.
    """
    from tilewright.model.load import load
    from tilewright.runtime.device import Device
    from tilewright.serving import compile_for

    return compile_for(load(network), Device.parse(device), precision, batch, trial)


def __getattr__(name: str) -> object:
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module 'tilewright' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
