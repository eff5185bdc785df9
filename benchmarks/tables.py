"""The tables of docs/ladder.md, docs/serving.md and docs/cluster.md, made from `results/`.

    python -m benchmarks.tables [NAME ...]
    python -m benchmarks.tables --write

prints them, each under its name, or writes them into the documents. There a table stands below the
comment `<!-- python -m benchmarks.tables NAME -->`, and the tests compare the two. Of results with
the same name the latest counts; a table whose results are not there yet is left out.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import rows as of_rows
from benchmarks.rows import OURS, Row

from tilewright.files import atomic_write
from tilewright.measure.samples import Sample, ratio
from tilewright.rungs import rungs as rungs_of
from tilewright.runtime.device import DEVICES
from tilewright.views import units

RESULTS = Path(__file__).parent / "results"
DOCUMENTS = RESULTS.parents[1] / "docs"
# A table's place in a document, and what stands there.
PLACE = re.compile(r"(<!-- python -m benchmarks\.tables (\S+) -->\n\n)((?:\|.*\n)*)")
PRECISIONS = {"fp16": "fp16", "tf32": "TF32", "tf32x3": "tf32x3", "fp32": "fp32"}
# Published op times of the course (2019, Fashion-MNIST at 70x70, 10,000 images, kernels in MXNet
# on a Volta GPU), conv1 and conv2 in ms, and our rung of the same idea.
COURSE = (
    ("baseline", 31.567, 98.181, "direct"),
    ("1 shared memory", 28.896, 98.960, "shared"),
    ("2 weights in constant memory", 86.491, 258.496, "constant"),
    ("3 unroll and tiled product", 119.580, 267.594, "unroll-gemm"),
    ("4 both in one kernel", 21.169, 68.800, "fused-gemm"),
    ("5 input channels by atomics", 38.003, 126.577, "channel-atomics"),
    ("6 a kernel for each layer's size", 21.170, 51.712, "per-layer"),
    ("7 restrict and unrolling", 28.881, 78.382, "tuned"),
)
# Published times of the thesis (OpenACC on a Tesla V100-PCIE-32GB, 1,200 images one by one) in
# seconds: forward and its convolutions; and our rung and memory plan of the same idea.
THESIS = (
    ("managed memory", 7.578, 7.095, "direct", "managed"),
    ("if, copies per layer, no reduction clause", 13.344, 13.245, "direct", "per-layer"),
    ("if, copies per layer, reduction", 5.674, 5.578, "direct-reduce", "per-layer"),
    ("pad, copies per layer, no reduction clause", 11.421, 11.320, "padded", "per-layer"),
    ("pad, copies per layer, reduction", 3.827, 3.726, "padded-reduce", "per-layer"),
    ("pad, everything resident", 2.769, 1.956, "padded", "resident"),
)
# What stands in the table of the whole network: which network and how many images.
WHOLE = (("cifar10", 50_000), ("ece408", 10_000), ("cifar64", 10_000))
# Fewer images than multiprocessors.
FEW = tuple(
    (name, images)
    for name in ("cifar10", "ece408", "cifar64", "mnist3x3", "all-cnn", "mlp")
    for images in (1, 64)
)
SUMMARY = (*WHOLE, ("cifar10", 1), ("ece408", 1), ("cifar64", 1))
SUMMARY_PRECISIONS = ("fp16", "tf32", "fp32")
# The libraries beside the fused rung: the beginning of their engines' names.
CPU_LIBRARIES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
SERVING_THREADS = (1, 8)  # of those measured, that stand in docs/serving.md


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="into the documents")
    given = parser.parse_args()
    made = tables()
    if given.write:
        for page in sorted(DOCUMENTS.rglob("*.md")):
            text = page.read_text()
            if (changed := written(text, made)) != text:
                with atomic_write(page) as file:
                    file.write(changed.encode())
        return
    for name in given.names or made:
        print(f"{name}\n\n{made[name]}\n")


def written(text: str, made: dict[str, str]) -> str:
    """A document with these tables at their places."""

    def put(place: re.Match[str]) -> str:
        head, name, shown = place.groups()
        if name not in made:
            return place[0]
        return head + made[name] + ("\n" if shown else "\n\n")

    return PLACE.sub(put, text)


def tables() -> dict[str, str]:
    """Every table by its name, as Markdown."""
    gpu = result("ladder-h200")["networks"]
    cpu = {name: result(f"ladder-cpu-{name}") for name in ("cifar10", "ece408")}
    return {
        "cpu-cifar10": ladder(cpu["cifar10"]),
        "cpu-ece408": ladder(cpu["ece408"]),
        "gpu-cifar10": ladder(gpu["cifar10"]),
        "gpu-ece408": ladder(gpu["ece408"]),
        "climbed-cifar10": ladder(result("ladder-h200-cifar10")),
        "climbed-ece408": ladder(result("ladder-h200-ece408")),
        "one-by-one": one_by_one(),
        "memory": memory(),
        "course": course(),
        "thesis": thesis(),
        "network": whole_network(WHOLE, _short),
        "network-few": whole_network(FEW, _microseconds),
        "network-summary": summary(),
        **strangers(),
        "tune": tuned(),
        "load": load(),
        "cluster-kill": cluster_kill(),
        **serving_tables(),
        **cpu_few(),
    }


@cache
def changed() -> dict[str, str]:
    """The rung that each of ours changes: what its figures are compared with."""
    own = [rung for device in DEVICES for rung in rungs_of(device)]
    return {rung.name: rung.against for rung in own if rung.against}


def ladder(found: dict[str, Any]) -> str:
    """Every rung: its convolutions, the network, and both against the rung that it changes.

    Where the time on a GPU was measured, networks are compared by it: what copies take is the same
    for all, and more than the fastest compute.
    """
    rungs = {rung["rung"]: rung for rung in found["rungs"] if rung["network"]}
    operations = list(next(iter(rungs.values()))["operations"])
    on_gpu = all(rung.get("device_time") for rung in rungs.values())

    def seconds(rung: dict[str, Any]) -> float:
        return _median(rung["device_time" if on_gpu else "network"])

    library = min((rung for rung in rungs.values() if rung["vendor"]), key=seconds)
    rows = []
    for name, rung in rungs.items():
        samples = rung["network"]["samples_seconds"]
        other = rungs.get(_changed_by(rung))
        rows.append(
            [
                f"`{name}`" + rung["operations_mark"].replace("*", "\\*"),
                *(units.milliseconds(_median(rung["operations"][each])) for each in operations),
                units.milliseconds(_convolutions(rung)),
                *([units.milliseconds(seconds(rung))] if on_gpu else []),
                units.milliseconds(_median(rung["network"])),
                f"{units.milliseconds(min(samples))} to {units.milliseconds(max(samples))}",
                units.count(found["images"] / _median(rung["network"])),
                f"`{other['rung']}`" if other else "",
                units.times(_convolutions(other) / _convolutions(rung)) if other else "",
                units.times(seconds(other) / seconds(rung)) if other else "",
                units.times(seconds(library) / seconds(rung)),
            ]
        )
    compared = "on the GPU" if on_gpu else "network"
    heads = [
        "rung", *(f">{each}, ms" for each in operations), ">convolutions, ms",
        *([">on the GPU, ms"] if on_gpu else []), ">network, ms", ">lowest to highest",
        ">images/s", "against", ">convolutions", f">{compared}",
        f">{compared} against `{library['rung']}`",
    ]  # fmt: skip
    return _markdown(heads, rows)


def _changed_by(rung: dict[str, Any]) -> str:
    """The row that one of a ladder is compared with, in its precision where there are several."""
    if "against" in rung:
        return rung["against"]["rung"] if rung["against"] else ""
    return changed().get(rung["rung"], "")  # before rows had precisions


def one_by_one() -> str:
    """The convolutions' kernels of 1,200 single images, layer by layer, as CUPTI timed them."""
    rows = []
    for profile in result("profiles-h200")["profiles"]:
        if profile["memory"] != "resident":
            continue
        kernels = [row for row in profile["detail"] if row["kind"] == "kernel"]
        convolving = {row["layers"][0]: row for row in kernels if row["name"].endswith("_conv")}
        padding = {row["layers"][0]: row for row in kernels if row["name"].endswith("_pad")}
        rows.append(
            [
                f"`{profile['rung']}`",
                *(units.milliseconds(convolving[layer]["seconds"]) for layer in convolving),
                *(
                    units.milliseconds(padding[layer]["seconds"]) if padding else "-"
                    for layer in convolving
                ),
                units.milliseconds(sum(row["seconds"] for row in kernels)),
            ]
        )
    heads = [
        "rung", ">conv1, ms", ">conv2, ms", ">conv3, ms", ">pad 1, ms", ">pad 2, ms", ">pad 3, ms",
        ">all kernels, ms",
    ]  # fmt: skip
    return _markdown(heads, rows)


