"""What a rung is: one way to compute layers, with its idea in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from tilewright.errors import TilewrightError
from tilewright.model.layers.forms import Form, without
from tilewright.model.network import Network, Parameters, Stage, Stages
from tilewright.precision import FLOAT32, Precision
from tilewright.runtime import Buffer, FunctionRuntime, Runtime
from tilewright.runtime.device import Device, Kind

if TYPE_CHECKING:
    from tilewright.rungs.gpu.design import Convolutions

# What was chosen about how layers are computed, as plain data: all that JSON has.
Value: TypeAlias = "int | float | str | Sequence[Value] | Mapping[str, Value]"
Options = Mapping[str, Value]


class Launch(Protocol):
    """Reads a batch from the first buffer, and from others what else it takes, in the order of the
    step's `takes`; fills the second completely."""

    def __call__(self, x: Buffer, out: Buffer, *others: Buffer) -> None: ...


@runtime_checkable
class ParametersAgain(Protocol):
    """A launch that can copy its parameters to the device once more, as `per-layer` does."""

    def __call__(self, x: Buffer, out: Buffer, *others: Buffer) -> None: ...

    def send_parameters(self) -> None: ...


class Prepare(Protocol):
    """Get ready to compute consecutive stages: whatever is slow happens here, once.

    `runtime` is what the rung's own `open_runtime` gave: each rung names the type that it needs.
    `options` are what its `plan` chose, or others like it: nothing is chosen here.
    """

    def __call__(
        self,
        runtime: Any,
        stages: Stages,
        parameters: Parameters,
        options: Options,
        precision: Precision,
    ) -> Launch: ...


# The options that a rung likes best for consecutive stages on a device; DoesNotFit if it has none.
Choose = Callable[[Device, Stages, Precision], Options]
# All options that a tuner may try for consecutive stages on a device, the most promising first.
Offer = Callable[[Device, Stages, Precision], Iterable[Options]]


def as_options(choice: msgspec.Struct) -> Options:
    """A record as plain data: as it will come back from a file."""
    plain: Options = msgspec.json.decode(msgspec.json.encode(choice))
    return plain


def no_options(device: Device, stages: Stages, precision: Precision) -> Options:
    """Of a rung that has nothing to choose."""
    return {}


def nothing_else(device: Device, stages: Stages, precision: Precision) -> Iterable[Options]:
    """Of a rung whose own choice is the only one."""
    return ()


def launch_of(
    runtime: FunctionRuntime,
    name: str,
    stages: Stages,
    function: Callable[..., object],
    parts: tuple[tuple[str, ...], ...] = (),
) -> Launch:
    """The launch of a function that reads a batch, fills another, and may read more."""
    kernel = runtime.build(name, function, parts)
    layers = tuple(stage.name for stage in stages)

    def launch(x: Buffer, out: Buffer, *others: Buffer) -> None:
        runtime.launch(kernel, x, out, *others, layers=layers)

    return launch


def layer_by_layer(network: Network) -> list[Stages]:
    """Every layer is a step of its own."""
    return [(stage,) for stage in network.stages]


def input_then_network(network: Network) -> list[Stages]:
    """One step for the pixels, one for all the layers: how a framework takes a network."""
    return [network.stages[:1], network.stages[1:]]


def whole_network(network: Network) -> list[Stages]:
    """One step from pixels to the output."""
    return [network.stages]


def never_missing(device: Device) -> str | None:
    return None


