"""Everything that a report can be made from, made by hand."""

from __future__ import annotations

import base64
import io
import random

from msgspec.structs import replace
from PIL import Image

from tests.profiling.made import events, profile
from tests.results.made import ENVIRONMENT, TIMES, ladder_record, run_record, rung_record
from tilewright.profiling import saved
from tilewright.reporting.measure import timeline
from tilewright.results.ladder import Against, Correctness, LayerTiming
from tilewright.results.page import (
    AnswersRecord,
    KernelRecord,
    KernelsRecord,
    LoopRecord,
    Mistake,
    PlanRecord,
)
from tilewright.results.record import Record
from tilewright.results.run import LayerTime

WHERE = {"network": "small", "device": "cuda", "device_name": "a GPU", "environment": ENVIRONMENT}


def png() -> str:
    file = io.BytesIO()
    Image.new("L", (8, 8), 128).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def answers(**changes: object) -> AnswersRecord:
    facts = {
        **WHERE, "data": "by hand", "images": 100, "rung": "direct",
        "correctness": (Correctness(images=100, share=0.75),), "classes": ("cat", "dog"),
        "confusion": ((40, 20), (5, 35)),
        "mistakes": (Mistake(image=7, label=0, predicted=1, probability=0.99, png=png()),),
    }  # fmt: skip
    return AnswersRecord(**(facts | changes))


def kernels(**changes: object) -> KernelsRecord:
    kernel = KernelRecord(
        name="direct_conv", layer="conv1", grid=(20, 1, 100), block=(16, 16, 1), shared_bytes=0,
        constant_bytes=0, registers=54, spilled_bytes=0, occupancy=0.5,
        occupancy_limit="registers", limit="load units", best_seconds=4.9e-5,
        loops=(LoopRecord(name="channel", extent=16, place="sequential"),),
        source="if (a < b && b > c) { }",
    )  # fmt: skip
    facts = {
        **WHERE, "rung": "direct", "batch": 100, "target": "a GPU (sm_90)", "kernels": (kernel,),
        "problems": {},
    }  # fmt: skip
    return KernelsRecord(**(facts | changes))


def ladder(rungs: int = 3, **changes: object) -> Record:
    """`rungs` of our own, each faster than the one before, and a library."""
    names = ["direct", "shared", *(f"step{number}" for number in range(2, rungs))]
    rows = [
        rung_record(
            name, tuple(t / 2**number for t in TIMES), idea=f"idea of {name}",
            against=Against(rung=names[number - 1], times=2.0, interval=(1.9, 2.1), differs=True)
            if number else None,
        )
        for number, name in enumerate(names)
    ]  # fmt: skip
    rows.append(rung_record("torch", TIMES, vendor=True, verification=None))
    return ladder_record(**({"rows": tuple(rows), **WHERE} | changes))


def everything(rungs: int = 3, network: str = "small") -> tuple[Record, ...]:
    where = {**WHERE, "network": network}
    profiles = [saved.record(profile(network=network, memory=m)) for m in ("per-layer", "resident")]
    return (
        ladder(rungs, network=network),
        *(run_record(**where, label=label) for label in ("direct", "shared")),
        *profiles,
        timeline(profiles[0], list(events())),
        kernels(network=network),
        answers(network=network),
        PlanRecord(**where, rung="direct", plan='{"about": "plan of direct"}'),
    )


def long(rungs: int, network: str) -> tuple[Record, ...]:
    """As much as is measured of so many rungs of a network of 20 layers, no two times the same."""
    chance = random.Random(network)
    layers = [f"{kind}{number}" for number in range(10) for kind in ("conv", "relu")]
    where = {**WHERE, "network": network}
    rungs_made = ladder(rungs).rows

    def time():
        seconds = tuple(chance.random() for _ in TIMES)
        return replace(rungs_made[0].network, median_seconds=seconds[0], samples_seconds=seconds)

    def rows(found, count):
        return tuple(
            replace(chance.choice(found), layers=(layer,), seconds=chance.random(),
                    average=chance.random(), minimum=chance.random(), maximum=chance.random())
            for layer in (layers * 3)[:count]
        )  # fmt: skip

    made = saved.record(profile(network=network))
    source = "".join(f"sum += x[{chance.random()}] * w[i];\n" for _ in range(80))
    (kernel,) = kernels().kernels
    measured: list[Record] = []
    for name in [row.rung for row in rungs_made]:
        parts = tuple(
            LayerTime(name=layer, kind=layer[:4], seconds=chance.random(), flop=1)
            for layer in layers
        )
        measured += [
            run_record(**where, label=name, layers=parts),
            replace(made, rung=name, rows=rows(made.rows, 25), detail=rows(made.detail, 50)),
            kernels(network=network, rung=name, kernels=(replace(kernel, source=source),) * 3),
        ]
    ladder_rows = tuple(
        replace(
            row, network=time(), operations={layer: time() for layer in layers[::2]},
            layers=tuple(
                LayerTiming(layers=(layer,), kind=layer[:4], time=time()) for layer in layers
            ),
        )
        for row in rungs_made
    )  # fmt: skip
    return (*everything(rungs, network)[1:], ladder(rows=ladder_rows, network=network), *measured)
