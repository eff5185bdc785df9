"""The thesis's runs, profiled, and what their plans imply. For profiles.py and witnesses.py."""

from __future__ import annotations

import argparse

from tilewright.job import Request
from tilewright.profiling.result import Profile
from tilewright.profiling.session import prepare, record
from tilewright.runtime import cupti

RUNGS = ("direct", "direct-reduce", "padded", "padded-reduce")
MEMORIES = ("managed", "per-layer", "resident")
IMAGES, ACCURACY = 1200, 0.7825
# Of one image: kernels that every rung has, copies in and out under `per-layer` (the inputs of
# eleven layers, weights and bias of four; eleven outputs).
COMMON = {"layer_relu": 3, "layer_pool": 3, "layer_fc": 1, "layer_softmax": 1}
COPIES_IN, COPIES_OUT = 11 + 8, 11


def profiled(given: argparse.Namespace, rung: str, memory: str, batch: int = 1) -> Profile:
    return record(prepare(request(given, rung, memory, batch), 3, lambda *told: None)).profile


def request(given: argparse.Namespace, rung: str, memory: str, batch: int = 1) -> Request:
    return Request(
        net="cifar10", weights=given.thesis / "convnetjs-cifar10",
        data=str(given.thesis / "cifar-10-batches-bin"), images=given.images, batch=batch,
        device=given.device, rung=rung, memory=memory,
    )  # fmt: skip


def expected(rung: str, memory: str, images: int) -> tuple[dict[str, int], dict[str, int]]:
    """Kernels and copies that the plan implies."""
    name = rung.replace("-", "_")
    kernels = {f"{name}_conv": 3, **COMMON}
    if rung.startswith("padded"):
        kernels[f"{name}_pad"] = 3
    if memory == "resident":
        kernels["layer_normalise"] = 1
    copies = {
        "managed": {},
        "per-layer": {"[memcpy HtoD]": COPIES_IN * images, "[memcpy DtoH]": COPIES_OUT * images},
        "resident": {"[memcpy HtoD]": 1, "[memcpy DtoH]": 1},
    }[memory]
    return {name: count * images for name, count in kernels.items()}, copies


def check(profile: Profile, rung: str, memory: str, images: int) -> list[str]:
    """What is not as it must be."""
    kernels, copies = expected(rung, memory, images)
    launched = {row.name: row.calls for row in profile.named("kernel")}
    copied = {row.name: row.calls for row in profile.named("copy")}
    faults = sum(row.calls for row in profile.of("unified"))
    unmapped = [row.name for row in profile.of("kernel") if not row.layers]
    wall, parts = profile.wall.seconds, sum(profile.wall.parts.values())
    wrong = {
        f"kernels {launched}, not {kernels}": launched != kernels,
        f"copies {copied}, not {copies}": copied != copies,
        f"{faults} unified-memory records": (faults > 0) != (memory == "managed"),
        f"no layers for {unmapped}": bool(unmapped),
        f"{profile.dropped} dropped records": profile.dropped > 0,
        f"source {profile.source}": profile.source != cupti.CLOCK,
        f"notices {profile.notices}": bool(profile.notices),
        f"accuracy {profile.accuracy}": images == IMAGES and profile.accuracy != ACCURACY,
        f"parts of {parts} s, wall {wall} s": abs(parts - wall) > 1e-6,
    }
    return [f"{rung}, {memory}: {words}" for words, is_wrong in wrong.items() if is_wrong]
