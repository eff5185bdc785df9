"""A data set through workers, from the command to its files, without a cluster."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import tilewright
from tests.cluster.made import IMAGES, LABELS, NETWORK
from tests.cluster.near import Near
from tests.profiling.made import CEILINGS
from tilewright.cli import main
from tilewright.errors import TilewrightError
from tilewright.profiling import ceilings

ASKED = {"batch": 8, "rung": "im2col", "on": "ray", "workers": 2}


@pytest.fixture(autouse=True)
def near(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", Near())
    monkeypatch.setattr(ceilings, "measure", lambda *given: ceilings.Known(CEILINGS, ""))


def write(folder, *labelled):
    """A Parquet file of 40 images for each; True if it has labels."""
    folder.mkdir()
    for index, labels in enumerate(labelled):
        some = slice(40 * index, 40 * index + 40)
        pixels = pyarrow.array(IMAGES[some].ravel())
        rows = {"image": pyarrow.FixedSizeListArray.from_arrays(pixels, 63)}
        if labels:
            rows["label"] = LABELS[some]
        parquet.write_table(pyarrow.table(rows), folder / f"{index}.parquet", row_group_size=16)
    return folder


def test_files_give_what_one_process_makes_of_them(tmp_path):
    folder = write(tmp_path / "images", True, True, True)
    found = tilewright.run(NETWORK, data=folder, **ASKED)
    alone = tilewright.run(NETWORK, data=folder, batch=8, rung="im2col")
    assert found.predictions_csv() == alone.predictions_csv()
    assert found.record.accuracy == alone.record.accuracy == np.mean(
        found.predicted == LABELS[:120]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("labelled", "words"),
    [
        ((True, False), "images 40 to 47 have no labels, others have"),
        ((False, True), "images 40 to 47 have labels, others have none"),
    ],
)
def test_labels_of_some_are_refused_as_one_process_does(tmp_path, labelled, words):
    folder = write(tmp_path / "images", *labelled)
    with pytest.raises(TilewrightError, match=words):
        tilewright.run(NETWORK, data=folder, **ASKED)
    with pytest.raises(TilewrightError, match="having labels"):
        tilewright.run(NETWORK, data=folder, batch=8, rung="im2col")


def test_what_is_wrong_in_the_middle_is_one_line_and_no_file(tmp_path, capsys):
    """A file is damaged where only its reader sees it; another is gone when its turn comes."""
    tilewright.save(NETWORK, tmp_path / "net.safetensors")
    folder, out = write(tmp_path / "images", True, True), tmp_path / "out.csv"
    damaged = bytearray((folder / "1.parquet").read_bytes())
    damaged[4:400] = bytes(396)
    (folder / "1.parquet").write_bytes(damaged)
    given = ["run", "--net", str(tmp_path / "net.safetensors"), "--data", str(folder), "--on",
             "ray", "--rung", "im2col", "--batch", "8", "--predictions", str(out)]  # fmt: skip
    assert main(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tilewright: images 40 to 47: ") and "1.parquet" in line
    assert not out.exists()


def test_a_label_that_no_network_has_is_named(tmp_path):
    for index, label in enumerate((1, 9)):
        np.savez(tmp_path / f"{index}.npz", images=IMAGES[:16], labels=np.full(16, label))
    words = r"images 16 to 23: .*1\.npz: label 9 of image 0 is out of range"
    with pytest.raises(TilewrightError, match=words):
        tilewright.run(NETWORK, data=tmp_path, **ASKED)


def test_a_file_that_vanishes_is_named(tmp_path):
    folder = write(tmp_path / "images", True, True)

    def remove(doing, done, of):
        if done == 8:
            (folder / "1.parquet").unlink()

    words = "images 40 to 47: .*1.parquet.*No such file"
    with pytest.raises(TilewrightError, match=words):
        tilewright.run(NETWORK, data=folder, progress=remove, **ASKED)
