"""The page as text: what is in it, and that nothing in it is anything but text."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
from functools import cache
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from tests.profiling.made import CEILINGS, profile
from tests.results.made import TIMES, ladder_record, run_record, rung_record
from tests.views.report.made import answers, everything, kernels, ladder, long
from tilewright.measure.samples import Sample
from tilewright.profiling import saved
from tilewright.results import page as documents
from tilewright.results.ladder import Against, Correctness, LayerTiming
from tilewright.results.page import LoopRecord
from tilewright.results.record import Gpu, timing
from tilewright.results.run import LayerTime
from tilewright.views.report import html, roofline
from tilewright.views.report.blocks import Chart
from tilewright.views.report.compiler import loops
from tilewright.views.report.html import rendered, to_html
from tilewright.views.report.material import Material
from tilewright.views.report.page import page

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\"'&\u2028"


@pytest.fixture(autouse=True)
def _without_vega(monkeypatch):
    """A megabyte that is the same in every page."""
    monkeypatch.setattr(html, "library", lambda: "")


class Seen(HTMLParser):
    """Tags, and the text of scripts, unpacked."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.inside = [], {}, None
        self.feed(text)
        for name, packed in self.scripts.items():
            self.scripts[name] = gzip.decompress(base64.b64decode(packed)).decode()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside = dict(attributes).get("id") if tag == "script" else None

    def handle_data(self, data):
        if self.inside:
            self.scripts[self.inside] = self.scripts.get(self.inside, "") + data


@cache
def whole_page():
    return page(Material(everything()))


def test_every_section_is_there_with_a_sentence_on_how_to_read_it():
    made = whole_page()
    assert [section.id for section in made.sections] == [
        "ladder", "layers", "roofline", "memory", "timeline", "calls", "compiler", "correctness",
        "optimizations", "environment",
    ]  # fmt: skip
    assert all(len(section.reading) > 80 for section in made.sections)


def test_a_section_without_records_is_left_out():
    made = page(Material((run_record(),)))
    assert [section.id for section in made.sections] == ["layers", "environment"]


def test_figures_of_the_ladder():
    text = to_html(page(Material((ladder(),))))
    for words in ("idea of shared", "2.00x direct", "9 trials, 99 outputs, worst 0.50 of its bound",
                  "course, optimization 1", "400.0\u00a0%", "10.0 to 12.0"):  # fmt: skip
        assert words in text, words


def test_what_is_slower_was_not_worth_it():
    rows = {"direct": (0.01,) * 9, "shared": (0.02,) * 9}
    made = [rung_record(name, seconds) for name, seconds in rows.items()]
    gain = Against(rung="direct", times=0.5, interval=(0.49, 0.51), differs=True)
    record = ladder_record(rows=(made[0], replace(made[1], against=gain)))
    assert "0.50x as fast as direct, so slower: not worth it here" in to_html(
        page(Material((record,)))
    )


def test_what_differs_by_much_and_may_differ_by_nothing_is_to_be_measured_again():
    gain = Against(rung="direct", times=0.1, interval=(0.01, 1.2), differs=False)
    row = replace(rung_record("shared", (0.04,) * 9), against=gain)
    text = to_html(page(Material((ladder_record(rows=(row,)),))))
    assert "it may be anything from 0.01x to 1.20x: to be measured again" in text
    assert "not worth it" not in text


def test_of_too_few_rounds_nothing_is_said_to_be_equal():
    """A quarter of the speed is a difference, though there is no interval."""
    gain = Against(rung="direct", times=0.27, interval=None, differs=False)
    slower = replace(rung_record("shared", (0.04,) * 3), against=gain)
    record = ladder_record(rows=(rung_record("direct", (0.01,) * 3), slower))
    text = to_html(page(Material((record,))))
    assert "0.27x as fast as direct, in too few rounds to be sure" in text
    assert "no difference" not in text
    assert "fewer than 6 rounds" in text


def test_a_short_proof_is_said_to_be_one():
    assert "--full-proof" not in to_html(page(Material((ladder_record(),))))
    short = replace(ladder_record(), short_proof=True)
    assert "--full-proof tries" in to_html(page(Material((short,))))


def test_correctness_is_read_by_what_is_there():
    def reading(*records):
        sections = page(Material(records)).sections
        return next(each.reading for each in sections if each.id == "correctness")

    assert "the matrix" in reading(*everything())
    labelled, without = ((Correctness(images=100, share=0.75),), ())
    row = ladder().rows[0]
    assert reading(replace(ladder(), rows=(replace(row, correctness=labelled),))).endswith(
        "the same for all rungs."
    )
    assert "no labels" in reading(replace(ladder(), rows=(replace(row, correctness=without),)))


