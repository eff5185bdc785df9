"""Proofs that are kept, and all that makes them another's."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright import environment
from tilewright.model.layers import Convolution, Pixels
from tilewright.model.network import Network
from tilewright.rungs import find
from tilewright.runtime.device import CPU
from tilewright.store import open_store
from tilewright.truth import kept
from tilewright.truth.evidence import Fault
from tilewright.truth.kept import KeptProofs
from tilewright.truth.trials import random_parameters
from tilewright.truth.verify import Verdict

LAYER = Convolution(2, 3)


def network(layer=LAYER, seed=0):
    made = Network("tiny", Pixels((1, 5, 5)), (layer,))
    return made.with_parameters(random_parameters(made, np.random.default_rng(seed)))


RUNG, TINY = find("im2col"), network()
FOUND = Verdict(3, 5, 70, 0.5, None, "it is too large")


@pytest.fixture
def proofs():
    made = KeptProofs(TINY, 4)
    assert made.find(RUNG, CPU) is None
    made.keep(RUNG, CPU, FOUND)
    return made


def test_where_nothing_is_kept_nobody_asks_what_a_proof_depends_on(proofs, monkeypatch):
    assert proofs.any and not replace(proofs, anew=True).any
    for path in open_store("proofs").entries():
        path.unlink()
    monkeypatch.setattr(kept, "machine", None)
    assert not proofs.any
    assert proofs.find(RUNG, CPU) is None


def test_what_was_proven_is_known_with_its_day(proofs):
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    assert proofs.find(RUNG, CPU) == replace(FOUND, proven=today)
    again = KeptProofs(network(), 4)  # the same numbers elsewhere in memory
    assert again.find(RUNG, CPU) is not None


@pytest.mark.parametrize(
    "made",
    [
        KeptProofs(TINY, 5),
        KeptProofs(network(seed=1), 4),
        KeptProofs(network(Convolution(2, 3, padding=1)), 4),
        KeptProofs(TINY, 4, anew=True),
    ],
    ids=["another batch", "other weights", "another layer", "to be proven again"],
)
def test_a_proof_of_something_else_is_none(proofs, made):
    assert made.find(RUNG, CPU) is None


def test_nor_is_one_of_another_rung_or_plan(proofs):
    assert proofs.find(find("serial"), CPU) is None
    other = replace(RUNG, plan=lambda device, stages, precision: {"tile": 3})
    assert proofs.find(other, CPU) is None


@pytest.mark.parametrize("what", ["code", "machine", "_device"])
def test_nor_one_by_other_code_or_of_another_machine(proofs, what, monkeypatch):
    monkeypatch.setattr(kept, what, lambda *given: "changed")
    assert proofs.find(RUNG, CPU) is None


def test_the_code_is_every_file_and_the_machine_has_no_day(tmp_path, monkeypatch):
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/prelude.h"):
        (package / name).write_text("one")
    monkeypatch.setattr(kept.tilewright, "__file__", str(package / "__init__.py"))
    before = kept.code.__wrapped__()
    assert kept.code.__wrapped__() == before
    (package / "inner" / "prelude.h").write_text("two")
    assert kept.code.__wrapped__() != before
    here = environment.fingerprint()
    monkeypatch.setattr(environment, "fingerprint", lambda: here)
    first = kept.machine.__wrapped__()
    later = type(here)(**{**{f: getattr(here, f) for f in here.__struct_fields__}, "date": "x"})
    monkeypatch.setattr(environment, "fingerprint", lambda: later)
    assert kept.machine.__wrapped__() == first
    assert "numpy" in first
    monkeypatch.setenv("POCL_CACHE_DIR", "where kernels are kept")
    assert kept.machine.__wrapped__() == first
    for name in ("OPENBLAS_CORETYPE", "NVIDIA_TF32_OVERRIDE", "POCL_MAX_COMPUTE_UNITS"):
        with monkeypatch.context() as told:
            told.setenv(name, "1")
            assert kept.machine.__wrapped__() != first


def kept_file() -> Path:
    (file,) = open_store("proofs").entries()
    return file


def test_a_damaged_proof_is_not_believed(proofs):
    content = kept_file().read_bytes()
    kept_file().write_bytes(content.replace(b'"trials":5', b'"trials":6'))
    assert proofs.find(RUNG, CPU) is None
    kept_file().write_bytes(content)
    assert proofs.find(RUNG, CPU) is not None


def test_nor_one_that_others_can_write(proofs):
    kept_file().chmod(0o666)
    assert proofs.find(RUNG, CPU) is None


def test_nor_one_of_another_shape(proofs):
    open_store("proofs").keep(proofs._key(RUNG, CPU), b'{"seed": 1}')
    assert proofs.find(RUNG, CPU) is None


def test_neither_a_fault_nor_a_file_of_a_users_is_kept():
    made = KeptProofs(TINY, 4)
    made.keep(RUNG, CPU, replace(FOUND, fault=Fault("conv", "numbers", "wrong")))
    assert made.find(RUNG, CPU) is None
    own = replace(RUNG, origin="mine.cl")
    made.keep(own, CPU, FOUND)
    assert open_store("proofs").entries() == []
    made.keep(RUNG, CPU, FOUND)
    assert made.find(own, CPU) is None
