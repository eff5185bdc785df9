"""Each optimization: what it is, why it should help, what it did, and what the profile says."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.results.ladder import LadderRecord, RungRecord
from tilewright.results.page import KernelsRecord
from tilewright.results.profile import ProfileRecord
from tilewright.views import units
from tilewright.views.report import compiler
from tilewright.views.report.blocks import Block, Heading, Paragraph, Section
from tilewright.views.report.ladder import proof
from tilewright.views.report.material import Material
from tilewright.views.report.origins import origin

READING = (
    "One part for each step of the ladder: what it changes and why that should help, what it did, "
    "what the profile says, and whether it was worth it. Steps that made things slower stay."
)
WORTH, NOT_WORTH = 1.05, 0.95  # less of a difference is none to work for


def section(material: Material) -> Section:
    names = dict.fromkeys(
        row.rung for ladder in material.ladders for row in ladder.rows if not row.vendor
    )
    blocks = [block for name in names for block in step(material, name)]
    return Section("optimizations", "Step by step", READING, blocks)


def step(material: Material, name: str) -> Iterator[Block]:
    yield Heading(name)
    described = False
    for ladder in material.ladders:
        for row in ladder.rows:
            if row.rung == name:
                if not described:
                    yield Paragraph(what_and_why(row))
                    described = True
                yield Paragraph(what_it_did(ladder, row))
    for profile in material.of(ProfileRecord):
        if profile.rung == name:
            yield Paragraph(what_the_profile_says(profile))
    for kernels in material.of(KernelsRecord):
        if kernels.rung == name:
            yield compiler.source(kernels)
    yield material.words_for(name)


def what_and_why(row: RungRecord) -> str:
    return f"What and why: {row.idea}. From {origin(row)}."


def what_it_did(ladder: LadderRecord, row: RungRecord) -> str:
    memory = "" if row.memory is None else f", {row.memory}"
    where = f"{ladder.network} on {ladder.device}{memory}"
    if row.ranked is None:
        return f"What it did, {where}: it was not timed; {row.missing or proof(row.verification)}."
    time = units.seconds(row.ranked.median_seconds)
    words = f"What it did, {where}: {units.count(ladder.images)} images in {time}"
    if row.against is None:
        return f"{words}."
    gain = row.against
    if not gain.differs:
        verdict = f"no difference from {gain.rung} that could be told: not worth it here"
    elif gain.times >= WORTH:
        verdict = f"{units.times(gain.times)} as fast as {gain.rung}: worth it"
    elif gain.times <= NOT_WORTH:
        verdict = f"{units.times(gain.times)} as fast as {gain.rung}, so slower: not worth it here"
    else:
        verdict = f"{units.times(gain.times)} as fast as {gain.rung}: hardly worth it"
    return f"{words}, {verdict}."


def what_the_profile_says(profile: ProfileRecord) -> str:
    where = f"{profile.network} on {profile.device}"
    memory = "" if profile.memory == "host" else f", {profile.memory}"
    kernels = [row for row in profile.rows if row.kind == "kernel"]
    total = sum(row.seconds for row in kernels)
    if not kernels or not total:
        return f"What the profile says, {where}{memory}: no kernel was recorded."
    top = max(kernels, key=lambda row: row.seconds)
    words = (
        f"What the profile says, {where}{memory}: {top.name} takes "
        f"{units.share(top.seconds / total)} of all kernels' time in "
        f"{units.plural(top.calls, 'call')}"
    )
    held = [each for each in profile.roofline if each.name == top.name]
    if held:
        worst = max(held, key=lambda each: each.seconds)
        words += f"; on {', '.join(worst.layers)} it is held up by {worst.limit}"
        if worst.share_of_peak is not None:
            words += f", at {units.share(worst.share_of_peak)} of the peak"
    wall = profile.wall_parts.kernels / profile.wall_seconds if profile.wall_seconds else 0.0
    return f"{words}. Kernels are {units.share(wall)} of the wall time."
