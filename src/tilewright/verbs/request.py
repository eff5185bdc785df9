"""What a run or a profile is asked for, checked."""

from __future__ import annotations

from pathlib import Path

from tilewright.data.catalogue import Source
from tilewright.errors import TilewrightError
from tilewright.job import Request
from tilewright.model.load import Net, Weights
from tilewright.rungs import DEFAULT_BATCH
from tilewright.runtime.device import CPU, Device
from tilewright.verbs.arguments import (
    PRECISIONS,
    device_of,
    file_or_none,
    memory_plan,
    one_of,
    positive,
    positive_or_none,
)


def request(
    net: Net,
    weights: Weights | None,
    data: Source | None,
    images: int | None,
    batch: int | None,
    device: str | Device | None,
    rung: str | Path | None,
    memory: str | None,
    precision: str | None,
    check: bool,
    plan: str | Path | None = None,
    repeats: int = 1,
) -> Request:
    """What is not given is 100 images at a time on the CPU, or as a plan's file has it."""
    if plan is not None:
        chosen = {"device": device, "rung": rung, "memory": memory, "batch": batch,
                  "precision": precision}  # fmt: skip
        for name, value in chosen.items():
            if value is not None:
                raise TilewrightError(f"--{name} is not for --plan: the plan says all of it")
    return Request(
        net=net,
        weights=weights,
        data=data,
        images=positive_or_none("images", images),
        batch=positive("batch", DEFAULT_BATCH if batch is None else batch),
        device=device_of(device or CPU),
        rung=None if rung is None else str(rung),
        memory=memory_plan(memory),
        precision=one_of("precision", precision, PRECISIONS),
        check=check,
        plan=file_or_none("plan", plan),
        repeats=positive("repeats", repeats),
    )
