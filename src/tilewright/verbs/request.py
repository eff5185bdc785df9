"""What a run or a profile is asked for, checked."""

from __future__ import annotations

from pathlib import Path

from tilewright.data.catalogue import Source
from tilewright.job import Request
from tilewright.model.load import Net, Weights
from tilewright.runtime.device import Device
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
    batch: int,
    device: str | Device,
    rung: str | Path | None,
    memory: str | None,
    precision: str | None,
    check: bool,
    plan: str | Path | None = None,
) -> Request:
    return Request(
        net=net,
        weights=weights,
        data=data,
        images=positive_or_none("images", images),
        batch=positive("batch", batch),
        device=device_of(device),
        rung=None if rung is None else str(rung),
        memory=memory_plan(memory),
        precision=one_of("precision", precision, PRECISIONS),
        check=check,
        plan=file_or_none(plan),
    )
