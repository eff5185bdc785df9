"""How many examples hypothesis draws, and whether they are the same each time.

`make test` gives one answer: its examples follow from the tests alone. `make fuzz` draws others,
ten times as many, and keeps what fails for the next time (in .hypothesis).
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

USUAL = 30
# For texts: all that UTF-8 has, which hypothesis would find out in every process, in 1.5 s.
CHARACTERS = st.characters(exclude_categories=["Cs"])
st.register_type_strategy(str, st.text(CHARACTERS))  # where it goes by the types of a class

# From hypothesis's own defaults: in CI, what it goes by draws the same examples each time.
# No deadline: timings on a shared machine say nothing about correctness.
COMMON: dict[str, Any] = {
    "parent": settings.get_profile("default"),
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("test", max_examples=USUAL, derandomize=True, **COMMON)
settings.register_profile("fuzz", max_examples=10 * USUAL, **COMMON)

# Hypothesis likes numbers and words that it finds in the source of all that happens to be imported,
# which is another set in each process, and takes 3 s to read: what is the same each time has none.
_is_local = providers.is_local_module_file
providers.is_local_module_file = lambda file: not settings.default.derandomize and _is_local(file)


def examples(count: int, **more: Any) -> settings:
    """For tests that have a use for more or fewer than is usual: `make fuzz` multiplies them."""
    return settings(max_examples=count * settings.default.max_examples // USUAL, **more)
