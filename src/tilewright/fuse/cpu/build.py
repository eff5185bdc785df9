"""From a network to machine code: chosen for this CPU, compiled once, kept on disk.

An object file is kept under a name made of everything it depends on: the network's layers, the
CPU and its features, the versions of LLVM and Tilewright and the generator's own source. It starts
with a checksum, so that a damaged file is noticed and built again; it is written under another
name and renamed, so that two processes may build the same one at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from tilewright import __version__
from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, cache_home
from tilewright.fuse.cpu.generate import generate
from tilewright.fuse.cpu.schedule import Schedule, by_images
from tilewright.fuse.cpu.tiles import Target
from tilewright.model.formats.description import to_json
from tilewright.model.network import Network

# 3 ran no faster: 28,715 images/s of cifar10 against 28,734 (2 cores, AVX2, 2026-11-15).
OPTIMISATION = 2
MOST_KEPT = 500
LEVELS = {
    "avx512": ("avx512f", Target(lanes=16, registers=32)),
    "avx2": ("avx2", Target(lanes=8, registers=16)),
    "avx": ("avx", Target(lanes=8, registers=16)),
    "neon": ("neon", Target(lanes=4, registers=32)),
    "sse": ("sse2", Target(lanes=4, registers=16)),
}


@dataclass(frozen=True)
class Machine:
    """A CPU to compile for, as LLVM names it; `triple` names its architecture and system."""

    cpu: str
    features: str
    level: str
    triple: str

    @property
    def target(self) -> Target:
        return LEVELS[self.level][1]


@dataclass(frozen=True, eq=False)
class Compiled:
    """A network as machine code. `engine` owns the memory it lies in."""

    schedule: Schedule
    engine: llvm.ExecutionEngine
    from_cache: bool

    def address(self, function: str) -> int:
        """Where a function of the module lies."""
        return int(self.engine.get_function_address(function))


def compiled_folder() -> Path:
    """Where machine code is kept."""
    return cache_home() / "compiled"


def host() -> Machine:
    """This machine's CPU with all it can do."""
    return machine(_features())


def machine(features: dict[str, bool]) -> Machine:
    """This machine's CPU restricted to these features; the widest vectors they allow are used."""
    for level, (feature, _) in LEVELS.items():
        if features.get(feature):
            flags = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
            return Machine(llvm.get_host_cpu_name(), flags, level, llvm.get_default_triple())
    raise TilewrightError(
        f"the fused rung knows no vectors of this CPU ({llvm.get_host_cpu_name()})"
    )


def restricted(level: str) -> Machine:
    """This CPU pretending to have nothing beyond a level: `avx2`, `sse`."""
    beyond = {
        "avx2": ("avx512",),
        "avx": ("avx512", "avx2", "fma"),
        "sse": ("avx", "fma", "f16c", "vaes", "vpclmulqdq", "xop"),
    }[level]
    return machine({n: on and not n.startswith(beyond) for n, on in _features().items()})


@cache
def _features() -> dict[str, bool]:
    _initialise()
    return dict(llvm.get_host_cpu_features())


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def compile_network(
    network: Network, on: Machine, folder: Path | None, plan: Schedule | None = None
) -> Compiled:
    """Machine code for a network, from `folder` if it is there, else kept there.

    The schedule is that by images unless another one is given. A folder that cannot be written
    is no error: the code is then built each time.
    """
    _initialise()
    plan = plan or by_images(network, on.target)
    key = _key(on, to_json(network), repr(plan))
    return Compiled(plan, *_engine(on, folder, key, lambda: _module(network, on, plan)))


def compile_code(code: str, on: Machine, folder: Path | None = None) -> llvm.ExecutionEngine:
    """A small module of its own: the engine owns its functions and their memory."""
    _initialise()
    return _engine(on, folder, _key(on, code), lambda: llvm.parse_assembly(code))[0]


def _engine(
    on: Machine, folder: Path | None, key: str, module: Callable[[], llvm.ModuleRef]
) -> tuple[llvm.ExecutionEngine, bool]:
    """A module as machine code, and whether it was kept already."""
    path = None if folder is None else folder / f"{key}.object"
    content = None if path is None else _read(path)
    found = content is not None
    if content is None:
        content = _target_machine(on).emit_object(module())
        if path is not None:
            _keep(path, content)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(on))
    engine.add_object_file(llvm.ObjectFileRef.from_data(content))
    engine.finalize_object()
    return engine, found


def assembly(network: Network, on: Machine, plan: Schedule) -> str:
    """The machine code as text."""
    _initialise()
    return str(_target_machine(on).emit_assembly(_module(network, on, plan)))


def object_code(code: str, on: Machine) -> bytes:
    """A module as the content of an object file, which need not be for this CPU."""
    return bytes(_target_machine(on).emit_object(llvm.parse_assembly(code)))


def is_arm(triple: str | None = None) -> bool:
    """Whether an architecture, this machine's unless it is given, is ARM's."""
    return (triple or llvm.get_default_triple()).startswith(("aarch64", "arm"))


def module_code(network: Network, on: Machine, plan: Schedule) -> str:
    """A network in LLVM's language."""
    # ARM's cycle counter is closed to programs, its steady one is not; x86 has only the former.
    clock = "llvm.readsteadycounter" if is_arm(on.triple) else "llvm.readcyclecounter"
    return generate(network, plan, clock)


def _module(network: Network, on: Machine, plan: Schedule) -> llvm.ModuleRef:
    return llvm.parse_assembly(module_code(network, on, plan))


def _target_machine(on: Machine) -> llvm.TargetMachine:
    target = llvm.Target.from_triple(on.triple)
    return target.create_target_machine(cpu=on.cpu, features=on.features, opt=OPTIMISATION)


def _key(on: Machine, *what: str) -> str:
    version = f"{llvm.llvm_version_info} {__version__}"
    parts = (*what, on.cpu, on.features, on.triple, version, _source())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


@cache
def _source() -> str:
    """The generator itself: a change to it is another object."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    checksum, body = content[:32], content[32:]
    return body if hashlib.sha256(body).digest() == checksum else None


def kept_objects(folder: Path) -> list[Path]:
    """The compiled networks in a folder, the newest first."""
    found = [(path.stat().st_mtime, path) for path in folder.glob("*.object")]
    return [path for _, path in sorted(found, reverse=True)]


def _keep(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(hashlib.sha256(content).digest() + content)
        # Verifying compiles hundreds of small networks; the folder must not grow for ever.
        for old in kept_objects(path.parent)[MOST_KEPT:]:
            old.unlink(missing_ok=True)
    except (OSError, TilewrightError):
        pass  # nothing is lost but the time of the next build
