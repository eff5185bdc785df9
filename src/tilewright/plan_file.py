"""Plans in files: readable JSON that says what it was made for, and is refused anywhere else.

A plan is only as good as what it was made on. Its file names the device with its driver, the
network with a hash of its layers, the version of Tilewright, and a hash of every kernel file that
a rung of it comes from; where one of these is another now, the plan is stale.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from tilewright import __version__
from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, check_file, reason
from tilewright.model.formats.description import to_json
from tilewright.model.network import Network
from tilewright.plan import Plan, Step
from tilewright.rungs.own.includes import whole
from tilewright.runtime.device import Device
from tilewright.runtime.registry import backend
from tilewright.store import key_of

FORMAT = "tilewright.plan/1"
LARGEST_BYTES = 10**7


class _Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    layers: str  # a hash of their kinds, settings and shapes


class _Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str  # as `--device` takes it
    model: str
    driver: str


class _Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    layers: tuple[str, ...]
    rung: str
    precision: str
    options: dict[str, Any] = {}
    takes: tuple[str, ...] = ()
    buffer: int = 0


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    sha256: str


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file holds. `files` are those that rungs come from, by the rung's name."""

    schema: str
    tilewright: str
    network: _Network
    device: _Device
    memory: str
    batch: Annotated[int, msgspec.Meta(ge=1, le=10**9)]
    steps: Annotated[tuple[_Step, ...], msgspec.Meta(min_length=1)]
    files: dict[str, _File] = {}


class _Header(msgspec.Struct, frozen=True):
    schema: str


def identity(network: Network, device: Device) -> dict[str, str]:
    """All that a plan of a network on a device depends on, besides kernel files."""
    found, here = _network(network), _device(device)
    return {"tilewright": __version__, "network": found.name, "layers": found.layers,
            "device": here.name, "model": here.model, "driver": here.driver}  # fmt: skip


def write(path: Path, plan: Plan, network: Network) -> None:
    """Keep a plan of a network, with all that it depends on."""
    with atomic_write(path) as file:
        file.write(document(plan, network))


def document(plan: Plan, network: Network) -> bytes:
    """What the file of a plan holds."""
    made = Document(
        FORMAT, __version__, _network(network), _device(plan.device), plan.memory, plan.batch,
        tuple(
            _Step(x.layers, x.rung, x.precision, dict(x.options), x.takes, x.buffer)
            for x in plan.steps
        ),
        {name: _File(file, sha256_of(Path(file))) for name, file in plan.files.items()},
    )  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n"


def read(path: Path, network: Network) -> Plan:
    """The plan in a file, if it is for this network, device and version; else an error says why."""
    document = _document(path)
    if document.tilewright != __version__:
        raise _stale(path, f"made by Tilewright {document.tilewright:.40}, this is {__version__}")
    here = _network(network)
    if document.network.name != here.name:
        raise TilewrightError(
            f"{path}: the plan is for network {document.network.name!r:.60}, not {here.name!r}: "
            "name its network with --net"
        )
    if document.network != here:
        raise _stale(path, f"network {here.name!r} had other layers or sizes when it was made")
    try:
        device = Device.parse(document.device.name)
    except TilewrightError as error:
        raise TilewrightError(f"{path}: device.name: {error}") from error
    now = _device(device)
    for key in ("model", "driver"):
        before, after = getattr(document.device, key), getattr(now, key)
        if before != after:
            raise _stale(path, f"device {device} had {key} {before!r:.80}, now {after!r:.80}")
    for name, file in document.files.items():
        if sha256_of(Path(file.path)) != file.sha256:
            raise _stale(path, f"rung {name!r:.60}: {file.path:.100} has changed since")
    steps = tuple(
        Step(x.layers, x.rung, x.precision, x.options, x.takes, x.buffer) for x in document.steps
    )
    files = {name: file.path for name, file in document.files.items()}
    return Plan(here.name, device, document.memory, document.batch, steps, files)


def device_of(path: Path) -> Device:
    """That a plan in a file was made for."""
    return Device.parse(_document(path).device.name)


def _document(path: Path) -> Document:
    check_file(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    if len(content) > LARGEST_BYTES:
        raise TilewrightError(f"{path}: larger than {LARGEST_BYTES:,} bytes: not a plan")
    try:
        schema = msgspec.json.decode(content, type=_Header).schema
        if schema != FORMAT:
            raise TilewrightError(f"{path}: schema: {schema!r:.60}, and a plan has {FORMAT!r}")
        return msgspec.json.decode(content, type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TilewrightError(f"{path}: not a plan: {error}") from error


def _network(network: Network) -> _Network:
    return _Network(network.name, key_of(to_json(network)))


def _device(device: Device) -> _Device:
    for found in backend(device.kind).inventory():
        if found.model and Device.parse(found.name).index == device.index:
            return _Device(str(device), found.model, found.details)
    raise TilewrightError(f"device {device} is not here: `tilewright devices` says what is")


def sha256_of(path: Path) -> str:
    """Of a kernel file's content, with all that it includes."""
    return hashlib.sha256(whole(path)[0].encode()).hexdigest()


def _stale(path: Path, why: str) -> TilewrightError:
    return TilewrightError(f"{path}: stale plan: {why}; make it anew with --save-plan or tune")