@dataclass(frozen=True)
class Rung:
    """`idea` says what it changes against another rung, named in `against`, and why that should
    help; tables compare the two. A rung that starts anew, or is other people's, has none.

    `missing(device)` is why the rung cannot run here and how to get what it needs, or None.
    `vendor` rungs are other people's kernels: yardsticks, run only when named. `precision` is what
    the rung claims of its arithmetic, and what the verifier holds it to; a rung that can do several
    names them in `precisions`, and `prepare` takes one. `plan` chooses the options that `prepare`
    builds from, and `candidates` are others that may be tried. A rung that takes one of several
    ways while it runs, by the size of a batch, names them in `ways`, each as the options that leave
    it only that one: the verifier tries them all, and `fast_ways`, too, where convolutions are not
    sums of products, which may be so for large layers alone. `origin` is the file of a rung that is
    not our own. `memories` are the memory plans it can run under (`tilewright.memory`), the default
    first; `convolutions` says how a GPU rung computes them. `skips_taps`: taps outside the image
    are left out, not multiplied by zero.
    `form` is what of a layer it computes with; None: it needs no more than the layer. `specials`
    are what it can do that is out of the ordinary (`Layer.specials`); None: all of it.
    """

    name: str
    idea: str
    devices: tuple[Kind, ...]
    prepare: Prepare
    open_runtime: Callable[[Device, str], Runtime]  # of a device, under a memory plan
    cut: Callable[[Network], Sequence[Stages]] = layer_by_layer
    missing: Callable[[Device], str | None] = never_missing
    vendor: bool = False
    precision: Precision = FLOAT32
    precisions: tuple[Precision, ...] = ()
    plan: Choose = no_options
    candidates: Offer = nothing_else
    ways: tuple[Options, ...] = ({},)
    fast_ways: tuple[Options, ...] = ()
    origin: str | None = None
    memories: tuple[str, ...] = ("host",)
    convolutions: Convolutions | None = None
    against: str | None = None
    skips_taps: bool = False
    form: Form | None = None
    specials: frozenset[str] | None = None

    def supports(self, stage: Stage) -> str | None:
        """Why it cannot compute a layer, or None."""
        if self.form is not None and self.form not in stage.layer.forms:
            return f"{stage.name}: {without(stage.layer, self.form)}"
        if self.specials is not None and (lacking := stage.layer.specials - self.specials):
            return f"{stage.name}: it has no code for {' and '.join(sorted(lacking))}"
        return None

    def choices(self, device: Device, stages: Stages) -> Iterator[Options]:
        """Its own choice for consecutive stages, then all others that may be tried."""
        own = self.plan(device, stages, self.precision)
        yield own
        for options in self.candidates(device, stages, self.precision):
            if options != own:
                yield options

    @property
    def tried_ways(self) -> tuple[Options, ...]:
        """All that are to be proven."""
        return self.ways if self.precision.fast is None else (*self.ways, *self.fast_ways)

    @property
    def label(self) -> str:
        """The rung among others; with its precision, if it has a choice of them. One whose choice
        is that of an algorithm goes by its name alone where it adds up every product."""
        direct = [each for each in self.precisions if each.fast is None]
        named = self.precision.fast is not None or len(direct) > 1
        return f"{self.name} {self.precision.name}" if self.precisions and named else self.name

    def executed_flops(self, network: Network) -> int:
        """Floating-point operations that it really does for an image."""
        return self.executed_flops_of(network.stages)

    def executed_flops_of(self, stages: Iterable[Stage]) -> int:
        """The same for some of a network's stages."""
        return sum(stage.inside_flops if self.skips_taps else stage.flops for stage in stages)

    def at(self, precision: str | None) -> Rung:
        """The rung with its arithmetic chosen by name; float32 if None: less must be asked for."""
        if precision is None:
            if self.precisions and FLOAT32 not in self.precisions:
                names = " or ".join(each.name for each in self.precisions)
                raise TilewrightError(
                    f"rung {self.name!r} cannot compute in fp32: name --precision {names}"
                )
            return self
        known = {each.name: each for each in self.precisions or (self.precision,)}
        if precision not in known:
            raise TilewrightError(
                f"rung {self.name!r} cannot run with --precision {precision}: it computes in "
                f"{' or '.join(known)}"
            )
        return replace(self, precision=known[precision]) if self.precisions else self
