"""A program that uses the verbs: `mypy` checks it strictly, with the package (`make types`).

Nobody runs it. What is wrong on purpose must be found wrong: an `ignore` too many is a mistake.
"""

from pathlib import Path
from typing import assert_type

import numpy as np

import tilewright

description = {"name": "mine", "input": {"shape": [1, 8, 8]}, "layers": [{"type": "softmax"}]}
network = tilewright.load(description, {"fc.weight": np.zeros((2, 2), np.float32)})
assert_type(network, tilewright.Network)
images, labels = np.zeros((2, 1, 8, 8), np.uint8), np.zeros(2, np.int64)


def told(doing: str, done: int, of: int) -> None: ...


run = tilewright.run(network, data=(images, labels), images=2, batch=1, progress=told)
assert_type(run, tilewright.RunResult)
assert_type(run.record.images_per_second, float)
run.save_plan(Path("plan.json"))
assert_type(run.keep("kept.sqlite"), int)
again = tilewright.run(description, data=images, plan="plan.json", check=True)

ladder = tilewright.ladder("ece408", device="opencl", rung=["mine.cl", Path("other.cl")])
assert_type(ladder, tilewright.LadderResult)
for row in ladder.record.rows:
    if row.network is not None:
        print(row.rung, row.network.median_seconds)

one = tilewright.profile(Path("mine.json"), weights="mine.safetensors", rung="fused", trace="t")
assert_type(one, tilewright.ProfileResult)
two = tilewright.profile(compare=("fused", one))
assert_type(two, tilewright.ComparisonResult)
assert_type(two.record.per_image, bool)

explained = tilewright.explain("direct", network, layer="conv1", source=True)
assert_type(explained.record.code, str | None)
proof = tilewright.verify(["fused", "mine.cl"], device="cpu", seed=3)
assert_type(proof.passed, bool)

for result in (run, ladder, one, two, explained, proof):
    assert_type(result.to_json(), str)
    assert_type(result.rows()[0]["name"], str | int | float | bool | None)
    frame = result.to_dataframe()
    frame.describe()

tilewright.run(images="three")  # type: ignore[call-overload]
tilewright.run(imagse=3)  # type: ignore[call-overload]
tilewright.ladder(rung=3)  # type: ignore[arg-type]
tilewright.explain()  # type: ignore[call-arg]
tilewright.profile(compare=("a", "b"), rung="c")  # type: ignore[call-overload]