def memory() -> str:
    """1,200 images one by one under every memory plan."""
    rows = []
    for case in result("ladder-h200", "memory")["memory"]:
        samples = case["samples_seconds"]
        rows.append(
            [
                f"`{case['rung']}`",
                f"`{case['memory']}`",
                units.milliseconds(median(samples)),
                f"{units.milliseconds(min(samples))} to {units.milliseconds(max(samples))}",
                units.digits(1e6 * median(samples) / case["images"]),
                units.count(case["copies"]),
                units.megabytes(case["copied_bytes"]),
                f"{case['accuracy']:.4f}",
            ]
        )
    heads = [
        "rung", "memory", ">wall, ms", ">lowest to highest", ">an image, µs", ">copies",
        ">copied, MB", ">correct",
    ]  # fmt: skip
    return _markdown(heads, rows)


def course() -> str:
    """The course's published op times beside ours."""
    rungs = {rung["rung"]: rung for rung in result("ladder-h200")["networks"]["ece408"]["rungs"]}
    rows = []
    for step, conv1, conv2, name in COURSE:
        ours = [units.milliseconds(_median(each)) for each in rungs[name]["operations"].values()]
        rows.append([step, units.digits(conv1), units.digits(conv2), f"`{name}`", *ours])
    heads = [
        "the course's step", ">conv1, ms, Volta", ">conv2, ms, Volta", "our rung",
        ">conv1, ms, H200", ">conv2, ms, H200",
    ]  # fmt: skip
    return _markdown(heads, rows)


