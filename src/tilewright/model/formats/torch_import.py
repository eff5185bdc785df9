"""`tilewright.from_torch` and `--net model.pt2`: a network out of a program that PyTorch exported.

A module is exported by `torch.export` and goes through the same reader as a file, which needs no
PyTorch and unpickles nothing.
"""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats import torch_file
from tilewright.model.formats.draft import Draft, name_of
from tilewright.model.formats.entering import Numbers, begin, entering
from tilewright.model.formats.folding import finish
from tilewright.model.formats.parts import FREE, Value
from tilewright.model.formats.problems import NotUnderstood
from tilewright.model.formats.torch_calls import CHECKS, MAKERS
from tilewright.model.formats.torch_constants import CONSTANTS
from tilewright.model.formats.torch_file import Call, Program, Ref
from tilewright.model.formats.torch_inputs import Building
from tilewright.model.formats.torch_memory import Memory
from tilewright.model.network import Network

LONGEST = 200  # characters of what PyTorch says

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram
    from torch.nn import Module


def from_torch(
    module: Module | ExportedProgram,
    example: Tensor | None = None,
    *,
    name: str | None = None,
    scale: Numbers | None = None,
    shift: Numbers | None = None,
) -> Network:
    """The network that a PyTorch module computes in eval mode, with its weights.

    `example` is a batch of pictures, (image, channel, y, x), or of rows, of which the sizes
    count; a program of `torch.export` needs none. A module that takes uint8 gets pixels as they
    are; to any other they come as `value * scale + shift`, by default `value / 255`: one number, or
    one for each channel. Batch normalisation is folded into convolutions and dropout left out;
    everything that is not understood is named at once.
    """
    from torch.export import ExportedProgram, save

    called = name or type(module).__name__
    program = module if isinstance(module, ExportedProgram) else _exported(module, example, called)
    archive = io.BytesIO()
    try:
        save(program, archive)
    except Exception as error:  # whatever PyTorch raises
        raise TilewrightError(f"{called}: torch.export.save refuses it: {_line(error)}") from error
    archive.seek(0)
    found = torch_file.read_archive(archive, called)
    return entering(network_of(found, called, called), scale, shift)


def _exported(module: object, example: object, called: str) -> ExportedProgram:
    from torch import Tensor
    from torch.export import export
    from torch.nn import Module

    if not isinstance(module, Module):
        raise TilewrightError(
            "from_torch takes a torch.nn.Module or what torch.export.export gave, not "
            f"{type(module).__name__}"
        )
    if not isinstance(example, Tensor) or example.ndim not in (2, 4):
        given = f"a tensor of {example.ndim} dimensions" if isinstance(example, Tensor) else (
            "none" if example is None else type(example).__name__
        )  # fmt: skip
        raise TilewrightError(
            "from_torch needs an example: a batch of pictures as a tensor, (image, channel, y, x), "
            f"as in torch.zeros(1, 3, 32, 32), or of rows; not {given}"
        )
    if any(each.training for each in module.modules()):
        module = copy.deepcopy(module).eval()
    try:
        return export(module, (example,))
    except Exception as error:  # whatever PyTorch raises
        _check_runs(module, example, called)
        raise TilewrightError(
            f"{called}: torch.export cannot follow it: {_line(error)}; write its forward without "
            "branches on values, or give what torch.export.export made of it"
        ) from error


def _check_runs(module: Module, example: Tensor, called: str) -> None:
    """What is wrong with a module itself is said better by itself than by the exporter."""
    from torch import no_grad

    try:
        with no_grad():
            module(example)
    except Exception as error:  # whatever PyTorch raises
        shape = "x".join(map(str, example.shape))
        raise TilewrightError(
            f"{called}: does not run on the example of {shape}: {_line(error)}; give one of the "
            "shape and type that it takes"
        ) from error


def _line(error: Exception) -> str:
    """The first line of what PyTorch says, which may be pages."""
    lines = str(error).strip().splitlines()
    return f"{lines[0][:LONGEST].strip().rstrip('.:;')}" if lines else type(error).__name__


def read(path: Path) -> Network:
    """The network of a `.pt2` file, with its weights."""
    network = network_of(torch_file.read(path), name_of(path), str(path))
    return replace(network, notes={**network.notes, "from": f"{network.name}{path.suffix}"})


@np.errstate(all="ignore")  # what a damaged file's numbers come to is refused, not warned of
def network_of(program: Program, name: str, source: str) -> Network:
    """`source` is what an error names."""
    try:
        draft, output = _drafted(program, source)
        return finish(draft, output, name)
    except NotUnderstood:
        raise  # names the source itself
    except TilewrightError as error:
        raise TilewrightError(f"{source}: {error}") from error


def _drafted(program: Program, source: str) -> tuple[Draft, Value]:
    """All calls of a program, or everything that is not understood of them."""
    draft, taken = begin(program.shape, program.pixels)
    building = Building(draft, program.batch or FREE, program.output)
    known: dict[str, Any] = {**program.tensors, program.input: taken}
    memory = Memory()
    problems: list[tuple[str, str]] = []
    for call in program.calls:
        if call.operator in CHECKS:
            continue
        made, names = None, [each.name for each in _references(call)]
        try:
            for name in names:
                memory.check(name)
            made = _made(building, call, program, known)
        except TilewrightError as error:
            problems.append((call.label, str(error)))
        memory.follow(call, names)
        known.update(dict.fromkeys(call.outputs))
        known.update(zip(call.outputs, made if isinstance(made, tuple) else (made,), strict=False))
        if call.in_place and names:
            known[names[0]] = made
    if problems:
        raise NotUnderstood(source, problems)
    memory.check(program.output)
    output = known.get(program.output)
    if not isinstance(output, Value):
        raise TilewrightError("its output does not depend on its input")
    return draft, output


def _made(building: Building, call: Call, program: Program, known: dict[str, Any]) -> Any:
    """What a call gives: a value, a constant, or None where its arguments are not known."""
    if call.plain not in MAKERS and call.operator not in CONSTANTS:
        raise TilewrightError("not an operator that is understood")
    names = [each.name for each in _references(call)]
    for name in names:
        if name not in known:
            raise TilewrightError(f"takes {name[:80]!r}, which no call before it makes")
    if any(known[name] is None for name in names):
        return None
    given = {key: _resolved(each, known) for key, each in call.arguments.items()}
    modules = [program.modules[name] for name in names if name in program.modules]
    given["module"] = modules[0] if modules else ""
    try:
        if any(isinstance(known[name], Value) for name in names):
            if call.plain not in MAKERS:
                raise TilewrightError("is understood of constants alone")
            if call.in_place and not isinstance(known[names[0]], Value):
                raise TilewrightError(f"changes {names[0][:80]!r}, a constant, in place")
            return MAKERS[call.plain](building, call, given)
        if call.operator not in CONSTANTS:
            raise TilewrightError("is computed of constants alone")
        del given["module"]
        found = CONSTANTS[call.operator](given)
        return building.draft.computed(found) if isinstance(found, np.ndarray) else found
    except (ValueError, TypeError, IndexError, KeyError, ArithmeticError) as error:
        raise TilewrightError(f"has settings that do not belong to it: {error}") from error


def _references(call: Call) -> list[Ref]:
    flat = [
        each
        for argument in call.arguments.values()
        for each in (argument if isinstance(argument, list) else [argument])
    ]
    return [each for each in flat if isinstance(each, Ref)]


def _resolved(argument: Any, known: dict[str, Any]) -> Any:
    if isinstance(argument, list):
        return [_resolved(each, known) for each in argument]
    return known[argument.name] if isinstance(argument, Ref) else argument
