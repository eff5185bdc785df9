"""Sources that are nearly the same, and those that only do the same."""

from __future__ import annotations

import re

from tests.classroom.made import NOW, TASK, store_with
from tests.own_kernels import DIRECT, SHARED, kernel_file
from tilewright.classroom.similar import alike, in_class, side_by_side, tokens
from tilewright.rungs.own.start import start


def disguised(source: str) -> str:
    """Renamed, commented, laid out anew."""
    for old, new in (("sum", "acc"), ("row", "yy"), ("column", "xcol"), ("filter", "outMap")):
        source = re.sub(rf"\b{old}\b", new, source)
    return source.replace(";\n", "; // mine\n\n").replace("    ", "\t")


def test_names_numbers_comments_and_blanks_are_nothing():
    assert tokens("int a = 12; // x") == tokens("int  b=0x7f /* y */ ;")
    assert tokens("a + b") != tokens("a - b") and tokens("float a") != tokens("int a")


def test_a_disguised_copy_shows_and_other_work_does_not():
    sources = {1: kernel_file(SHARED), 2: disguised(kernel_file(SHARED)), 3: kernel_file(DIRECT)}
    owners = {1: "anna", 2: "ben", 3: "carla"}
    (found,) = alike(sources, owners)
    assert (found.first, found.second) == (1, 2) and found.share > 0.9
    assert alike(sources, {1: "anna", 2: "anna", 3: "carla"}) == []
    assert alike(sources, owners, common=[SHARED]) == []


def test_in_a_class_what_all_began_with_does_not_count(tmp_path):
    store = store_with(tmp_path, "anna", "ben", "carla", "dora", "emil")
    for login, text in {
        "anna": kernel_file(SHARED), "ben": disguised(kernel_file(SHARED)),
        "carla": start("carlas", "tuned", "dialect"), "dora": start("doras", "tuned", "dialect"),
    }.items():  # fmt: skip
        store.hand_in(login, TASK, {"mine.cl": text.encode()}, True, NOW)
    assert [(pair.first, pair.second) for pair in in_class(store, TASK)] == [(1, 2)]


def test_lines_stand_beside_each_other():
    rows = side_by_side("int a;\nint b = 1;\nx();", "int z; // same\nx();\ny(1);")
    assert rows == [("int a;", "int z; // same", True), ("int b = 1;", "", False),
                    ("x();", "x();", True), ("", "y(1);", False)]  # fmt: skip


def test_what_has_no_end_goes_to_the_end():
    """And is not looked for again from every character on, which would take hours."""
    many = 200_000
    assert tokens("/* " * many) == tokens("//" * many) == tokens("\\\n" * many) == []
    assert tokens('\\"' * many) == ["\\", "text"]
    assert tokens('"' * (2 * many + 1)) == ["text"] * (many + 1)
