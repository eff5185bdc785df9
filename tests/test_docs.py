"""What the documents say is so: links, commands, tables, Python."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from benchmarks import rows as of_rows
from benchmarks import tables
from benchmarks.picture import picture

import tilewright
from tests.profiling.made import CEILINGS
from tests.test_climb import quick  # noqa: F401
from tilewright import climb
from tilewright.cli import VERBS, Parser, main
from tilewright.model.formats.onnx_nodes import MAKERS
from tilewright.model.layers import TYPES
from tilewright.profiling import ceilings
from tilewright.rungs import rungs
from tilewright.runtime import cuda
from tilewright.runtime.device import CUDA, DEVICES
from tilewright.truth import verify
from tilewright.truth.trials import trials

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    *sorted(ROOT.glob("*.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
LONGEST_README = 150  # lines: it is read to its end
DOTALL = re.MULTILINE | re.DOTALL
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@cache
def read(page: Path) -> str:
    return page.read_text()


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in FENCE.findall(read(page)) if language in languages]


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them in links."""
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", read(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pages
def test_links_lead_somewhere(page):
    for link in LINK.findall(FENCE.sub("", read(page))):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_every_type_of_layer_is_named():
    words = read(ROOT / "docs" / "files.md")
    assert [each for each in TYPES if f"`{each}`" not in words] == []


def test_every_operator_of_onnx_is_named():
    words = read(ROOT / "docs" / "networks.md")
    assert [each for each in MAKERS if not re.search(rf"\b{each}\b", words)] == []
    types = [each for each in TYPES if f"`{each}`" not in words]
    assert types == []


@pages
def test_files_of_the_project_that_are_named_exist(page):
    named = re.findall(r"`((?:benchmarks|docs|src|tests)/[\w./-]+)`", read(page))
    for path in named:
        assert (ROOT / path.rstrip("/")).exists(), f"{page.name}: {path}"


def commands(lines: list[str]) -> list[list[str]]:
    """The words that follow `tilewright` in each line that has it."""
    words = [shlex.split(line, comments=True) for line in lines]
    given = [line[line.index("tilewright") + 1 :] for line in words if "tilewright" in line]
    # `tilewright profile ... --images 100` stands for many.
    return [line for line in given if not {"...", "…"} & set(line)]


