"""Records made by hand and drawn by hypothesis, for tests of everything that reads them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from hypothesis import strategies as st
from msgspec.structs import replace

from tests.examples import CHARACTERS
from tilewright.measure.samples import Sample
from tilewright.results.ladder import (
    ConditionsRecord,
    Correctness,
    LadderRecord,
    RungRecord,
    Verification,
)
from tilewright.results.record import Environment, Gpu, timing
from tilewright.results.run import LayerTime, Phase, Plan, RunRecord, Step

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
TIMES = (0.010, 0.011, 0.010, 0.012, 0.010, 0.011, 0.010, 0.011, 0.010)


def environment(**changes: object) -> Environment:
    return replace(ENVIRONMENT, **changes)


def run_record(**changes: object) -> RunRecord:
    """100 images of a network of one convolution, in a hundredth of a second."""
    facts = {
        "network": "small", "device": "cpu", "device_name": "a CPU", "environment": ENVIRONMENT,
        "data": "by hand", "images": 100, "batch": 10, "rung": "fused", "label": "fused",
        "plan": Plan(network="small", device="cpu", memory="host", batch=10, precision="fp32",
                     steps=(Step(layers=("input", "conv1"), rung="fused"),)),
        "accuracy": 0.75, "correct": 75, "phases": (Phase(name="forward", seconds=0.01),),
        "layers": (LayerTime(name="conv1", kind="conv", seconds=0.009, flop=10**6),
                   LayerTime(name="relu1", kind="relu", seconds=0.0, flop=0, within="conv1")),
        "copy_seconds": 0.0, "copied_bytes": 0, "overlap_seconds": 0.0,
        "remainder_seconds": 0.001, "forward_seconds": 0.01, "total_seconds": 0.02,
        "images_per_second": 10_000.0, "peak_memory_bytes": 10**8,
    }  # fmt: skip
    return RunRecord(**(facts | changes))


def rung_record(rung: str, seconds: tuple[float, ...], **changes: object) -> RungRecord:
    facts = {
        "rung": rung, "idea": "an idea", "vendor": False, "against": None, "missing": None,
        "verification": Verification(
            passed=True, seed=1, trials=9, outputs=99, worst=0.5, fault=None
        ),
        "executed_flop": 10**6, "peak_share": 0.5, "network": timing(Sample(seconds), 100),
        "operations_mark": "", "operations": {"conv1": timing(Sample(seconds), 100)},
        "copies": None, "copied_bytes": 0,
        "correctness": (Correctness(images=100, share=0.75),),
    }  # fmt: skip
    return RungRecord(**(facts | changes))


def ladder_record(
    times: Mapping[str, tuple[float, ...]] | None = None, **changes: object
) -> LadderRecord:
    """Rungs with the seconds of their rounds, each over 100 images."""
    times = {"serial": TIMES, "fused": tuple(t / 8 for t in TIMES)} if times is None else times
    facts = {
        "network": "small", "device": "cpu", "device_name": "a CPU", "environment": ENVIRONMENT,
        "weights": "random weights", "data": "random pixels", "images": 100, "batch": 10,
        "repeats": 9, "order_seed": 1, "memory": None, "peak_flops": 1e12, "peak_notices": (),
        "flop_an_image": 10**6, "doubt": 0.0,
        "conditions": ConditionsRecord(
            spin_seconds=(0.001,), others_share=0.0, stolen_share=0.0, load_average=0.5, gpu=(),
            notes=(),
        ),
        "rows": tuple(rung_record(rung, seconds) for rung, seconds in times.items()),
    }  # fmt: skip
    return LadderRecord(**(facts | changes))


names = st.text(CHARACTERS, max_size=8)
samples = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=12).map(tuple)
dates = st.datetimes(
    datetime.datetime(2020, 1, 1), datetime.datetime(2030, 1, 1), timezones=st.just(datetime.UTC)
).map(lambda moment: moment.isoformat(timespec="seconds"))
environments = st.builds(
    environment, date=dates, cpu=names, command=st.lists(names, max_size=3).map(tuple),
    libraries=st.dictionaries(names, names, max_size=2),
)  # fmt: skip
networks, devices = st.sampled_from(["small", "large"]), st.sampled_from(["cpu", "cuda", "cuda:1"])
labels = st.sampled_from(["fused", "network fp16", "network", "net"])
runs = st.builds(
    run_record, network=networks, device=devices, environment=environments, data=names,
    label=labels, images=st.integers(1, 10**6), accuracy=st.none() | st.floats(0, 1),
    forward_seconds=st.floats(1e-6, 1e6), remainder_seconds=st.floats(-1, 1),
)  # fmt: skip
ladders = st.builds(
    ladder_record, st.dictionaries(labels, samples, max_size=3), network=networks, device=devices,
    environment=environments, memory=st.none() | names,
)  # fmt: skip
