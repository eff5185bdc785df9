"""Times are only taken of right answers: cheats that a timed call must not let through."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.judge.bout import MARGIN, Bout, Refused, floor
from tilewright.judge.lanes import POISON, Values
from tilewright.model.layers import Convolution, Pixels
from tilewright.model.network import Network
from tilewright.precision import FLOAT32
from tilewright.profiling.result import Ceilings
from tilewright.truth import reference
from tilewright.truth.trials import random_parameters

BARE = Network("one", Pixels((2, 5, 4)), (Convolution(3, 3, padding=1),))
NETWORK = BARE.with_parameters(random_parameters(BARE, np.random.default_rng(1)))
STAGE = NETWORK.stages[1]
IMAGES = 3
SLOW = Ceilings("slow", flops=1.0, bytes=1.0, processors=1, date="2026-11-15")
FAST = Ceilings("fast", flops=1e30, bytes=1e30, processors=1, date="2026-11-15")


def right(x: Values) -> Values:
    return reference.layer(STAGE, NETWORK.parameters, x).value.astype(np.float32)


class FakeLane:
    """Answers at once what a function makes of the input."""

    def __init__(self, answer: Callable[[Values], Values], seconds: float = 1.0) -> None:
        self.answer, self.seconds = answer, seconds
        self.given: list[Values] = []
        self.cold: list[bool] = []

    def call(self, x: Values, cold: bool) -> tuple[float, Values]:
        self.given.append(x)
        self.cold.append(cold)
        return self.seconds, self.answer(x)


def bout(lane: FakeLane, found: Ceilings = FAST, again: Ceilings = FAST) -> Bout:
    return Bout(
        lane, STAGE, NETWORK.parameters, FLOAT32, IMAGES, found, lambda: again,
        np.random.default_rng(5),
    )  # fmt: skip


def test_no_image_of_a_call_may_be_wrong():
    """Whichever is drawn to be computed again: here always the first."""

    def all_but_the_last(x: Values) -> Values:
        out = right(x)
        out[-1, -1, -1, -1] += 0.01
        return out

    def infinite(x: Values) -> Values:
        out = right(x)
        out[-1] = np.inf
        return out

    for answer in (all_but_the_last, infinite):
        judged = bout(FakeLane(answer))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tilewright.judge.bout.compare", lambda *given: (0.0, None))
            with pytest.raises(Refused, match="of a timed call's 3 images some are wrong"):
                judged.turn()


def test_every_call_has_other_input_and_both_kinds_are_timed():
    lane = FakeLane(right)
    judged = bout(lane)
    results = [judged.turn() for _ in range(3)]
    assert lane.cold == [True, False] * 3
    assert len({x.tobytes() for x in lane.given}) == 6
    assert len({fingerprint for _, _, fingerprint in results}) == 3


def unwritten(x: Values) -> Values:
    out = right(x)
    out.view(np.uint32)[-1, -1, -1, -1] = POISON
    return out


def nan(x: Values) -> Values:
    return np.full_like(right(x), np.nan)


def zeros(x: Values) -> Values:
    return np.zeros_like(right(x)) * x.sum() + x.ravel()[0] * 1e-30


def half(x: Values) -> Values:
    """Weights and inputs of 11 bits, claimed to be float32."""
    halved = x.astype(np.float16).astype(np.float32)
    return right(halved)


@pytest.mark.parametrize(
    ("cheat", "reason"),
    [
        (unwritten, "1 of 180 outputs were not there when the clock stopped"),
        (nan, "is nan, must be"),
        (zeros, "must be"),
        (half, "must be"),
    ],
)
def test_a_wrong_answer_has_no_time(cheat: Callable[[Values], Values], reason: str):
    with pytest.raises(Refused, match=f"conv.*{reason}"):
        bout(FakeLane(cheat)).turn()


def test_an_answer_that_is_played_again_is_found_out():
    kept: list[Values] = []

    def replayed(x: Values) -> Values:
        kept.append(right(x))
        return kept[0]

    with pytest.raises(Refused, match="other input gave the same output"):
        bout(FakeLane(replayed)).turn()


def test_answers_that_turn_wrong_after_a_while_are_found_out():
    calls = 0

    def early(x: Values) -> Values:
        nonlocal calls
        calls += 1
        return right(x) if calls <= 10 else right(x) + 1

    judged = bout(FakeLane(early))
    for _ in range(5):
        judged.turn()
    with pytest.raises(Refused, match="of a timed call"):
        judged.turn()


def test_a_wrong_image_among_right_ones_is_drawn_sooner_or_later():
    def lazy(x: Values) -> Values:
        out = right(x)
        out[1] += 1
        return out

    judged = bout(FakeLane(lazy))
    with pytest.raises(Refused, match="image 1 of a timed call"):
        for _ in range(50):
            judged.turn()


def test_what_no_device_can_do_is_refused_unless_the_ceilings_were_too_low():
    with pytest.raises(Refused, match=r"took 1e-06 ms, less than the .* ms that the device needs"):
        bout(FakeLane(right, seconds=1e-9), SLOW, SLOW).turn()
    warm, cold, _ = bout(FakeLane(right, seconds=1e-9), SLOW, FAST).turn()
    assert warm == cold == 1e-9


def test_the_floor_is_arithmetic_and_from_a_cold_start_memory_too():
    least = floor(STAGE, IMAGES, SLOW)
    assert least.warm == pytest.approx(MARGIN * IMAGES * STAGE.inside_flops)
    values = IMAGES * (2 * 5 * 4 + 3 * 5 * 4) + 3 * 2 * 9 + 3
    assert least.cold == pytest.approx(MARGIN * max(IMAGES * STAGE.inside_flops, 4 * values))
    nothing = floor(STAGE, IMAGES, Ceilings("unknown", None, None, 1, "2026-11-15"))
    assert nothing.warm == nothing.cold == 0