def thesis() -> str:
    """The thesis's published times beside ours."""
    ours = {
        (case["rung"], case["memory"]): median(case["samples_seconds"])
        for case in result("ladder-h200", "memory")["memory"]
    }
    rows = [
        [
            variant, f"{forward:.3f}", f"{convolutions:.3f}", f"`{rung}`, `{plan}`",
            f"{ours[rung, plan]:.3f}",
        ]
        for variant, forward, convolutions, rung, plan in THESIS
    ]  # fmt: skip
    heads = [
        "the thesis's version", ">forward, s, V100", ">its convolutions, s, V100",
        "our rung and memory plan", ">forward, s, H200",
    ]  # fmt: skip
    return _markdown(heads, rows)


def whole_network(cases: Sequence[tuple[str, int]], shown: Callable[[float | None], str]) -> str:
    """`network` beside the libraries, in every precision."""
    rows = [row for case in cases for row in rows_of("cuda-h200", *case)]
    there = {each: head for each, head in of_rows.LIBRARIES.items()
             if any(of_rows.fastest(row, each) for row in rows)}  # fmt: skip
    lines = []
    for row in rows:
        found = of_rows.times(row)
        lines.append([
            f"`{row['network']}`, {units.count(row['batch'])}", PRECISIONS[row["precision"]],
            *(shown(of_rows.least(row, each)) for each in (OURS, *there)),
            of_rows.value_of(found), of_rows.interval_of(found),
        ])  # fmt: skip
    heads = [f">{head}" for head in there.values()]
    heads = ["network, images", "precision", ">`network`", *heads, ">times as fast as the best"]
    return _markdown([*heads, ">95 %"], lines)


def summary() -> str:
    """Where `network` wins most and least: its time, the best library's, and their ratio."""
    lines = []
    for case in SUMMARY:
        rows = {row["precision"]: row for row in rows_of("cuda-h200", *case)}
        cells = []
        for precision in SUMMARY_PRECISIONS:
            row = rows.get(precision)
            if row is None:
                cells += ["-", "-"]
                continue
            best = of_rows.least(row, *of_rows.LIBRARIES)
            cells += [f"{_short(of_rows.least(row, OURS))} ({_short(best)})", _times(row)]
        lines.append([f"`{case[0]}`, {units.count(case[1])}", *cells])
    heads = ["network, images"]
    for precision in SUMMARY_PRECISIONS:
        heads += [f">{PRECISIONS[precision]}, ms (best library)", ">times as fast"]
    return _markdown(heads, lines)


def strangers() -> dict[str, str]:
    """Networks that nothing was fitted to: how many times as fast as the best library."""
    names = ("strangers", "newcomers", "latest", "newest", "unseen", "drawn")
    names = tuple(name for name in names if of_name(f"{name}-h200"))
    return {name: _times_by_batch(result(f"{name}-h200")["rows"]) for name in names}


