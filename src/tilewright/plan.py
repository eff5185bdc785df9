"""A plan: a network with every choice made. Plain data, so that it can be printed and compared."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.ladder.rung import Rung
from tilewright.model.network import Network
from tilewright.runtime.device import Device


@dataclass(frozen=True)
class Step:
    """Consecutive layers computed in one go, and the rung that does it."""

    layers: tuple[str, ...]
    rung: str


@dataclass(frozen=True)
class Plan:
    """How a network is computed: where, how its data travels, in what arithmetic and steps."""

    network: str
    device: Device
    memory: str
    batch: int
    precision: str
    steps: tuple[Step, ...]


def uniform(
    network: Network, rung: Rung, device: Device, batch: int, memory: str | None = None
) -> Plan:
    """Every layer by the same rung, cut into steps as it likes; its own memory plan if none."""
    if memory is not None and memory not in rung.memories:
        own = "its own" if rung.memories == ("host",) else " or ".join(rung.memories)
        raise TilewrightError(
            f"rung {rung.name!r} cannot run with --memory {memory}: it works in {own} memory"
        )
    if batch < 1:
        raise TilewrightError(f"--batch {batch}: a batch has at least 1 image")
    steps = tuple(Step(tuple(s.name for s in part), rung.name) for part in rung.cut(network))
    return Plan(network.name, device, memory or rung.memories[0], batch, rung.precision.name, steps)
