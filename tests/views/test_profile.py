from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given
from rich.cells import cell_len
from rich.console import Console

from tests.examples import examples
from tests.profiling.made import profile, profiles
from tilewright.profiling.compare import compare
from tilewright.profiling.tally import Row
from tilewright.runtime.device import CPU, Device
from tilewright.views import comparison as comparison_view
from tilewright.views import profile as view


def printed(parts):
    file = open("/dev/null", "w")  # noqa: SIM115, PTH123
    console = Console(width=100, record=True, file=file, markup=False, emoji=False)
    for part in parts:
        console.print(part)
    return console.export_text()


UNIFIED = (
    Row("unified", "pages host to device", (), 94, 2e-4, 1e-6, 4e-6, 589_824, 4096, 65_536, 94),
    Row("unified", "GPU page-fault group", (), 293, 8e-3, 1e-6, 1e-4, count=6571),
    Row("unified", "CPU page fault", (), 117, 0.0, 0.0, 0.0, count=117),
)


def test_the_report_says_it_all_within_100_columns():
    some = profile(notices=("no CUPTI, CUDA events instead: because",), dropped=3)
    text = printed(view.report(replace(some, rows=(*some.rows, *UNIFIED))))
    for words in (
        "small over 2 images, one by one, rung direct on cuda (a GPU), memory per-layer",
        "times are from a test", "3 records were dropped", "note: no CUPTI", "GPU activities",
        "[memcpy HtoD]", "direct_conv", "API calls", "cuLaunchKernel", "Unified memory",
        "GPU page-fault group (6,571 faults)", "Regions", "64x1x2 of 16x16", "Copies of regions",
        "What takes 90 %", "conv1: a thread an output", "hands a kernel to the GPU's queue",
        "Where the wall time went", "launch overhead", "idle", "profiling made it",
        "1.43 times as long", "Roofline", "GFLOP/s", "measured 2026-11-15",
    ):  # fmt: skip
        assert words in " ".join(text.split()) or words in text, words
    assert max(map(len, text.splitlines())) <= 100


def test_pages_stand_under_the_layer_that_wanted_them():
    wanted = tuple(replace(row, layers=("conv1",)) for row in UNIFIED[:2])
    some = profile(memory="managed")
    rows = tuple(replace(row, faulted=6e-3 if row.kind == "kernel" else 0.0) for row in some.rows)
    text = printed(view.report(replace(some, rows=(*rows, *wanted, UNIFIED[2]))))
    pages = [" ".join(line.split()) for line in text[text.index("Pages of") :].splitlines()]
    assert pages[4] == "conv1 293 6.00 ms 94 590 kB 200 µs - - - -"
    assert pages[5] == "no layer - - - - - - - - 117"
    assert "page faults: 75 % of the time" in text


def test_rows_are_most_expensive_first_and_in_nvprofs_columns():
    lines = printed(view.report(profile())).splitlines()
    start = lines.index(next(line for line in lines if line.startswith("GPU activities")))
    assert lines[start + 1].split()[:7] == ["Time(%)", "Time", "Calls", "Avg", "Min", "Max", "Name"]
    names = [line.split()[-2] for line in lines[start + 3 : start + 7]]
    assert names[0] == "direct_conv"
    assert "57.1 %" in lines[start + 3]


def test_what_takes_90_percent():
    rows = [Row("kernel", name, (), 1, s, s, s) for name, s in (("a", 80), ("b", 9), ("c", 11))]
    assert [row.name for row in view.most(rows)] == ["a", "c"]
    assert view.most([]) == []
    exactly = [Row("kernel", name, (), 1, s, s, s) for name, s in (("a", 90), ("b", 10))]
    assert len(view.most(exactly)) == 2  # more than 90 %


def test_a_partial_profile_says_so_and_compares_with_nothing():
    text = printed(view.report(profile(stopped="interrupted after 1 of 2 images")))
    assert "PARTIAL: interrupted after 1 of 2 images" in text
    assert "profiling made it" not in text


def test_nothing_recorded_is_a_table_too():
    text = printed(view.report(profile(rows=(), ceilings=None)))
    assert "nothing was recorded" in text


