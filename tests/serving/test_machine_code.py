"""Machine code that is called as Python's own functions are: made once, whoever comes first."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tilewright.serving import machine_code

CODE = """
; for threads that come at once
define ptr @same(ptr %self, ptr %given, i64 %count) {
  %object = load ptr, ptr %given
  %value = call ptr @PyLong_AsVoidPtr(ptr %object)
  %number = call ptr @PyLong_FromVoidPtr(ptr %value)
  ret ptr %number
}
"""


def test_threads_that_come_at_once_call_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made twice would be dropped once, while somebody calls it."""
    make, made, found = machine_code.compile_code, [], []
    ready = threading.Barrier(4)

    def slowly(*given: Any) -> Any:
        made.append(given)
        time.sleep(0.05)  # others would come in here
        return make(*given)

    def ask() -> None:
        ready.wait()
        found.append(machine_code.function("same", CODE, None))

    monkeypatch.setattr(machine_code, "compile_code", slowly)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(made) == 1
    assert {each(2**40 + 1) for each in found} == {2**40 + 1}
