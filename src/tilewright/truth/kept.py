"""Proofs that were found on this machine, kept: a rung that was proven need not be each time.

A proof holds for what was proven: a rung's code, made by certain libraries for a certain device, of
one network with its weights, in batches of one size, by a certain verifier. It is kept under a key
of all that: every file of Tilewright, every installed package's version, the machine and its
drivers, the device, the plan, the network and the batch. Whatever changes, there is no proof.

What is kept says when and with how many trials. It is in the user's own store (`tilewright.store`),
where a file that is damaged or somebody else's is not believed. Nothing is kept of rungs in users'
files, nor of what was found wrong.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import msgspec

import tilewright
from tilewright import environment
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.runtime.registry import backend
from tilewright.store import key_of, open_store
from tilewright.truth.verify import Verdict

# Variables by which compilers, loaders and numerical libraries can be told to do otherwise.
SETTINGS = (
    "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "KMP_", "LD_", "MKL_", "NUMBA_", "NVIDIA_", "OCL_",
    "OMP_", "ONEDNN_", "OPENBLAS_", "POCL_", "PYOPENCL_BUILD_OPTIONS", "TORCH_",
)  # fmt: skip
OURS = ("POCL_CACHE_DIR",)  # which we set ourselves when PoCL is loaded


class Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of a verdict, and the day it was found on."""

    seed: int
    trials: int
    outputs: int
    worst: float
    unfit: str
    proven: str


@dataclass(frozen=True)
class KeptProofs:
    """Of one network in batches of one size.

    `anew`: those that are there are not believed, but replaced.
    """

    network: Network
    batch: int
    anew: bool = False

    @property
    def any(self) -> bool:
        """Whether there is any proof that could be believed, of whatever."""
        return not self.anew and not open_store("proofs").empty

    def find(self, rung: Rung, device: Device) -> Verdict | None:
        """What was found before of just this rung, if it was."""
        # To find out what a proof depends on takes a second or two for all rungs.
        if not self.any or rung.origin is not None:
            return None
        content = open_store("proofs").read(self._key(rung, device))
        if content is None:
            return None
        with suppress(msgspec.DecodeError):  # of another shape than now: it is not there
            found = msgspec.json.decode(content, type=Found)
            return Verdict(
                found.seed, found.trials, found.outputs, found.worst, None, found.unfit,
                found.proven,
            )  # fmt: skip
        return None

    def keep(self, rung: Rung, device: Device, verdict: Verdict) -> None:
        """Keep what was found right; a store that cannot be written costs the next proof."""
        if not verdict.passed or rung.origin is not None:
            return
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        found = Found(
            verdict.seed, verdict.trials, verdict.outputs, verdict.worst, verdict.unfit, today
        )
        open_store("proofs").keep(self._key(rung, device), msgspec.json.encode(found))

    def _key(self, rung: Rung, device: Device) -> str:
        network = self.network
        plan = uniform(network, rung, device, self.batch)
        weights = hashlib.sha256()
        for name, array in network.parameters.items():
            weights.update(f"{name} {array.shape} {array.dtype}\n".encode() + array.tobytes())
        return key_of(
            code(), machine(), _device(device), rung.label, repr(plan.steps),
            repr((network.input, network.layers, network.sources)), weights.digest(),
            str(self.batch),
        )  # fmt: skip


@cache
def code() -> str:
    """Every file of this package: kernels, what makes them, and who proves them."""
    folder = Path(tilewright.__file__).parent
    files = (path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts)
    parts = [part for path in files if path.is_file() for part in _named(path, folder)]
    return key_of(*parts)


def _named(path: Path, folder: Path) -> tuple[str, bytes]:
    return str(path.relative_to(folder)), path.read_bytes()


@cache
def machine() -> str:
    """Its name, hardware, system and drivers; every installed package's version, and what
    libraries are told by variables."""
    here = msgspec.structs.replace(environment.fingerprint(), date="", command=())
    packages = sorted(f"{each.name} {each.version}" for each in metadata.distributions())
    told = sorted(
        (name, value)
        for name, value in os.environ.items()
        if name.startswith(SETTINGS) and name not in OURS
    )
    return f"{platform.node()} {here} {packages} {told}"


@cache
def _device(device: Device) -> str:
    return f"{device} {list(backend(device.kind).inventory())}"