def _times_by_batch(rows: list[Row]) -> str:
    cells = {(row["network"], row["precision"], row["batch"]): _times(row) for row in rows}
    names, precisions, sizes = (dict.fromkeys(each) for each in zip(*cells, strict=True))
    counts = sorted(sizes)
    lines = [
        [f"`{name}`", label, *(cells.get((name, precision, count), "-") for count in counts)]
        for name in names
        for precision, label in PRECISIONS.items()
        if precision in precisions
    ]
    heads = ["network", "precision", *(f">{units.count(count)}" for count in counts)]
    return _markdown(heads, lines)


def rows_of(name: str, network: str, images: int) -> list[Row]:
    """Those of a case, one a precision in the order of `PRECISIONS`; what failed is not there."""
    found = [row for row in result(name)["rows"]
             if (row["network"], row["batch"]) == (network, images)]  # fmt: skip
    return sorted(found, key=lambda row: list(PRECISIONS).index(row["precision"]))


def _times(row: Row) -> str:
    """The best library's time over ours, with its interval where that is known."""
    found = of_rows.times(row)
    known = f" ({of_rows.interval_of(found)})" if found.interval.known else ""
    return of_rows.value_of(found) + known


def tuned() -> str:
    """What a search found, beside the best rung's own choice."""
    rows = []
    for network in ("ece408", "cifar10"):
        found = result(f"tune-h200-{network}")
        seconds = {plan["name"]: _median(plan["network"]) for plan in found["plans"]}
        before, after = found["gain"]["rung"], found["written"]
        low, high = found["gain"]["interval"]
        rows.append([
            f"`{network}`", before, f"{_short(seconds[before])} ms", after,
            f"{_short(seconds[after])} ms", units.times(found["gain"]["times"]),
            f"{low:.2f} to {high:.2f}",
        ])  # fmt: skip
    heads = ["network", "best rung", ">time", "written", ">time", ">as fast", "95 %"]
    return _markdown(heads, rows)


def load() -> str:
    """A class under load, by local workers and by Ray's."""
    rows = []
    for path in sorted(RESULTS.glob("*-load-*.json")):
        found = json.loads(path.read_text())
        killed = found["killed"]
        rows.append([
            found["workers"], str(found["processes"]), units.count(found["submissions"]),
            units.seconds(found["seconds"]), str(killed["server"]),
            ", ".join(f"{many} x {who}" for who, many in killed.items() if who != "server"),
            str(found["judged_once_more"]), units.count(found["timings"]),
            str(found["timings_together"]), str(len(found["problems"])),
        ])  # fmt: skip
    heads = [
        "workers", ">processes", ">submissions", ">time", ">server killed", "processes hit",
        ">judged once more", ">timings", ">two on a device", ">lost, double or wrong",
    ]  # fmt: skip
    return _markdown(heads, rows)


def cluster_kill() -> str:
    """Files of every kind through two workers, of which one was killed."""
    rows = []
    (path,) = RESULTS.glob("*-cluster-kill.json")
    for each in json.loads(path.read_text()):
        ((run,), alone) = each["runs"], each["alone"]
        record = run["record"]
        rows.append([
            each["files"], units.count(record["images"]),
            str(sum(worker["lost"] for worker in record["workers"])),
            units.megabytes(alone["peak_memory_bytes"]),
            units.megabytes(record["peak_memory_bytes"]), str(run["different"]),
        ])  # fmt: skip
    heads = [
        "files", ">images", ">workers lost", ">memory of one process, MB", ">of a worker, MB",
        ">predictions that differ",
    ]  # fmt: skip
    return _markdown(heads, rows)


def serving_tables() -> dict[str, str]:
    """Of compiled networks as servers call them, where that was measured."""
    made = {}
    for device in ("cpu", "h200"):
        for path in sorted(RESULTS.glob(f"*-serving-{device}.json"))[-1:]:
            document = json.loads(path.read_text())
            made[f"serving-{device}"] = serving(document, SERVING_THREADS)
            if document["host"]:
                made[f"serving-{device}-host"] = host_costs(document)
    return made


def cpu_few() -> dict[str, str]:
    """The fused rung beside the libraries from one image to a thousand, by cores."""
    made = {}
    for path in sorted(RESULTS.glob("*-cpu-few-*.json")):
        rows = [_cpu_row(row) for row in json.loads(path.read_text())["rows"]]
        heads = ["network", ">images", ">`fused`, images/s"]
        for library in CPU_LIBRARIES.values():
            heads += [f">{library}", ">times as fast", ">95 %"]
        made[path.stem[len("2026-11-16-") :]] = _markdown(
            [*heads, ">`fp32-winograd4`", ">times the best", ">95 %"], rows
        )
    return made


