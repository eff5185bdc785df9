"""A kind of layer is one class: what every rung needs to compute it follows from that."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from unittest import mock

import numpy as np
import pytest

from tests.fuse.cuda.interpreter import interpret
from tests.profiling.made import CEILINGS
from tilewright import climb
from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.fuse.cpu.groups import LLVM
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import cut
from tilewright.fuse.cuda.generations import GENERATIONS
from tilewright.fuse.cuda.operations import CUDA as OPERATIONS
from tilewright.model.formats import description
from tilewright.model.layers import (
    FORMS,
    TYPES,
    Add,
    Convolution,
    Elementwise,
    FullyConnected,
    Layer,
    MaxPool,
    MissingForm,
    Pixels,
    ReLU,
    Softmax,
    Softplus,
    Take,
)
from tilewright.model.layers.elementwise import literal
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.rungs import find, rungs
from tilewright.rungs.cpu.im2col import NUMPY
from tilewright.rungs.cpu.loops import LOOPS
from tilewright.rungs.gpu.layers import DIALECT
from tilewright.runtime.device import CPU, DEVICES, OPENCL
from tilewright.truth import odd, reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters
from tilewright.truth.verify import verify


@dataclass(frozen=True)
class Distance(Elementwise):
    """|x - centre|: it does not keep order, and has a setting."""

    kind = type = "distance"
    centre: float = 0.3

    @staticmethod
    def function(x, centre):
        return np.abs(x - centre)

    def ulp(self, precision):
        return 1

    def expression(self):
        c = literal(self.centre)
        return f"x > {c} ? x - {c} : {c} - x"

    def llvm(self, f, x):
        centre = f.constant(self.centre)
        return f.maximum(f.binary("fsub", x, centre), f.binary("fsub", centre, x))

    def torch(self, *parameters):
        return lambda x: (x - self.centre).abs()

    def onnx(self):
        return OnnxNode("Sub", constants=(self.centre,)), OnnxNode("Abs")


@dataclass(frozen=True)
class Mistaken(Distance):
    """It says that it keeps order."""

    kind = type = "mistaken"
    keeps_order = True


@dataclass(frozen=True)
class Bare(Elementwise):
    """It has nothing but its truth and its loops."""

    kind = type = "bare"

    @staticmethod
    def function(x):
        return np.abs(x)


class Unknown(Layer):
    """It has nothing at all."""

    kind = "unknown"


def documented() -> type[Elementwise]:
    """The kind in the guide for those who add one, as if it were a file."""
    guide = Path(__file__).parents[1] / "CONTRIBUTING.md"
    (code,) = re.findall(r"```python\n(from .*?class ELU.*?)```", guide.read_text(), re.S)
    module = sys.modules.setdefault("documented", ModuleType("documented"))
    module.__file__ = str(guide)  # what is compiled is kept by the text of a kind's file
    # This file's import of annotations holds for what it compiles, too.
    exec(compile(code, "CONTRIBUTING.md", "exec"), vars(module))
    return module.ELU


NEW = [Distance, documented()]
# A kind that is added to the package is run by the tests that take these.
KINDS = [*NEW, *(kind for kind in TYPES.values() if issubclass(kind, Elementwise))]
ON_CPU = [rung for rung in rungs(CPU) if rung.missing(CPU) is None]
pytestmark = pytest.mark.usefixtures("not_optimised")


def network_of(kind: type[Elementwise]) -> Network:
    """With the layer behind sums, before and behind a maximum, and alone."""
    layers = (
        *(kind(), Convolution(5, 3, padding=1), kind(), MaxPool(2), set_otherwise(kind)),
        *(Convolution(4, 2), MaxPool(3, stride=2), kind(), FullyConnected(6), kind(), Softmax()),
    )
    network = Network("kinds", Pixels((2, 9, 10)), layers)
    return network.with_parameters(random_parameters(network, np.random.default_rng(3)))


def set_otherwise(kind: type[Elementwise]) -> Elementwise:
    return kind(*(0.7 for _ in fields(kind)))


def problem(network: Network, outputs: np.ndarray, images: np.ndarray) -> str | None:
    truth = reference.chain(network.stages, network.parameters, images)[-1]
    return compare(outputs, truth)[1]


def images_of(network: Network) -> np.ndarray:
    generator = np.random.default_rng(4)
    return generator.normal(size=(20, *network.input.shape)).astype(np.float32)


def outputs_of(rung, device, network, way=None):
    plan = uniform(network, rung, device, 20, options=way)
    program = Program(network, plan, {rung.name: rung})
    return program(images_of(network))


@pytest.mark.parametrize("rung", ON_CPU, ids=lambda rung: rung.name)
@pytest.mark.parametrize("kind", NEW, ids=lambda kind: kind.type)
def test_a_new_kind_runs_on_the_cpu(kind, rung):
    network = network_of(kind)
    for way in rung.ways:
        outputs = outputs_of(rung, CPU, network, way)
        assert problem(network, outputs, images_of(network)) is None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.type)
def test_a_new_kind_runs_on_a_gpu(kind):
    rung = find("direct")
    if reason := rung.missing(OPENCL):
        pytest.skip(reason)
    network = Network("alone", Pixels((2, 3, 5)), (kind(), set_otherwise(kind)))
    assert problem(network, outputs_of(rung, OPENCL, network), images_of(network)) is None


def interpreted(network: Network) -> np.ndarray:
    plans = cut(network.stages, ARITHMETICS["fp32"], 90)
    return interpret(plans, network, images_of(network)[:2])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.type)
def test_a_new_kind_is_a_part_of_a_whole_network_kernel(kind):
    network = network_of(kind)
    assert problem(network, interpreted(network), images_of(network)[:2]) is None


def taken() -> Network:
    """Chosen rows and columns of pixels, of sums and of what was chosen, and behind a branch."""
    layers = (
        Take([1, 0, 1, 2, 3, 4, 3], range(1, 7)), Convolution(5, 3), Softplus(),
        Take([0, 0, 1, 1, 2, 2, 4, 3], [0, 0, 1, 1, 2, 2, 3, 3]), Take([7, 5, 1], [0, 2, 3, 7, 6]),
        Convolution(5, 1), Add(), Take([2, 2, 0], [4, 3, 1]), FullyConnected(4),
    )  # fmt: skip
    sources = ((0,), (1,), (2,), (3,), (4,), (5,), (6, 5), (7,), (8,))
    network = Network("taken", Pixels((3, 5, 8)), layers, sources=sources)
    return network.with_parameters(random_parameters(network, np.random.default_rng(3)))


@pytest.mark.parametrize("rung", ON_CPU, ids=lambda rung: rung.name)
def test_chosen_places_on_the_cpu(rung):
    network = taken()
    for way in rung.ways:
        outputs = outputs_of(rung, CPU, network, way)
        assert problem(network, outputs, images_of(network)) is None


def test_chosen_places_on_a_gpu():
    rung = find("direct")
    if reason := rung.missing(OPENCL):
        pytest.skip(reason)
    network = taken()
    assert problem(network, outputs_of(rung, OPENCL, network), images_of(network)) is None


@pytest.mark.parametrize("kept", [2**17, 1100])
def test_chosen_places_in_whole_network_kernels(kept):
    """In one kernel, and of what others left in device memory."""
    network = taken()
    gpu = replace(GENERATIONS[90], shared_bytes=kept)
    with mock.patch.dict(GENERATIONS, {90: gpu}):
        plans = cut(network.stages, ARITHMETICS["fp32"], 90)
        outputs = interpret(plans, network, images_of(network)[:2])
    assert (len(plans) > 1) == (kept < 2**16)
    assert problem(network, outputs, images_of(network)[:2]) is None


def test_what_does_not_keep_order_is_not_taken_of_a_maximum():
    network = network_of(Mistaken)
    assert problem(network, outputs_of(find("fused"), CPU, network), images_of(network))
    assert problem(network, interpreted(network), images_of(network)[:2])


@pytest.fixture
def known(monkeypatch):
    """The kinds of this file, as if each were a file of the package."""
    for kind in (Distance, Mistaken, Bare):
        monkeypatch.setitem(TYPES, kind.type, kind)


def test_a_new_kind_has_a_name_in_descriptions(known):
    network = network_of(Distance)
    assert description.from_json(description.to_json(network), "text").layers == network.layers
    with pytest.raises(TilewrightError, match="centre must be a number"):
        Distance("wide")


def test_a_kind_without_a_name_is_not_described():
    with pytest.raises(TilewrightError, match=r"^distance1: .* \(Distance\) have no name"):
        description.to_json(network_of(Distance))


@pytest.mark.parametrize("kind", ["distance", "mistaken"])
def test_the_verifier_tries_a_new_kind(known, monkeypatch, kind):
    """Before a maximum, too, where a rung may take that first."""
    examples = TYPES[kind].examples()
    monkeypatch.setattr(odd, "SEQUENCES", ())
    monkeypatch.setattr(odd, "GRAPHS", ())
    monkeypatch.setattr(odd, "joins", lambda kind: [])
    monkeypatch.setattr(odd, "single", lambda generator: examples)
    verdict = verify(find("fused"), CPU, seed=5)
    assert verdict.passed is (kind == "distance"), verdict.fault


def test_the_verifier_leaves_out_what_a_rung_cannot_compute(known, monkeypatch):
    examples = Bare.examples()
    monkeypatch.setattr(odd, "SEQUENCES", ())
    monkeypatch.setattr(odd, "GRAPHS", ())
    monkeypatch.setattr(odd, "joins", lambda kind: [])
    monkeypatch.setattr(odd, "single", lambda generator: examples)
    assert verify(find("fused"), CPU).trials == 1  # the pixels
    assert verify(find("im2col"), CPU).trials > 1


EVERYWHERE = [(rung, device) for device in DEVICES for rung in rungs(device)]


@pytest.mark.parametrize(
    ("rung", "device"), EVERYWHERE, ids=lambda each: getattr(each, "name", str(each))
)
@pytest.mark.parametrize("layer", [Bare(), Unknown()], ids=lambda layer: layer.kind)
def test_a_missing_form_is_named_before_anything_starts(rung, device, layer):
    network = Network("lacking", Pixels((1, 4, 4)), (ReLU(), layer))
    if rung.form in layer.forms:
        assert rung.supports(network.stages[-1]) is None
        return
    able = "serial, threads, im2col can" if layer.forms and device == CPU else "no rung on"
    words = (
        rf"^rung '{rung.name}' cannot compute {layer.kind}: layers of kind '{layer.kind}' "
        rf"\({type(layer).__name__}\) have no {FORMS[rung.form]}; {able}"
    )
    with pytest.raises(MissingForm, match=words):
        Program(network, uniform(network, rung, device, 1), {rung.name: rung})


def test_a_ladder_has_a_row_that_says_so(known, monkeypatch):
    """And goes on with those that can."""
    monkeypatch.setattr(odd, "SEQUENCES", ())
    monkeypatch.setattr(odd, "GRAPHS", ())
    monkeypatch.setattr(odd, "joins", lambda kind: [])
    monkeypatch.setattr(odd, "single", lambda generator: [])
    monkeypatch.setattr(climb, "ceilings", lambda *given, at_least: (CEILINGS, None))
    monkeypatch.setattr(climb, "rungs", lambda device: [find("im2col"), find("fused")])
    network = Network("lacking", Pixels((1, 4, 4)), (Bare(),))
    images = np.zeros((2, 1, 4, 4), np.uint8)
    able, lacking = climb.climb(network, images, CPU, batch=2, repeats=1).rows
    assert able.network is not None
    assert "bare: layers of kind 'bare' (Bare) have no LLVM form" in lacking.missing


def test_rooms_that_are_entered_alone_name_it_too():
    stages = Network("lacking", Pixels((1, 4, 4)), (Convolution(2, 3), Bare())).stages
    for table in (OPERATIONS, DIALECT, LLVM):
        with pytest.raises(MissingForm, match=r"^bare: layers of kind 'bare' \(Bare\) have no "):
            table.find(stages[-1])
    network = Network("lacking", Pixels((1, 4, 4)), (Bare(),))
    with pytest.raises(MissingForm, match=r"^bare: .* have no LLVM form"):
        FusedNetwork(network)
    with pytest.raises(MissingForm, match=r"^bare: .* have no CUDA form"):
        cut(network.stages, ARITHMETICS["fp32"], 90)


@pytest.mark.parametrize("kind", TYPES.values(), ids=lambda kind: kind.type)
def test_every_kind_has_every_form(kind):
    """And the tables serve it: a form that is claimed is there."""
    assert kind.forms == FORMS.keys()
    for shape, layer in kind.examples()[:1]:
        (stage,) = odd.alone(shape, layer).stages[-1:]
        tables = [LOOPS, NUMPY]
        if kind is not Convolution:
            tables.append(DIALECT)  # a rung has kernels of its own for it
        if kind not in (Convolution, FullyConnected):
            tables.append(LLVM)  # which are groups of another sort
        for table in (*tables, OPERATIONS):
            assert table.find(stage)
        assert layer.onnx()


def test_no_two_kinds_share_a_kernel_name():
    named = {kind.kind for kind in TYPES.values() if issubclass(kind, Elementwise)}
    assert len(named) == sum(issubclass(kind, Elementwise) for kind in TYPES.values())
    assert all(name.isidentifier() for name in named)
