"""A profile: what a recorded run came to. Plain data, to be printed, saved and compared."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tilewright.measure.samples import Sample
from tilewright.model.network import Network
from tilewright.profiling.counters import Counted
from tilewright.profiling.tally import TITLES, Row, by_name
from tilewright.profiling.wall import Wall
from tilewright.results.record import Environment
from tilewright.runtime.device import Device
from tilewright.trace import DEVICE_TO_HOST, HOST_TO_DEVICE, Kind

NO_TIME = 1e-12  # seconds that no clock can tell from none
# What a device does by itself, in the order of the tables.
DEVICE_KINDS: tuple[Kind, ...] = ("kernel", "copy", "memset")


@dataclass(frozen=True)
class Layer:
    """A layer: its operations, input and output for one image, and its weights.

    `inside_flops` are without the taps outside the image; profiles of before do not have it.
    """

    name: str
    kind: str
    flops: int
    input_bytes: int
    output_bytes: int
    parameter_bytes: int
    inside_flops: int | None = field(default=None, compare=False)


def layers_of(network: Network) -> tuple[Layer, ...]:
    made = []
    for stage in network.stages:
        pixel = stage.layer.input_bytes
        sizes = (pixel * math.prod(stage.input_shape), 4 * math.prod(stage.output_shape))
        weights = 4 * stage.parameter_count
        made.append(Layer(stage.name, stage.kind, stage.flops, *sizes, weights, stage.inside_flops))
    return tuple(made)


@dataclass(frozen=True)
class Ceilings:
    """What a device does at best, measured on `date`: FLOP and bytes a second; None: not known.

    FLOP are those of one precision. Loads and operations on whole numbers follow from a GPU's
    architecture and clock.
    """

    device: str
    flops: float | None
    bytes: float | None
    processors: int
    date: str
    precision: str = "fp32"
    loads: float | None = None
    index_operations: float | None = None


@dataclass(frozen=True)
class Profile:
    """One recorded run of a network over images, and `timed` runs of the same without recording.

    `source` is what the times come from. `stopped` says why not all images went through, where the
    run was cut short; `images` are those that did. `dropped` records are missing from the rows.
    The rung may leave out taps outside the image (`skips_taps`).
    """

    network: str
    layers: tuple[Layer, ...]
    data: str
    images: int
    batch: int
    device: Device
    device_name: str
    rung: str
    idea: str
    memory: str
    source: str
    rows: tuple[Row, ...]
    wall: Wall
    environment: Environment
    timed: tuple[float, ...] = ()
    ceilings: Ceilings | None = None
    accuracy: float | None = None
    dropped: int = 0
    stopped: str | None = None
    notices: tuple[str, ...] = ()
    skips_taps: bool = False
    start: tuple[tuple[str, float], ...] = ()  # phases before the run, with their seconds
    start_rows: tuple[Row, ...] = ()  # what was called and done meanwhile, where it was recorded
    page_faults: int | None = None  # of the host, in the recorded run
    counters: tuple[Counted, ...] = ()  # the GPU's own, by ncu, where asked for
    uncounted: str | None = None  # why there are none, where they were asked for

    def of(self, *kinds: Kind) -> list[Row]:
        """The rows of some kinds, each with its own layers."""
        return [row for row in self.rows if row.kind in kinds]

    def named(self, *kinds: Kind) -> list[Row]:
        """The rows of some kinds by name alone, most expensive first."""
        return by_name(self.of(*kinds))

    @property
    def slow_down(self) -> float | None:
        """How many times as long the recorded run took; None where that cannot be said."""
        median = Sample(self.timed).median if self.timed else 0.0
        return self.wall.seconds / median if median > NO_TIME and not self.stopped else None

    @property
    def layer_kinds(self) -> dict[str, str]:
        return {layer.name: layer.kind for layer in self.layers}


@dataclass(frozen=True)
class Region:
    """A step of the plan as the host saw it, with what was started for its layers.

    `reached` is None for layers that are a part of another region and were never reached on their
    own.
    """

    layers: tuple[str, ...]
    reached: Row | None
    kernels: list[Row]
    copies_in: list[Row]
    copies_out: list[Row]
    unified: list[Row]


def regions(profile: Profile) -> list[Region]:
    """Every set of layers that something was done for, in the network's order."""
    order = {layer.name: index for index, layer in enumerate(profile.layers)}
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in profile.of("layer", "kernel", "host", "copy", "memset", "unified"):
        if row.layers:
            found.setdefault(row.layers, []).append(row)

    def place(layers: tuple[str, ...]) -> tuple[int, int]:
        return min(order.get(name, len(order)) for name in layers), -len(layers)

    made = []
    for layers in sorted(found, key=place):
        reached = next((row for row in found[layers] if row.kind == "layer"), None)
        # A step has its parts' too, if it fused them.
        parts = [layers] if reached is None else [each for each in found if {*each} <= {*layers}]
        rows = [row for each in parts for row in found[each]]
        made.append(
            Region(
                layers,
                reached,
                [row for row in rows if row.kind == "kernel"],
                *in_and_out(rows),
                [row for row in rows if row.kind == "unified"],
            )
        )
    return made


def in_and_out(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Copies to the device, and from it."""
    into = [row for row in rows if row.name == TITLES[HOST_TO_DEVICE]]
    return into, [row for row in rows if row.name == TITLES[DEVICE_TO_HOST]]