def test_a_command_is_code_whose_options_stay_whole():
    text = to_html(page(Material((ladder_record(),)), as_milestone=True))
    assert "<span>tilewright</span> <span>run</span> <span>--net</span>" in text


def test_no_line_ends_between_a_number_and_its_unit():
    record = replace(ladder_record(), network="90 % 12 ms <b>5 s</b> 3 words")
    text = to_html(page(Material((record,))))
    assert "90\u00a0% 12\u00a0ms &lt;b&gt;5\u00a0s&lt;/b&gt; 3 words" in text


def test_the_code_of_a_rung_is_there_once():
    text = to_html(whole_page())
    assert text.count("The code of direct") == 1


def test_every_chart_has_a_table_with_as_much():
    sections = whole_page().sections
    charts = [block for section in sections for block in section.blocks if isinstance(block, Chart)]
    assert len(charts) >= 6
    for chart in charts:
        assert chart.summary and chart.table.rows and chart.variants
        for row in chart.table.rows:
            assert len(row) == len(chart.table.columns)


def test_every_chart_is_one_that_vega_lite_knows():
    altair = pytest.importorskip("altair")
    sections = whole_page().sections
    charts = [block for section in sections for block in section.blocks if isinstance(block, Chart)]
    for spec in [spec for chart in charts for spec in chart.variants.values()]:
        assert altair.Chart.from_dict(spec).to_dict(validate=False)["datasets"]


def test_raw_data_comes_back_as_it_was(tmp_path):
    records = everything()
    text = to_html(page(Material(records)))
    kept = tmp_path / "raw.json"
    kept.write_text(Seen(text).scripts["data"])
    assert documents.read(kept) == records


def test_hostile_names_stay_text():
    gpu = Gpu(HOSTILE, HOSTILE, HOSTILE)
    environment = ladder_record().environment
    environment = replace(environment, cpu=HOSTILE, command=(HOSTILE,), gpus=(gpu,))
    where = {"network": HOSTILE, "device_name": HOSTILE, "environment": environment}
    records = (
        ladder_record(rows=(rung_record(HOSTILE, (0.1,), idea=HOSTILE),), **where),
        run_record(label=HOSTILE, **where),
        answers(classes=(HOSTILE, "b"), data=HOSTILE, **where),
        kernels(rung=HOSTILE, **where),
    )
    plain, seen = Seen(to_html(whole_page())), None
    seen = Seen(to_html(page(Material(records, {"ladder": HOSTILE}))))
    assert {tag for tag, _ in seen.tags} <= {tag for tag, _ in plain.tags} | {"a"}
    assert sum(tag == "script" for tag, _ in seen.tags) == 4
    assert not any(name.startswith("on") for _, given in seen.tags for name in given)
    assert json.loads(seen.scripts["data"])["records"][0]["network"] == HOSTILE
    assert json.loads(seen.scripts["charts"])


def test_rows_that_several_charts_draw_are_there_once():
    """Layers and kinds, as times and as shares, are four charts of the same rows."""
    drawn = json.loads(Seen(to_html(page(Material((run_record(),))))).scripts["charts"])
    (layers,) = drawn["charts"]
    assert len(layers) == 4 and len(drawn["rows"]) == 1
    assert {tuple(spec["datasets"]) for spec in layers.values()} == {tuple(drawn["rows"])}


@pytest.mark.parametrize(
    "markdown", ["<script>alert(1)</script>", "[a](javascript:alert(1))", "![a](https://a.b/c.png)"]
)
def test_words_hold_neither_code_nor_pictures_from_elsewhere(markdown):
    tags = [(tag, given) for tag, given in Seen(rendered(markdown)).tags]
    assert {tag for tag, _ in tags} <= {"p", "a"}
    assert not any("javascript" in str(given.get("href")) for _, given in tags)


def test_words_stand_in_their_place():
    text = to_html(page(Material(everything(), {"shared": "It *was* worth it."})))
    assert "It <em>was</em> worth it." in text[text.index('id="optimizations"') :]


def test_25_rungs_of_three_networks_are_a_page_under_five_megabytes():
    """Of as many layers, samples, kernels and calls as a real one, each with a time of its own."""
    records = tuple(each for name in ("a", "b", "c") for each in long(25, name))
    made = page(Material(records))
    assert len(made.data) > 3_000_000
    assert len(to_html(made)) < 2_500_000  # and 400 kB of Vega


