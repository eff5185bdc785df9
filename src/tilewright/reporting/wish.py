"""What a report is to be about, and the commands that measure the same again."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tilewright import __version__
from tilewright.climb import SAMPLE_CLASSES
from tilewright.data import catalogue, drawn
from tilewright.job import Request
from tilewright.model.load import describe
from tilewright.results.climbed import COURSE_SIZES
from tilewright.runtime.device import CPU, Device

WHOLE = "fashion-mnist"  # what the sample that ships is the beginning of


@dataclass(frozen=True)
class Wish:
    """What to measure; as `job.Request`, for all rungs of a device.

    `milestone`: at the course's numbers of images, too, and beside a GPU on the CPU. `full_proof`:
    rungs are proven as by `tilewright ladder`, not as by its `--quick`. `counters`: profiles of
    rungs of our own have the GPU's own, by ncu. `sizes` are the numbers of
    images that every rung is run over.
    """

    net: str = "ece408"
    weights: Path | None = None
    data: str | None = None
    images: int = 100
    batch: int = 100
    device: Device = CPU
    repeats: int | None = None
    milestone: bool = False
    full_proof: bool = False
    counters: bool = False
    sizes: tuple[int, ...] = ()

    @property
    def digest(self) -> str:
        """Another wish, or another version, has other parts."""
        words = repr((__version__, *(str(value) for value in asdict(self).values())))
        return hashlib.sha256(words.encode()).hexdigest()[:12]

    def request(self, label: str, images: int | None, memory: str | None = None) -> Request:
        """What a run of a rung is asked for; None: all images."""
        rung, _, precision = label.partition(" ")
        return Request(
            net=self.net, weights=self.weights, data=self.data, images=images, batch=self.batch,
            device=self.device, rung=rung, precision=precision or None, memory=memory,
        )  # fmt: skip

    def command(
        self, verb: str, label: str = "", images: int | None = None, memory: str | None = None
    ) -> tuple[str, ...]:
        """What is typed to measure a part of it alone."""
        rung, _, precision = label.partition(" ")
        given = {
            "net": self.net, "weights": self.weights, "data": self.data, "images": images,
            "batch": self.batch, "device": self.device, "precision": precision or None,
            "memory": memory, "repeats": self.repeats if verb == "ladder" else None,
        }  # fmt: skip
        if verb == "explain":  # has neither data nor weights in it
            words = ["tilewright", verb, rung]
            given = {name: given[name] for name in ("net", "batch", "device", "precision")}
        else:
            words = ["tilewright", verb, *(["--rung", rung] if rung else [])]
        for name, value in given.items():
            if value is not None:
                words += [f"--{name}", str(value)]
        return tuple(words)


def settled(wish: Wish) -> Wish:
    """The wish with its images named and counted: every part of it is measured on the same."""
    shape = describe(wish.net).input.shape
    data = wish.data or _data(wish)
    most = max(COURSE_SIZES) if wish.milestone else wish.images
    # Of drawn pictures there are as many as one likes.
    stored = most if data == drawn.NAME else len(catalogue.open_data(data, shape))
    images = min(wish.images, stored)
    sizes = {images, *(min(size, stored) for size in COURSE_SIZES if wish.milestone)}
    return replace(wish, data=data, images=images, sizes=tuple(sorted(sizes)))


def _data(wish: Wish) -> str:
    network = describe(wish.net)
    found = catalogue.default_for(network.input.shape)
    if found != catalogue.SAMPLE:
        return found
    if math.prod(network.output_shape) < SAMPLE_CLASSES:
        return drawn.NAME
    # The course asks for more images than are shipped.
    here = wish.milestone and catalogue.ENTRIES[WHOLE].locate(catalogue.home())
    return WHOLE if here else found
