"""What was seen of a fault."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import islice

import numpy as np

from tilewright.rungs.cpu import im2col
from tilewright.runtime.device import CPU
from tilewright.truth.trials import trials
from tilewright.truth.verify import prove


def test_it_comes_through_from_another_process():
    """Rungs are proven side by side, each in a process; a fault was an error of that process."""

    def prepare(*given):
        launch = im2col.RUNG.prepare(*given)

        def wrong(x, out, *others):
            launch(x, out, *others)
            out += 1

        return wrong

    rung = replace(im2col.RUNG, prepare=prepare)
    tried = trials(None, rung.precision, lambda network: True, 4, np.random.default_rng(0))
    verdict = prove(rung, CPU, islice(tried, 1), seed=0)
    again = pickle.loads(pickle.dumps(verdict))
    assert again == verdict and str(again.fault) == str(verdict.fault)
    for name, value in verdict.fault.evidence.parameters.items():
        assert np.array_equal(again.fault.evidence.parameters[name], value)
