"""Two profiles side by side: what moved, kernel by kernel and layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.measure.samples import Sample
from tilewright.profiling.result import DEVICE_KINDS, Layer, Profile
from tilewright.profiling.tally import Row
from tilewright.profiling.wall import PARTS
from tilewright.results import comparison


@dataclass(frozen=True)
class Change:
    """One thing in both profiles: seconds and calls; 0 calls where it is not."""

    name: str
    before: float
    after: float
    calls_before: int = 0
    calls_after: int = 0

    @property
    def seconds(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class Comparison:
    """Every list is sorted by what changed most. `per_image`: the two ran over different images
    in number, and all seconds are an image's."""

    before: Profile
    after: Profile
    per_image: bool
    wall: list[Change]
    layers: list[Change]
    kernels: list[Change]
    calls: list[Change]

    def tables(self) -> dict[str, list[Change]]:
        return {
            "wall": self.wall,
            "layers": self.layers,
            "kernels": self.kernels,
            "calls": self.calls,
        }


def compare(before: Profile, after: Profile) -> Comparison:
    """Profiles of the same network; where numbers of images differ, for one image."""
    check(before, after.layers, after.network)
    check(after, before.layers, before.network)
    per_image = before.images != after.images
    scales = [1 / profile.images if per_image else 1.0 for profile in (before, after)]
    groups = _groups([layer.name for layer in before.layers], before, after)

    def changes(
        rows: Callable[[Profile], Iterable[Row]], key: Callable[[Row], str]
    ) -> list[Change]:
        sums: list[dict[str, tuple[float, int]]] = []
        for profile, scale in zip((before, after), scales, strict=True):
            found: dict[str, tuple[float, int]] = {}
            for row in rows(profile):
                seconds, calls = found.get(key(row), (0.0, 0))
                found[key(row)] = (seconds + scale * row.seconds, calls + row.calls)
            sums.append(found)
        made = []
        for name in {**sums[0], **sums[1]}:
            (first, calls), (second, more) = (found.get(name, (0.0, 0)) for found in sums)
            made.append(Change(name, first, second, calls, more))
        return sorted(made, key=lambda change: -abs(change.seconds))

    def layer(row: Row) -> str:
        return groups.get(row.layers[0], row.layers[0]) if row.layers else "no layer"

    first, second = scales
    wall = []
    if all(profile.timed and not profile.stopped for profile in (before, after)):
        medians = [Sample(profile.timed).median for profile in (before, after)]
        wall.append(Change("without recording", first * medians[0], second * medians[1]))
    wall.append(Change("wall", first * before.wall.seconds, second * after.wall.seconds))
    for part in PARTS:
        wall.append(Change(part, first * before.wall.parts[part], second * after.wall.parts[part]))
    return Comparison(
        before,
        after,
        per_image,
        wall,
        changes(lambda profile: profile.of("kernel", "host", "copy", "memset"), layer),
        changes(lambda profile: profile.of(*DEVICE_KINDS, "host"), lambda row: row.name),
        changes(lambda profile: profile.of("api"), lambda row: row.name),
    )


def check(profile: Profile, layers: tuple[Layer, ...], network: str) -> None:
    """Refuse a profile that cannot be compared with one of these layers."""
    if profile.layers != layers:
        raise TilewrightError(
            f"cannot compare a profile of {profile.network!r} with one of {network!r}: "
            "their layers are not the same"
        )
    if not profile.images:
        raise TilewrightError(f"cannot compare: {profile.rung} stopped before any image")


def _groups(names: list[str], *profiles: Profile) -> dict[str, str]:
    """Layers that either profile computed as one piece, under one name: `conv1..pool1`."""
    place = {name: index for index, name in enumerate(names)}
    last = list(range(len(names)))  # of each layer's piece, as far as it is known
    for profile in profiles:
        for row in profile.of("kernel", "host", "copy", "memset"):
            places = [place[name] for name in row.layers if name in place]
            for index in range(min(places, default=0), max(places, default=-1) + 1):
                last[index] = max(last[index], *places)
    groups: dict[str, str] = {}
    start = 0
    while start < len(names):
        end = start
        while end < max(last[start : end + 1]):
            end = max(last[start : end + 1])
        title = names[start] if start == end else f"{names[start]}..{names[end]}"
        groups.update(dict.fromkeys(names[start : end + 1], title))
        start = end + 1
    return groups


def record(found: Comparison) -> comparison.ComparisonRecord:
    """What `--json` writes: docs/comparison.schema.json."""
    return comparison.ComparisonRecord(
        per_image=found.per_image,
        before=_side(found.before),
        after=_side(found.after),
        wall=_changes(found.wall),
        layers=_changes(found.layers),
        kernels=_changes(found.kernels),
        calls=_changes(found.calls),
    )


def _side(profile: Profile) -> comparison.Side:
    return comparison.Side(
        network=profile.network,
        rung=profile.rung,
        device=str(profile.device),
        device_name=profile.device_name,
        memory=profile.memory,
        images=profile.images,
        batch=profile.batch,
        stopped=profile.stopped,
        dropped=profile.dropped,
        notices=profile.notices,
    )


def _changes(changes: list[Change]) -> tuple[comparison.Change, ...]:
    return tuple(
        comparison.Change(
            name=each.name,
            before=each.before,
            after=each.after,
            change=each.seconds,
            calls_before=each.calls_before,
            calls_after=each.calls_after,
        )
        for each in changes
    )
