"""The benchmark on a GPU, without one: what a row says, and that no row is lost."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from benchmarks import cuda, rows

ABOUT = {
    "environment": {"date": "2026-11-18"}, "device": "GPU", "versions": "13", "libraries": {},
    "ceilings": dict.fromkeys(
        ("fp16_product", "tf32_product", "fp32_product", "fp32_plain", "bytes"), 1e12
    ),
}  # fmt: skip


def row_of(network, precision, images, /, **microseconds):
    engines = {
        name.replace("_", "-"): {"median_seconds": 1e-6 * value, "samples_seconds": [1e-6 * value]}
        for name, value in microseconds.items()
    }
    return {
        "network": network, "precision": precision, "batch": images, "engines": engines,
        "build_seconds": 1.0, "largest_difference": 1e-6, "failed": {}, "times": {"over": "eager"},
    }  # fmt: skip


def test_an_engine_counts_in_its_fastest_form():
    row = row_of(
        "n", "fp32", 1000, network=20, network_graph=10, eager=40, eager_graph=30, compile=50,
        compile_autotune_graph=25,
    )  # fmt: skip
    assert rows.fastest(row, rows.OURS) == "network-graph"
    assert rows.fastest(row, *rows.LIBRARIES) == "compile-autotune-graph"
    assert rows.least(row, "eager") == pytest.approx(30e-6)
    assert rows.least(row, "jax") is None
    assert rows.times(row).value == pytest.approx(2.5)
    assert rows.interval_of(rows.times(row)) == "-", "a single round has no interval"


def test_a_ratio_has_its_interval_over_rounds():
    row = row_of("n", "fp32", 1, network=10, eager=20)
    for engine in row["engines"].values():
        # What slows a round down does so to all, and cancels.
        engine["samples_seconds"] = [engine["median_seconds"] * each for each in range(1, 8)]
    assert rows.interval_of(rows.times(row)) == "2.00 to 2.00"


@pytest.fixture
def pretended(monkeypatch):
    """Rows that are made up, of which one fails, and what was measured."""
    asked = []

    def measured(network, precision, images, given):
        asked.append((network.name, precision, images))
        if (precision, images) == ("tf32", 16):
            raise RuntimeError("no kernel\nand pages more")
        return row_of(network.name, precision, images, network=10, eager=20)

    def opened(path):
        if path.exists():
            return json.loads(path.read_text())
        return {**ABOUT, "rows": [], "failed": [], "streamed": []}

    monkeypatch.setattr(cuda, "measured", measured)
    monkeypatch.setattr(cuda, "_opened", opened)
    monkeypatch.setattr(cuda, "_start_again_if_broken", lambda: None)
    return asked


def test_a_row_that_fails_costs_no_other_and_a_run_goes_on(
    tmp_path, monkeypatch, pretended, capsys
):
    output = tmp_path / "rows.json"
    command = ["cuda", "--output", str(output), "--networks", "mlp", "--precisions", "fp32", "tf32"]
    monkeypatch.setattr("sys.argv", [*command, "--batches", "1", "16"])
    cuda.main()
    document = json.loads(output.read_text())
    assert len(document["rows"]) == 3
    assert document["failed"][0]["failed"] == {"all": "RuntimeError: no kernel"}
    assert "RuntimeError: no kernel" in output.with_suffix(".md").read_text()
    assert "| mlp | 16 | 10.0 | 10.0 | 20.0 |" in output.with_suffix(".md").read_text()
    monkeypatch.setattr("sys.argv", [*command, "--batches", "1", "16", "64"])
    cuda.main()
    assert pretended[4:] == [("mlp", "fp32", 64), ("mlp", "tf32", 64)]
    assert "mlp fp32 64: 10.0 µs, eager 2.00 times as long (-)" in capsys.readouterr().out


def test_torch_compile_takes_part_from_1000_images_on(monkeypatch, pretended, tmp_path):
    seen = {}

    def measured(network, precision, images, given):
        seen[network.name, images] = (
            cuda._compiled(network, images, given), cuda._with_jax(network, images, given),
        )  # fmt: skip
        return row_of(network.name, precision, images, network=10, eager=20)

    monkeypatch.setattr(cuda, "measured", measured)
    options = ["--networks", "mlp", "lenet5", "--batches", "64", "1000", "--precisions", "fp32"]
    options += ["--autotune", "mlp:1000", "--jax", "lenet5:1000", "--output"]
    monkeypatch.setattr("sys.argv", ["cuda", *options, str(tmp_path / "rows.json")])
    cuda.main()
    assert seen == {
        ("mlp", 64): ([], False), ("mlp", 1000): (["compile", "compile-autotune"], False),
        ("lenet5", 64): ([], False), ("lenet5", 1000): (["compile"], True),
    }  # fmt: skip


def test_networks_that_nothing_was_fitted_to_have_a_word_for_all():
    names = cuda._networks(["mlp", "strangers"])
    assert names[0] == "mlp" and "resnet20" in names and "strangers" not in names


def test_a_network_has_its_usual_rows(monkeypatch):
    class Given:
        batches, precisions = None, ("fp32",)

    assert cuda._cases("ece408", Given) == [(each, "fp32") for each in (1, 16, 64, 1000, 10_000)]
    assert cuda._cases("cifar10", Given)[-1] == (50_000, "fp32")