@pytest.mark.parametrize("device", [CPU, Device("cuda", 1)], ids=str)
@given(profiles)
@examples(25, phases=[Phase.explicit, Phase.generate])  # shrinking takes minutes
def test_any_profile_fits(device, drawn):
    text = printed(view.report(replace(drawn, device=device)))
    assert max(map(cell_len, text.split("\n"))) <= 100


def test_comparison():
    text = printed(comparison_view.report(compare(profile(), profile("tuned", 0.5))))
    for words in ("A: direct on cuda", "B: tuned on cuda", "2.00x", "new", "gone", "-15.0 ms"):
        assert words in " ".join(text.split()) or words in text, words
    assert max(map(len, text.splitlines())) <= 100
    rows = comparison_view.to_csv(compare(profile(), profile("tuned", 0.5))).splitlines()
    assert rows[0] == "table,name,before,after,calls_before,calls_after"
    assert any(row.startswith("kernels,direct_conv,") for row in rows)


def test_the_start_of_the_program_is_shown_when_asked_for():
    some = profile(start=(("open device", 0.3), ("build kernels", 0.679)), page_faults=1234)
    text = printed(view.report(some, from_start=True))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert any(line.startswith("open device 300 ms 30.0 %") for line in lines)
    assert any(line.startswith("total 1.00 s 100.0 %") for line in lines)
    assert "page faults of the host in the recorded run: 1,234" in text
    assert "From the start" not in printed(view.report(some))


def test_calls_of_the_start_are_counted_with_those_of_the_run():
    """The run has 10 ms of calls, and the start 90: a context, and two of the run's own."""
    begun = (
        Row("api", "cuDevicePrimaryCtxRetain", (), 1, 0.080, 0.080, 0.080),
        Row("api", "cuLaunchKernel", (), 2, 0.010, 0.004, 0.006),
        Row("kernel", "direct_conv", ("conv1",), 2, 0.010, 0.004, 0.006),
    )
    some = profile(start=(("open device", 0.3),), start_rows=begun)
    text = printed(view.report(some, from_start=True))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    first = lines.index("API calls from the start of the program") + 3
    assert lines[first].startswith("80.0 % 80.0 ms 1 80.0 ms 80.0 ms 80.0 ms cuDevicePrimaryCtx")
    assert lines[first + 1].startswith("12.0 % 12.0 ms 4 3.00 ms 1.00 ms 6.00 ms cuLaunchKernel")
    most = [line for line in lines if "% calls from the start" in line]
    assert [line.split()[6] for line in most] == ["cuDevicePrimaryCtxRetain", "cuLaunchKernel"]
    assert "makes the GPU's context" in most[0]
    assert "from the start" not in printed(view.report(some))


def test_regions_have_a_data_clause():
    def clauses(some):
        text = printed(view.report(some))
        lines = text[text.index("Regions") :].splitlines()[4:]
        return {line.split()[0]: line.split()[-1] for line in lines[: lines.index("")]}

    assert clauses(profile())["conv1"] == "copy"
    alone = [row for row in profile().rows if row.kind != "copy"]
    assert clauses(profile(rows=tuple(alone), memory="resident"))["conv1"] == "present"
    assert clauses(profile(rows=tuple(alone), memory="managed"))["conv1"] == "shared"
    only_in = [row for row in profile().rows if row.name != "[memcpy DtoH]"]
    assert clauses(profile(rows=tuple(only_in)))["conv1"] == "copyin"
    assert "data:" not in printed(view.report(profile(device=CPU, rows=tuple(alone))))


def test_copies_have_their_clause_and_their_least_and_most_time():
    text = printed(view.report(profile()))
    lines = [" ".join(line.split()) for line in text[text.index("Copies of") :].splitlines()]
    assert lines[3] == "conv1 copyin - - 2 6.14 kB 2.00 ms 1.00 ms 1.00 ms 1.00 ms"
    assert lines[4].startswith("conv1 copyout - - 2 131 kB 2.00 ms")
    copies = [row for row in profile().rows if row.kind == "copy"]
    named = tuple(replace(row, array="w", place="prepare:7") for row in copies)
    assert "conv1 copyin w prepare:7 2" in " ".join(
        printed(view.report(profile(rows=named))).split()
    )