def typed(page: Path) -> list[list[str]]:
    """Commands that are shown as a whole: in blocks of sh, and at prompts."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    for block in blocks(page, "text"):
        whole = block.replace("\\\n", " ")
        lines += [line.removeprefix("$ ") for line in whole.splitlines() if line.startswith("$ ")]
    return commands(lines)


def parser_of(verb: str) -> Parser:
    assert verb in VERBS, f"there is no tilewright {verb}"
    parser = Parser(prog=f"tilewright {verb}")
    import_module(f"tilewright.cli.{verb}").add_arguments(parser)
    return parser


def help_of(verb: str, arguments: list[str]) -> str:
    """What a verb says of its options, or the verb below it does."""
    parser = parser_of(verb)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and arguments:
            assert arguments[0] in action.choices, f"there is no tilewright {verb} {arguments[0]}"
            return str(action.choices[arguments[0]].format_help())
    return parser.format_help()


@pages
def test_commands_that_are_shown_can_be_typed(page):
    for verb, *arguments in typed(page):
        try:
            parser_of(verb).parse_args(arguments)
        except Exception as error:
            pytest.fail(f"{page.name}: tilewright {verb} {shlex.join(arguments)}: {error}")


@pages
def test_commands_that_are_mentioned_have_such_options(page):
    spans = re.findall(r"`([^`\n]*\btilewright [^`\n]*)`", FENCE.sub("", read(page)))
    for verb, *arguments in commands(spans):
        if verb == "--help" or verb == "VERB":
            continue
        known = help_of(verb, arguments)
        for option in (word for word in arguments if word.startswith("--")):
            assert re.search(rf"{option}\b", known), f"{page.name}: tilewright {verb} {option}"


def test_there_are_commands_to_try():
    assert len(typed(ROOT / "README.md")) > 8
    assert len(typed(ROOT / "docs" / "start.md")) > 15
    for tutorial in (ROOT / "docs" / "tutorials").glob("*.md"):
        assert len(typed(tutorial)) > 4, tutorial.name


def test_readme_is_read_to_its_end():
    assert len(read(ROOT / "README.md").splitlines()) < LONGEST_README


def test_every_extra_is_in_the_table():
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    rows = re.findall(r"^\| (`.*?) \|", read(ROOT / "docs" / "start.md"), re.MULTILINE)
    assert set(", ".join(rows).replace("`", "").split(", ")) == set(
        project["optional-dependencies"]
    )


def test_every_page_can_be_reached_from_the_site_s_navigation():
    nav = read(ROOT / "mkdocs.yml").partition("\nnav:\n")[2]
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    assert [page for page in sorted(pages) if f": {page}\n" not in nav] == []


@cache
def reference() -> Any:
    spec = spec_from_file_location("reference", ROOT / "docs" / "making" / "reference.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_command_option_and_public_name():
    commands, names = reference().command_line(), reference().python_api()
    assert [verb for verb in VERBS if f"\n## tilewright {verb}\n" not in commands] == []
    for verb in VERBS:
        section = commands.partition(f"\n## tilewright {verb}\n")[2].partition("\n## ")[0]
        for option in re.findall(r"--[a-z][a-z-]*", parser_of(verb).format_usage()):
            assert re.search(rf"^\| `{option}[ `]", section, re.MULTILINE), f"{verb} {option}"
    for grade in ("--gradescope", "--points"):  # of a command below a command
        assert f"| `{grade} " in commands.partition("\n### tilewright kernel grade\n")[2]
    assert [name for name in tilewright.__all__ if f"\n## {name}\n" not in names] == []
    assert "device: str = 'cpu'" in names


def test_the_site_is_built_and_asks_for_nothing_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="needs pip install 'tilewright[docs]'")
    pytest.importorskip("material", reason="needs pip install 'tilewright[docs]'")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    found = re.compile(r"<(?:script|link|img)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>")
    made = list(tmp_path.rglob("*.html"))
    assert len(made) > len(list((ROOT / "docs").rglob("*.md")))
    assert [(page.name, *found.findall(page.read_text())) for page in made
            if found.search(page.read_text())] == []  # fmt: skip
    styles = [*tmp_path.rglob("*.css"), *tmp_path.rglob("*.svg")]
    assert [page.name for page in styles if re.search(r"url\(.?https?:", page.read_text())] == []
    assert (tmp_path / "search" / "search_index.json").is_file()


def test_tables_are_those_of_the_results():
    made, shown = tables.tables(), {}
    for page in PAGES:
        for _, name, text in tables.PLACE.findall(read(page)):
            # A place may wait for results that are not there yet.
            assert text.rstrip("\n") == made.get(name, ""), f"{page.name}: {name}"
            shown[name] = page
    assert set(made) <= set(shown)


def test_tables_are_written_to_their_places():
    place = "a\n\n<!-- python -m benchmarks.tables {} -->\n\n{}b\n"
    made = {"one": "| x |\n| --- |", "two": "| y |"}
    text = place.format("one", "| old |\n\n") + place.format("two", "") + place.format("none", "")
    after = tables.written(text, made)
    assert after == place.format("one", "| x |\n| --- |\n\n") + place.format(
        "two", "| y |\n\n"
    ) + place.format("none", "")
    assert tables.written(after, made) == after


def test_pictures_are_those_of_the_results():
    of = {"ladder-gpu": "ladder-h200", "ladder-cifar10": "ladder-h200-cifar10"}
    for name, found in of.items():
        drawn = (ROOT / "docs" / "images" / f"{name}.svg").read_text()
        assert drawn == picture(tables.result(found)), name


def test_tables_compare_each_rung_with_the_one_it_changes():
    found = tables.result("ladder-h200")["networks"]["cifar10"]
    seconds = {
        rung["rung"]: sum(each["median_seconds"] for each in rung["operations"].values())
        for rung in found["rungs"]
    }
    head, _, *rows = (row.split(" | ") for row in tables.ladder(found).splitlines())
    against = head.index("against")
    (padded,) = (row for row in rows if row[0] == "| `padded`")
    # Against direct-reduce, the row above it, it would be some five times as fast.
    times = f"{seconds['direct'] / seconds['padded']:.2f}x"
    assert padded[against : against + 2] == ["`direct`", times]


def test_a_ladder_with_times_on_the_gpu_is_compared_by_them():
    found = tables.result("ladder-h200-cifar10")
    seconds = {rung["rung"]: rung["device_time"]["median_seconds"] for rung in found["rungs"]}
    head, _, *rows = (row.split(" | ") for row in tables.ladder(found).splitlines())
    (fused,) = (row for row in rows if row[0] == "| `network fp16`\\*")
    against = head.index("against")
    times = f"{seconds['tensor fp16'] / seconds['network fp16']:.2f}x"
    assert (fused[against], fused[against + 2]) == ("`tensor fp16`", times)
    assert head[against + 3] == "on the GPU against `torch` |"


def slower_before_few_images_had_kernels() -> list[float]:
    """How many times as long as the best library's a single image took in fp32."""
    document = json.loads((tables.RESULTS / "2026-11-15-cuda-h200.json").read_text())
    rows = {(row["network"], row["precision"], row["batch"]): row for row in document["rows"]}
    return [
        1 / of_rows.times(rows[name, "fp32", 1]).value for name in ("ece408", "cifar64", "mnist3x3")
    ]


