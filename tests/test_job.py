from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.errors import TilewrightError
from tilewright.job import WARM_UP_IMAGES, Request, run, warm_up_images
from tilewright.model.formats import weights
from tilewright.plan import Plan
from tilewright.runtime.device import Device


def test_the_main_job():
    seen = []
    result = run(Request(), lambda done, of: seen.append((done, of)))
    assert result.accuracy > 0.88
    assert len(result.dataset) == 1000
    assert seen[-1] == (1000, 1000)
    phases = [event.name for event in result.trace.of("phase")]
    assert phases == [
        "open device", "create network", "load parameters", "load data", "build kernels",
        "create outputs", "warm up", "forward", "accuracy", "free memory",
    ]  # fmt: skip
    np.testing.assert_allclose(result.outputs.sum(1), 1, rtol=1e-5)


def test_data_without_labels(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((3, 3, 32, 32), np.uint8))
    result = run(Request(net="cifar10", data=str(tmp_path / "a.npz")))
    assert result.correct is None
    assert result.accuracy is None
    assert result.predicted.shape == (3,)


def test_labels_must_be_classes_of_the_network(tmp_path):
    images = np.zeros((2, 3, 32, 32), np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.array([0, 10]))
    with pytest.raises(TilewrightError, match="label 10 of image 1"):
        run(Request(net="cifar10", data=str(tmp_path / "a.npz")))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("rung", "layer"), [("im2col", "conv2"), ("fused", "softmax")])
def test_overflow_names_the_layer(tmp_path, rung, layer):
    network = tilewright.load("cifar10")
    huge = {name: np.full_like(value, 1e30) for name, value in network.parameters.items()}
    file = tmp_path / "huge.safetensors"
    weights.save(network.with_parameters(huge), file)
    with pytest.raises(TilewrightError, match=f"image 0: {layer} gives values that are not finite"):
        run(Request(net="cifar10", weights=file, data=images(tmp_path), batch=2, rung=rung))


def images(folder):
    pixels = np.random.default_rng(0).integers(128, 256, (3, 3, 32, 32), np.uint8)
    np.savez(folder / "images.npz", images=pixels)
    return str(folder / "images.npz")


def test_repeats_are_all_kept_and_the_last_is_what_the_tables_are_of():
    result = run(Request(images=10, repeats=3))
    assert len(result.forward_samples) == 3
    assert result.forward_samples[-1] == result.trace.phase_seconds("forward")
    assert result.trace.phase_seconds("repeats") >= sum(result.forward_samples[:2])
    assert result.usage.user_seconds > 0 and result.usage.elapsed_seconds > 0


@pytest.mark.parametrize(("device", "images"), [("cuda", 500), ("cpu", WARM_UP_IMAGES)])
def test_a_cuda_gpu_is_warmed_up_with_what_it_will_run(device, images):
    assert warm_up_images(Plan("small", Device.parse(device), "resident", 500, ())) == images
