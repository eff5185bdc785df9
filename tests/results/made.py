"""Records made by hand and drawn by hypothesis, for tests of everything that reads them."""

from __future__ import annotations

from tilewright.results.record import Environment, Gpu

ENVIRONMENT = Environment(
    tilewright="0.2.0",
    date="2026-11-15T12:11:47+00:00",
    command=("tilewright", "ladder"),
    cpu="a CPU",
    cores=2,
    memory_bytes=2**33,
    gpus=(Gpu("a GPU", "580.1", "143771 MiB"),),
    system="Linux",
    python="3.12.3",
    libraries={"numpy": "2.5.2"},
)
