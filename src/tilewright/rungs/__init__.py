"""The ladder: every rung, in the order of the story; what each one bought is in docs/ladder.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError, unknown
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import DEVICES, Device

if TYPE_CHECKING:
    from tilewright.plan import Plan

# One line a rung: its module. Own rungs first, slowest to fastest; vendors after them.
ORDER = (
    "cpu.serial",
    "cpu.threads",
    "cpu.im2col",
    "cpu.fused",
    "gpu.direct",
    "gpu.direct_reduce",
    "gpu.padded",
    "gpu.padded_reduce",
    "gpu.shared",
    "gpu.constant",
    "gpu.unroll_gemm",
    "gpu.fused_gemm",
    "gpu.channel_atomics",
    "gpu.per_layer",
    "gpu.tuned",
    "gpu.tensor",
    "gpu.network",
    "vendor.onnxruntime",
    "vendor.torch",
)
# As users know them.
NAMES = tuple(name.partition(".")[2].replace("_", "-") for name in ORDER)
# Small enough that a batch's activations stay near the caches, large enough to share out.
DEFAULT_BATCH = 100
OWN_SUFFIXES = (".cl", ".cu")  # a rung that is a file: a kernel of one's own


def rungs(device: Device) -> list[Rung]:
    """The rungs made for a device, in the ladder's order, whether or not they can run here."""
    # What is for another device need not be imported.
    folders = ("gpu" if device.is_gpu else "cpu", "vendor")
    modules = [
        import_module(f"tilewright.rungs.{name}") for name in ORDER if name.startswith(folders)
    ]
    return [module.RUNG for module in modules if device.kind in module.RUNG.devices]


def choose(device: Device, name: str | None, precision: str | None = None) -> Rung:
    """The rung of that name, or the highest of our own that runs on the device."""
    if name is not None and name.endswith(OWN_SUFFIXES):
        return _own(device, name).at(precision)
    known = rungs(device)
    if name is None:
        reasons = {rung.name: rung.missing(device) for rung in known if not rung.vendor}
        able = [rung for rung in known if not rung.vendor and reasons[rung.name] is None]
        if not able:
            why = "; ".join(dict.fromkeys(str(reason) for reason in reasons.values()))
            raise TilewrightError(f"no rung of our own runs on {device}: {why}")
        return able[-1].at(precision)
    for rung in known:
        if rung.name == name:
            if reason := rung.missing(device):
                raise TilewrightError(f"rung {name!r} cannot run on {device}: {reason}")
            return rung.at(precision)
    raise not_among(known, device, name)


def not_among(known: Sequence[Rung], device: Device, name: str) -> TilewrightError:
    """Of a rung that is asked for on a device: where it would run, or what may have been meant."""
    if name in NAMES:
        where = " or ".join(f"--device {kind}" for kind in find(name).devices)
        return TilewrightError(f"rung {name!r} does not run on {device}: add {where}")
    return unknown(f"rung on {device}", name, [rung.name for rung in known])


def _own(device: Device, name: str) -> Rung:
    """The rung in a kernel file, if it runs on the device."""
    from tilewright.rungs.own import load

    rung = load(name)
    if device.kind not in rung.devices:
        where = " or ".join(f"--device {kind}" for kind in rung.devices)
        raise TilewrightError(f"{name} runs with {where}, not on {device}")
    if reason := rung.missing(device):
        raise TilewrightError(f"{name} cannot run on {device}: {reason}")
    return rung


def resolve(plan: Plan) -> dict[str, Rung]:
    """The rungs that a plan names, each able to run on its device in the precision of its steps."""
    found = {}
    for step in plan.steps:
        # A rung from a file is found by the file.
        rung = choose(plan.device, plan.files.get(step.rung, step.rung), step.precision)
        if rung.name != step.rung:
            raise TilewrightError(
                f"{plan.files[step.rung]} is rung {rung.name!r}, not {step.rung!r} as in the plan"
            )
        found[step.rung] = rung
    return found


def together(plan: Plan, found: Mapping[str, Rung]) -> Rung:
    """What computes a plan, to be named and described: its rung, or several as if they were one."""
    used = [found[name] for name in dict.fromkeys(step.rung for step in plan.steps)]
    if len(used) == 1:
        return used[0]
    return replace(
        used[0],
        name=" + ".join(rung.name for rung in used),
        idea="each layer by the rung that its plan names",
        against=None,
        precision=max((rung.precision for rung in used), key=lambda each: each.operand_unit),
        precisions=(),
        skips_taps=all(rung.skips_taps for rung in used),
    )


def find(name: str) -> Rung:
    """The rung of that name, on whatever device."""
    if name.endswith(OWN_SUFFIXES):
        from tilewright.rungs.own import load

        return load(name)
    known = {rung.name: rung for device in DEVICES for rung in rungs(device)}
    if name not in known:
        raise unknown("rung", name, known)
    return known[name]
