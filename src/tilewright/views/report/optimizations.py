"""Each optimization: what it is, why it should help, what it did, and what the profile says."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.profiling.saved import profile_of
from tilewright.results.ladder import Against, LadderRecord, RungRecord
from tilewright.results.page import KernelsRecord
from tilewright.results.profile import ProfileRecord
from tilewright.views import units
from tilewright.views.names import short
from tilewright.views.report import compiler, counters
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
                    yield what_and_why(row)
                    described = True
                yield what_it_did(ladder, row)
    for profile in material.of(ProfileRecord):
        if profile.rung == name:
            yield what_the_profile_says(profile)
    for kernels in material.of(KernelsRecord):
        if kernels.rung == name:
            yield compiler.source(kernels)
    yield material.words_for(name)


def what_and_why(row: RungRecord) -> Paragraph:
    return Paragraph(f"{row.idea}. From {origin(row)}.", lead="What and why")


def what_it_did(ladder: LadderRecord, row: RungRecord) -> Paragraph:
    memory = "" if row.memory is None else f", {row.memory}"
    lead = f"What it did, {ladder.network} on {ladder.device}{memory}"
    if row.ranked is None:
        why = row.missing or proof(row.verification)
        return Paragraph(f"it was not timed; {why}.", lead)
    time = units.seconds(row.ranked.median_seconds)
    words = f"{units.count(ladder.images)} images in {time}"
    if row.against is None:
        return Paragraph(f"{words}.", lead)
    return Paragraph(f"{words}, {_verdict(row.against)}.", lead)


def _verdict(gain: Against) -> str:
    if gain.interval is None:
        verdict = f"{units.times(gain.times)} as fast as {gain.rung}, in too few rounds to be sure"
    elif not gain.differs and not NOT_WORTH < gain.times < WORTH:
        low, high = map(units.times, gain.interval)
        verdict = (
            f"{units.times(gain.times)} as fast as {gain.rung}, but so unsteadily that it may be "
            f"anything from {low} to {high}: to be measured again on a quiet machine"
        )
    elif not gain.differs:
        verdict = f"no difference from {gain.rung} that could be told: not worth it here"
    elif gain.times >= WORTH:
        verdict = f"{units.times(gain.times)} as fast as {gain.rung}: worth it"
    elif gain.times <= NOT_WORTH:
        verdict = f"{units.times(gain.times)} as fast as {gain.rung}, so slower: not worth it here"
    else:
        verdict = f"{units.times(gain.times)} as fast as {gain.rung}: hardly worth it"
    return verdict


def what_the_profile_says(profile: ProfileRecord) -> Paragraph:
    memory = "" if profile.memory == "host" else f", {profile.memory}"
    lead = f"What the profile says, {profile.network} on {profile.device}{memory}"
    kernels = [row for row in profile.rows if row.kind == "kernel"]
    total = sum(row.seconds for row in kernels)
    if not kernels or not total:
        return Paragraph("no kernel was recorded.", lead)
    top = max(kernels, key=lambda row: row.seconds)
    words = (
        f"{short(top.name)} takes {units.share(top.seconds / total)} of all kernels' time in "
        f"{units.plural(top.calls, 'call')}"
    )
    held = [each for each in profile.roofline if each.name == top.name]
    if held:
        worst = max(held, key=lambda each: each.seconds)
        words += f"; on {', '.join(worst.layers)} it is held up by {worst.limit}"
        if worst.share_of_peak is not None:
            words += f", at {units.share(worst.share_of_peak)} of the peak"
    wall = profile.wall_parts.kernels / profile.wall_seconds if profile.wall_seconds else 0.0
    counted = counters.sentence(profile_of(profile), top.name)
    return Paragraph(f"{words}.{counted} Kernels are {units.share(wall)} of the wall time.", lead)
