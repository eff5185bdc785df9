"""Plans that were searched for once are not searched for again."""

from __future__ import annotations

import pytest

from tilewright.fuse.cuda import arrange, cut, planned
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.run import kernel_text
from tilewright.model import zoo
from tilewright.model.layers import Convolution, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.store import KINDS, Store


def forget() -> None:
    cut._choose.cache_clear()
    cut._build.cache_clear()


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setattr(planned, "open_store", lambda kind: Store(tmp_path / kind, KINDS[kind]))
    forget()
    yield Store(tmp_path / "plans", KINDS["plans"])
    forget()


def texts(network: Network, precision: str, capability: int = 90) -> list[str]:
    forget()
    plans = cut.cut(network.stages, ARITHMETICS[precision], capability)
    return [kernel_text(plan, "network", network.input, "words") for plan in plans]


def never(*question):
    raise AssertionError("searched once more")


@pytest.mark.parametrize("name, precision", [("cifar10", "fp16"), ("cifar64", "tf32")])
def test_the_same_kernels_without_a_search(name, precision, monkeypatch):
    network = cifar64() if name == "cifar64" else zoo.network(name)
    made = texts(network, precision)
    monkeypatch.setattr(cut, "_search", never)
    assert texts(network, precision) == made


def cifar64() -> Network:
    """Strips of an image, and several kernels."""
    layers = (Convolution(64, 3, padding=1), ReLU(), Convolution(64, 3, padding=1), ReLU())
    return Network("wide", Pixels((3, 32, 32)), (*layers, Convolution(64, 3, padding=1)))


def test_layers_names_do_not_matter_and_all_else_does(monkeypatch):
    small = Network("small", Pixels((3, 8, 8)), (Convolution(8, 3), ReLU()))
    texts(small, "fp16")
    monkeypatch.setattr(cut, "_search", never)
    texts(Network("other", Pixels((3, 8, 8), 2.0), (Convolution(8, 3), ReLU())), "fp16")
    for other in (
        (Network("small", Pixels((3, 8, 8)), (Convolution(9, 3), ReLU())), "fp16"),
        (Network("small", Pixels((3, 8, 8)), (Convolution(8, 3),)), "fp16"),
        (small, "tf32"),
        (small, "fp16", 80),
    ):
        with pytest.raises(AssertionError, match="searched once more"):
            texts(*other)


@pytest.mark.parametrize("where, name", [(arrange, "SHAPES"), (cut, "MOST_TOGETHER")])
def test_who_changes_the_search_gets_another(where, name, monkeypatch):
    small = Network("small", Pixels((3, 8, 8)), (Convolution(8, 3), ReLU()))
    plans = cut.cut(small.stages, ARITHMETICS["fp16"], 90)
    assert cut.cut(small.stages, ARITHMETICS["fp16"], 90) == plans
    monkeypatch.setattr(where, name, ((2, 4),) if name == "SHAPES" else 1)
    monkeypatch.setattr(cut, "_search", never)
    with pytest.raises(AssertionError, match="searched once more"):
        cut.cut(small.stages, ARITHMETICS["fp16"], 90)


def test_another_planner_searches_anew(monkeypatch):
    small = Network("small", Pixels((3, 8, 8)), (Convolution(8, 3), ReLU()))
    texts(small, "fp16")
    monkeypatch.setattr(planned, "source", lambda *endings: b"another")
    monkeypatch.setattr(cut, "_search", never)
    with pytest.raises(AssertionError, match="searched once more"):
        texts(small, "fp16")


def test_what_is_damaged_is_searched_for_again(own_store):
    small = Network("small", Pixels((3, 8, 8)), (Convolution(8, 3), ReLU()))
    made = texts(small, "fp16")
    (path,) = own_store.entries()
    path.write_bytes(path.read_bytes()[:-1])
    assert texts(small, "fp16") == made
