"""The ceilings of a device, measured once and kept in the cache folder."""

from __future__ import annotations

import datetime
import json
import math
import re
from dataclasses import asdict
from pathlib import Path

from tilewright import __version__
from tilewright.environment import cpu_cores
from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, cache_home
from tilewright.profile.result import Ceilings


def ceilings(
    device: str, name: str, precision: str = "fp32", folder: Path | None = None
) -> tuple[Ceilings, str | None]:
    """Of a device, by its name in words; and why they could not be kept, if so.

    What was measured before on the same device by the same version is taken from the folder.
    """
    words = re.sub("[^A-Za-z0-9]+", "-", f"{name} {precision}").strip("-")
    file = (folder or kept_folder()) / f"{words}.json"
    known = _read(file, name, precision)
    if known is not None:
        return known, None
    found = measure(device, name, precision)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as out:
            out.write(json.dumps({"version": __version__, **asdict(found)}).encode())
    except (OSError, TilewrightError) as error:
        return found, f"the measured ceilings were not kept: {error}"
    return found, None


def measure(device: str, name: str, precision: str = "fp32") -> Ceilings:
    """A second or less of arithmetic, then of copying."""
    from tilewright.peak import measured_bandwidth, measured_peak

    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    flops, moved = measured_peak(device, precision), measured_bandwidth(device)
    return Ceilings(name, flops, moved, _processors(device), date, precision)


def kept_folder() -> Path:
    return cache_home() / "ceilings"


def _processors(device: str) -> int:
    if device == "cpu":
        return cpu_cores()
    from tilewright.ladder.gpu.prepare import missing, open_runtime

    return 0 if missing(device) else open_runtime(device, "resident").limits.processors


def _read(file: Path, name: str, precision: str) -> Ceilings | None:
    """What is kept, if it is whole and of this device and version; anything else is not there."""
    try:
        kept = json.loads(file.read_bytes())
        if kept.pop("version") != __version__:
            return None
        found = Ceilings(**kept)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    rates = [rate for rate in (found.flops, found.bytes) if rate is not None]
    whole = (
        (found.device, found.precision) == (name, precision)
        and all(isinstance(rate, float) and math.isfinite(rate) and rate > 0 for rate in rates)
        and isinstance(found.processors, int)
        and found.processors >= 0
        and isinstance(found.date, str)
    )
    return found if whole else None
