"""`direct` with a word of its kernel changed: as a user's kernel that is wrong, or worse."""

from __future__ import annotations

from dataclasses import replace

from tilewright.rungs.gpu.design import Convolutions, Design, Geometry, Options
from tilewright.rungs.gpu.direct import RUNG
from tilewright.rungs.gpu.prepare import gpu_rung
from tilewright.rungs.rung import Rung


def changed(name: str, old: str, new: str) -> Rung:
    direct = RUNG.convolutions
    assert direct is not None

    def build(geometry: Geometry, options: Options) -> Design:
        (work,) = direct.build(geometry, options).works
        assert old in work.source.text
        text = work.source.text.replace(old, new)
        return Design((replace(work, source=replace(work.source, text=text)),))

    made = Convolutions(direct.candidates, build, direct.choose)
    return gpu_rung(name, "direct, changed", made, against="direct")