def _cpu_row(row: dict[str, Any]) -> list[str]:
    """Speeds, and how many times as fast as each library at its best the fused rung is."""
    engines = row["engines"]

    def sample(name: str) -> Sample:
        return Sample(tuple(engines[name]["samples_seconds"]))

    def fastest(beginning: str) -> str:
        names = (name for name in engines if name.startswith(beginning))
        return min(names, key=lambda name: _median(engines[name]))

    def gain(name: str, over: str) -> list[str]:
        found = ratio(sample(over), sample(name))
        return [f"{found.value:.2f}", f"{found.interval.low:.2f} to {found.interval.high:.2f}"]

    def speed(name: str) -> str:
        return units.count(row["batch"] / _median(engines[name]))

    cells = [f"`{row['network']}`", units.count(row["batch"]), speed("fused")]
    best = {library: fastest(library) for library in CPU_LIBRARIES}
    for name in best.values():
        cells += [speed(name), *gain("fused", name)]
    fast = "fused fp32-winograd4"
    if fast not in engines:
        return [*cells, "", "", ""]
    over = min(best.values(), key=lambda name: _median(engines[name]))
    return [*cells, speed(fast), *gain(fast, over)]


def serving(document: dict[str, Any], threads: Sequence[int]) -> str:
    """Latency and throughput, ours and the library's."""
    rows = []
    for row in document["rows"]:
        if row["threads"] not in threads:
            continue
        (times,) = row["times"]
        low, high = times["interval"] or (0.0, float("inf"))
        cells = []
        for engine in row["engines"].values():
            cells += [units.seconds(engine[f"p{part}_seconds"]) for part in (50, 99)]
            cells.append(units.count(engine["images_a_second"]))
        rows.append([
            f"`{row['network']}`", row["precision"], units.count(row["batch"]),
            str(row["threads"]), *cells, f"{times['value']:.2f}", f"{low:.2f} to {high:.2f}",
        ])  # fmt: skip
    heads = ["network", "precision", ">images", ">threads"]
    for name in document["rows"][0]["engines"]:
        heads += [f">{name}, p50", ">p99", ">images/s"]
    return _markdown([*heads, ">times as fast", ">95 %"], rows)


def host_costs(document: dict[str, Any]) -> str:
    """What a call costs the host, from the call to its return: of each network the medians from
    the least to the most, over precisions and sizes of batch, and the most of one call in 100."""
    rows = document["host"]
    networks = list(dict.fromkeys(row["network"] for row in rows))
    lines = []
    for call in dict.fromkeys(row["call"] for row in rows):
        line = [call]
        for network in networks:
            found = [row for row in rows if (row["call"], row["network"]) == (call, network)]
            if not found:
                line += ["", ""]
                continue
            medians = [1e6 * row["p50_seconds"] for row in found]
            most = 1e6 * max(row["p99_seconds"] for row in found)
            line += [f"{min(medians):.1f} to {max(medians):.1f}", f"{most:.0f}"]
        lines.append(line)
    heads = [head for name in networks for head in (f">`{name}`, p50, µs", ">p99, µs")]
    return _markdown(["images and call", *heads], lines)


def _short(seconds: float | None) -> str:
    """Milliseconds with three digits, also far below one."""
    if seconds is None:
        return "-"
    return f"{1e3 * seconds:.3f}" if seconds < 1e-3 else units.milliseconds(seconds)


def _microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e6 * seconds:,.1f}"


def _convolutions(rung: dict[str, Any]) -> float:
    return sum(map(_median, rung["operations"].values()))


def _median(sample: dict[str, Any]) -> float:
    return float(sample["median_seconds"])


def _markdown(heads: list[str], rows: list[list[str]]) -> str:
    """Heads that begin with > are of columns of figures."""
    lines = [[head.removeprefix(">") for head in heads]]
    lines.append(["---:" if head.startswith(">") else "---" for head in heads])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [*lines, *rows])


def of_name(name: str) -> list[Path]:
    """The results with a name, of all days."""
    return sorted(RESULTS.glob(f"????-??-??-{name}.json"))


@cache
def result(name: str, part: str = "environment") -> Any:
    """The latest with a name that has such a part."""
    for path in reversed(of_name(name)):
        document = json.loads(path.read_text())
        if part in document:
            return document
    raise SystemExit(f"{RESULTS} has no {name} with {part!r}")


if __name__ == "__main__":
    main()
