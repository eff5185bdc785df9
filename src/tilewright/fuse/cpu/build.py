"""From a network to machine code: chosen for this CPU, compiled once, kept on disk.

An object file is kept under a key made of everything it depends on: the network's layers, the
CPU and its features, the versions of LLVM and Tilewright and the generator's own source. Code that
is in use already is loaded once: it has no memory of its own that calls could change.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from weakref import WeakValueDictionary

import llvmlite.binding as llvm

from tilewright import __version__
from tilewright.errors import TilewrightError
from tilewright.files import cache_home
from tilewright.fuse.cpu.generate import generate
from tilewright.fuse.cpu.schedule import Schedule, by_images
from tilewright.fuse.cpu.tiles import Target
from tilewright.model.network import Network
from tilewright.store import KINDS, Store, key_of

# llvmlite lets one thread in at a time. A child that is forked while another thread is in there,
# to compile something or to give it back, has the lock and nobody who opens it.
if hasattr(os, "register_at_fork"):
    _one_at_a_time = llvm.ffi.lib._lock
    os.register_at_fork(
        before=_one_at_a_time.__enter__,
        after_in_parent=_one_at_a_time.__exit__,
        after_in_child=_one_at_a_time.__exit__,
    )

# 3 ran no faster: 28,715 images/s of cifar10 against 28,734 (2 cores, AVX2, 2026-11-15).
OPTIMISATION = 2
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
    """A network as machine code. `engine` owns the memory it lies in, and others may hold it."""

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
            return Machine(_cpu(), flags, level, _triple())
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
def _cpu() -> str:
    return str(llvm.get_host_cpu_name())


@cache
def _triple() -> str:
    return str(llvm.get_default_triple())


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
    kinds = {type(stage.layer) for stage in network.stages}
    files = sorted({str(sys.modules[kind.__module__].__file__) for kind in kinds})
    what = repr((network.input, network.layers, network.sources))
    key = _key(on, what, repr(plan), *map(_content, files))
    return Compiled(plan, *_engine(on, folder, key, lambda: _module(network, on, plan)))


def compile_code(code: str, on: Machine, folder: Path | None = None) -> llvm.ExecutionEngine:
    """A small module of its own: the engine owns its functions and their memory."""
    _initialise()
    return _engine(on, folder, _key(on, code), lambda: llvm.parse_assembly(code))[0]


def _engine(
    on: Machine, folder: Path | None, key: str, module: Callable[[], llvm.ModuleRef]
) -> tuple[llvm.ExecutionEngine, bool]:
    """A module as machine code, and whether it was there already."""
    if (loaded := _loaded.get(key)) is not None:
        return loaded, True
    store = None if folder is None else Store(folder, KINDS["compiled"])
    content = None if store is None else store.read(key)
    found = content is not None
    if content is None:
        content = _target_machine(on).emit_object(module())
        if store is not None:
            store.keep(key, content)  # if it cannot be kept, the next build takes its time again
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(on))
    engine.add_object_file(llvm.ObjectFileRef.from_data(content))
    engine.finalize_object()
    _loaded[key] = engine
    return engine, found


# Engines that someone holds, by their keys.
_loaded: WeakValueDictionary[str, llvm.ExecutionEngine] = WeakValueDictionary()


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
    version = f"{llvm.llvm_version_info} {__version__} {OPTIMISATION}"
    return key_of(*what, on.cpu, on.features, on.triple, version, _source())


@cache
def _content(file: str) -> str:
    """A kind of layer brings a part of the code itself."""
    return Path(file).read_text()


@cache
def _source() -> str:
    """The generator itself: a change to it is another object."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