def test_sentences_about_the_gpu_s_ladder_are_so():
    """The figures in the prose of docs/ladder.md, worked out once more from the raw results."""
    time: dict[tuple[str, ...], float] = {}
    for net, ladder in tables.result("ladder-h200")["networks"].items():
        for rung in ladder["rungs"]:
            for layer, sample in rung["operations"].items():
                seconds = sample["median_seconds"]
                time[net, rung["rung"], layer] = seconds
                total = time.get((net, rung["rung"]), 0.0)
                time[net, rung["rung"]] = total + seconds
    alone: dict[tuple[str, str], float] = {}
    for profile in tables.result("profiles-h200")["profiles"]:
        for row in profile["detail"] if profile["memory"] == "resident" else ():
            if row["kind"] == "kernel" and row["name"].endswith("_conv"):
                alone[profile["rung"], row["layers"][0]] = row["seconds"]

    def times(slow: str, fast: str, *layer: str) -> list[float]:
        """How many times as fast, on both networks."""
        both = [(net, slow, *layer) for net in ("cifar10", "ece408") if (net, slow, *layer) in time]
        return [time[key] / time[key[0], fast, *layer] for key in both]

    def more(rung: str, layer: str) -> list[float]:
        """Per cent of `direct`'s time that it takes longer, on both networks."""
        return [100 * (ratio - 1) for ratio in times(rung, "direct", layer)]

    def won_back(net: str) -> float:
        loss = time[net, "unroll-gemm"] - time[net, "direct"]
        return 100 * (time[net, "unroll-gemm"] - time[net, "fused-gemm"]) / loss

    reduced = {layer: alone["direct", layer] / alone["direct-reduce", layer] for _, layer in alone}
    best = {
        net: min(
            seconds for (on, name, *layer), seconds in time.items()
            if on == net and not layer and name in {"direct", *tables.changed()} - {"tuned"}
        )
        for net in ("cifar10", "ece408")
    }  # fmt: skip
    below = [seconds / time[net, "tuned"] for net, seconds in best.items()]
    sentences = [
        "the convolutions {:.1f} times slower on `cifar10` and {:.1f} times on `ece408`".format(
            *times("direct-reduce", "direct")
        ),
        f"kernels are {reduced['conv2']:.1f} and {reduced['conv3']:.1f} times as fast",
        f"takes {1 / reduced['conv1']:.1f} times as long ({1e3 * alone['direct', 'conv1']:.2f} to "
        f"{1e3 * alone['direct-reduce', 'conv1']:.2f})",
        f"({1e3 * time['cifar10', 'padded']:.1f} against {1e3 * time['cifar10', 'direct']:.1f} ms; "
        f"conv1 {more('padded', 'conv1')[0]:.0f} %, "
        f"conv2 {more('padded', 'conv2')[0]:.0f} %, conv3 {more('padded', 'conv3')[0]:.0f} %)",
        "takes {:.0f} and {:.0f} % off the first layers".format(
            *(-each for each in more("shared", "conv1"))
        ),
        f"adds {more('shared', 'conv2')[0]:.0f} to {more('shared', 'conv3')[0]:.0f} % to the other",
        f"takes {-more('constant', 'conv1')[1]:.0f} % off `ece408`'s first layer",
        f"{-more('constant', 'conv1')[0]:.0f} and "
        f"{-more('constant', 'conv2')[0]:.0f} % off `cifar10`'s conv1 and conv2 (4.8 and 32 kB)",
        f"costs {more('constant', 'conv3')[0]:.0f} % on conv3 (40 kB) and "
        f"{more('constant', 'conv2')[1]:.0f} % on `ece408`'s second (56 kB)",
        "the convolutions take {:.2f} and {:.2f} times as long".format(
            *times("unroll-gemm", "direct")
        ),
        f"wins {won_back('ece408'):.0f} % of that back on `ece408`, "
        f"but {won_back('cifar10'):.0f} % on `cifar10`",
        f"cost {100 * (times('channel-atomics', 'direct')[0] - 1):.0f} % on `cifar10` and "
        f"{100 * (times('channel-atomics', 'direct')[1] - 1):.0f} % on `ece408` "
        f"(conv3 {more('channel-atomics', 'conv3')[0]:.0f} %)",
        "convolutions {:.2f} and {:.2f} times as fast: ".format(*times("fused-gemm", "per-layer"))
        + f"{times('fused-gemm', 'per-layer', 'conv2')[0]:.2f} and "
        f"{times('fused-gemm', 'per-layer', 'conv3')[0]:.2f} with 20 filters",
        "run {:.1f} and {:.1f} times as fast as on `shared`".format(*times("shared", "tuned")),
        "{:.1f} and {:.1f} times as fast as on the best rung below".format(*below),
        "a single image of `ece408` took {:.1f} times, of `cifar64` {:.1f} times and of `mnist3x3` "
        "{:.1f} times as long".format(*slower_before_few_images_had_kernels()),
    ]
    text = " ".join(read(ROOT / "docs" / "ladder.md").split())
    assert [sentence for sentence in sentences if sentence not in text] == []