def test_layers_come_from_a_ladder_where_nothing_was_run():
    layers = (LayerTiming(layers=("conv1", "relu1"), kind="conv", time=timing(Sample(TIMES), 100)),)
    row = replace(rung_record("direct", tuple(2 * t for t in TIMES)), layers=layers)
    sections = {each.id: each for each in page(Material((ladder_record(rows=(row,)),))).sections}
    chart, _ = sections["layers"].blocks
    assert chart.table.columns == (
        "rung", ">conv1, ms", ">remainder, ms", ">forward, ms", ">images"
    )  # fmt: skip
    assert [getattr(cell, "text", cell) for cell in chart.table.rows[0]] == [
        "direct", "10.0", "10.0", "20.0", "100"
    ]  # fmt: skip


def test_a_rung_under_several_memory_plans_has_a_row_for_each():
    rows = [
        replace(rung_record("direct", TIMES), memory=memory) for memory in ("managed", "resident")
    ]
    sections = page(Material((ladder_record(rows=tuple(rows)),))).sections
    chart = sections[0].blocks[0]
    assert [row[0] for row in chart.table.rows] == ["direct, managed", "direct, resident"]
    drawn = json.dumps(chart.variants["linear"])
    assert '"direct, managed"' in drawn and '"direct, resident"' in drawn


def test_runs_of_several_sizes_are_one_bar():
    runs = [run_record(images=images) for images in (100, 1000)]
    chart = page(Material(tuple(runs))).sections[0].blocks[0]
    assert [row[-1].text for row in chart.table.rows] == ["1,000"]


def test_ranks_go_by_the_devices_time():
    quick = timing(Sample(tuple(t / 4 for t in TIMES)), 100)
    record = ladder_record(rows=(replace(rung_record("direct", TIMES), device_time=quick),))
    text = to_html(page(Material((record,))))
    assert "<dt>images/s, small on cpu, direct</dt><dd>40,000</dd>" in text
    assert "on the device, ms" in text


def test_nothing_wins_in_a_precision_that_it_is_not_of():
    times = {"direct": 8, "network fp32": 4, "network fp16": 1}
    rows = [rung_record(name, tuple(t * k for t in TIMES)) for name, k in times.items()]
    rows.append(rung_record("torch", tuple(t * 6 for t in TIMES), vendor=True))
    made = page(Material((ladder_record(rows=tuple(rows)),)))
    assert made.facts == [
        ("images/s, small on cpu, network fp32", "2,500"), ("as fast as direct", "2.00x"),
        ("as fast as torch", "1.50x"), ("images/s, network fp16", "10,000"),
    ]  # fmt: skip
    table = made.sections[0].blocks[0].table
    share = table.columns.index(">of library")
    assert [getattr(row[share], "text", row[share]) for row in table.rows] == [
        "75.0 %", "150.0 %", "-", "100.0 %"
    ]  # fmt: skip


def test_many_layers_are_shown_by_kind_first():
    def run(layers):
        found = [
            LayerTime(name=f"conv{i}", kind="conv", seconds=1.0, flop=1) for i in range(layers)
        ]
        return run_record(layers=tuple(found))

    for layers, first in ((3, "layers"), (20, "by kind")):
        chart = page(Material((run(layers),))).sections[0].blocks[0]
        assert next(iter(chart.variants)) == first


def test_loops_of_one_place_stand_together():
    (kernel,) = kernels().kernels
    found = [("filter", "block"), ("y", "block and thread"), ("x", "block and thread")]
    made = tuple(LoopRecord(name=name, extent=4, place=place) for name, place in found)
    assert loops(replace(kernel, loops=made)) == "block: filter 4; block and thread: y 4, x 4"


def test_each_precision_has_a_roof_of_its_own():
    usual = profile()
    fast = dataclasses.replace(
        usual, ceilings=dataclasses.replace(CEILINGS, flops=9e12, precision="fp16")
    )
    found = [saved.record(each) for each in (usual, fast)]
    roof = roofline._roof(found, [1.0, 500.0])
    assert [each["ceiling"] for each in roof if each["end"]] == [
        "fp16: 9,000 GFLOP/s", "fp32: 1,000 GFLOP/s",
    ]  # fmt: skip
    assert roof[0]["ceiling"] == "100 GB/s"
    alone = roofline._roof(found[:1], [1.0, 500.0])
    assert [each["ceiling"] for each in alone] == ["100 GB/s", "", "1,000 GFLOP/s"]