def test_every_rung_is_on_the_ladder_s_page_with_the_one_it_changes():
    text = read(ROOT / "docs" / "ladder.md")
    rows = re.findall(r"^\| (?:cpu|gpu|cuda|vendor) `(.+?)` \| (?:`(.+?)` )?\|", text, re.MULTILINE)
    known = {rung.name for device in DEVICES for rung in rungs(device)}
    assert dict(rows) == {name: tables.changed().get(name, "") for name in known}


def test_profiles_of_the_gpu_are_those_that_are_kept():
    text = read(ROOT / "docs" / "profiling.md").partition("## On a CUDA GPU")[2]
    kept = [
        (tables.RESULTS / f"2026-11-15-profile-h200-{name}.txt").read_text()
        for name in ("padded-resident", "direct-managed")
    ]
    shown = [block.partition("GPU activities\n")[2] or block for _, block in FENCE.findall(text)]
    assert len(shown) == 2
    for block in shown:
        for table in block.strip("\n").split("\n\n"):
            assert any(table in report for report in kept), table


def test_what_show_prints_is_shown(capsys):
    (shown,) = (
        block.removeprefix("$ tilewright show cifar10\n")
        for block in blocks(ROOT / "docs" / "start.md", "text")
        if block.startswith("$ tilewright show cifar10\n")
    )
    assert main(["show", "cifar10"]) == 0
    said = capsys.readouterr().out
    assert [line.rstrip() for line in said.splitlines()] == shown.splitlines()


@pages
def test_python_compiles(page):
    for index, block in enumerate(blocks(page, "python")):
        compile(block, f"{page.name}, block {index}", "exec")


@pytest.fixture
def short_proofs(monkeypatch, quick):  # noqa: F811
    """A ladder of two rungs, and the first trials: proofs have tests of their own."""
    monkeypatch.setattr(climb, "rungs", lambda device: rungs(device)[2:4])
    monkeypatch.setattr(verify, "trials", lambda *given: islice(trials(*given), 20))
    known = ceilings.Known(CEILINGS, "")
    monkeypatch.setattr(ceilings, "measure", lambda *_: known)


def test_python_runs(tmp_path, monkeypatch, capsys, short_proofs):
    """README's example, guides and a tutorial, block after block, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    guides = [ROOT / "docs" / name for name in ("python.md", "serving.md")]
    engineer = ROOT / "docs" / "tutorials" / "engineer.md"
    (tmp_path / "block.json").write_text(*blocks(engineer, "json"))
    for page in (ROOT / "README.md", *guides, engineer):
        names: dict[str, object] = {}
        for index, block in enumerate(blocks(page, "python")):
            if block not in blocks_for_gpus(page):
                exec(compile(block, f"{page.name}, block {index}", "exec"), names)
    assert (tmp_path / "mine.safetensors").is_file()
    said = capsys.readouterr().out
    for guide in guides:
        (printed,) = blocks(guide, "text")
        assert printed in said
    shown, printed = blocks(engineer, "text")
    assert printed in said
    assert main(["show", "block.json"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == shown.splitlines()[1:]


def blocks_for_gpus(page: Path) -> list[str]:
    return re.findall(r"<!-- needs a GPU -->\n\n```python\n(.*?)^```$", read(page), DOTALL)


@pytest.mark.cuda
def test_python_runs_on_a_gpu():
    pytest.importorskip("torch")
    if reason := cuda.missing(CUDA):
        pytest.skip(reason)
    page = ROOT / "docs" / "serving.md"
    first, (block,) = blocks(page, "python")[0], blocks_for_gpus(page)
    names: dict[str, object] = {}
    for text in (first, block):
        exec(compile(text, page.name, "exec"), names)


def test_rows_of_the_thesis_writer_s_table_are_those_of_the_ladder_s_page():
    """Whose tables are made from the raw results."""
    page, whole = (read(ROOT / "docs" / name) for name in ("tutorials/thesis.md", "ladder.md"))
    rows = re.findall(r"^\| `direct` \| `.*", page, re.MULTILINE)
    assert len(rows) == 4
    assert [row for row in rows if row not in whole.splitlines()] == []
    (head,) = re.findall(r"^\| rung \| memory \|.*", page, re.MULTILINE)
    assert head in whole.splitlines()
