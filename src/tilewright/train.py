"""Training a network with PyTorch: seeded, and resumed where Ctrl-C stopped it.

After every epoch the state goes to `OUTPUT.checkpoint`. Everything random in an epoch is drawn
from the seed and the epoch's number, so an interrupted and resumed training gives the weights
that an uninterrupted one gives. The test images only measure; they never choose anything.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from tilewright.data.dataset import Dataset, checked_labels
from tilewright.errors import TilewrightError
from tilewright.files import atomic_write
from tilewright.model.formats import weights
from tilewright.model.formats.description import to_json
from tilewright.model.layers import Convolution
from tilewright.model.network import Network, Stage
from tilewright.rungs.vendor.torch import layer_function
from tilewright.runtime.device import Device

EVALUATION_BATCH = 500
# Of a batch norm: what training changes by its gradient, and what keeps it from dividing by zero.
LEARNED = ("scale", "offset")
NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class Recipe:
    """How to train: AdamW, a learning rate that rises for a tenth of the time and then falls
    along a cosine to nothing, pictures mirrored at random and shifted by up to `shift` pixels.

    `normalise`: batch norm behind every convolution while training. What is stored has none: the
    means and variances of the training images are folded into weights and biases.
    """

    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float
    shift: int
    normalise: bool = False


# Chosen on training images held out from training, never on the test images.
RECIPES = {
    "cifar10": Recipe(epochs=60, batch=128, learning_rate=8e-3, weight_decay=0.1, shift=2),
    "ece408": Recipe(epochs=12, batch=128, learning_rate=1e-3, weight_decay=0.2, shift=2),
    "ece408-2017": Recipe(epochs=12, batch=128, learning_rate=1e-3, weight_decay=0.2, shift=1),
    "resnet8": Recipe(
        epochs=100, batch=128, learning_rate=1e-2, weight_decay=0.05, shift=4, normalise=True
    ),
}
DEFAULT_RECIPE = RECIPES["ece408"]


@dataclass(frozen=True)
class Epoch:
    """What an epoch gave, for people to watch."""

    number: int
    loss: float
    training_accuracy: float
    test_accuracy: float


class Training:
    """A training in progress: parameters, optimizer, and the epochs behind it."""

    def __init__(
        self,
        network: Network,
        training: Dataset,
        test: Dataset,
        recipe: Recipe,
        seed: int,
        device: Device,
        output: Path,
    ) -> None:
        if network.stages[-1].kind != "softmax":
            raise TilewrightError(
                f"network {network.name!r} does not end in softmax: its scores cannot be trained"
            )
        if not network.parameter_shapes:
            raise TilewrightError(f"network {network.name!r} has no parameters to train")
        self.network, self.recipe, self.seed, self.output = network, recipe, seed, output
        self.data = _fingerprint(training)
        self.checkpoint = output.with_name(f"{output.name}.checkpoint")
        self.device = torch.device(str(device))
        torch.backends.cudnn.deterministic = True
        self.images, self.labels = self._tensors(training)
        self.test_images, self.test_labels = self._tensors(test)
        self.parameters = self._initial_parameters()
        # Softmax is left out: the loss takes scores.
        self.stages = [(s, s.parameter_shapes) for s in network.stages[:-1]]
        self.norms = {s.name: self._norm(s) for s, _ in self.stages if self._is_normalised(s)}
        learned = [norm[role] for norm in self.norms.values() for role in LEARNED]
        self.optimizer = torch.optim.AdamW([
            {"params": list(self.parameters.values()), "weight_decay": recipe.weight_decay},
            {"params": learned, "weight_decay": 0.0},
        ])  # fmt: skip
        self.history: list[Epoch] = []

    def resume(self) -> bool:
        """Go on from the checkpoint, if there is one of just this training."""
        if not self.checkpoint.exists():
            return False
        try:
            state = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
            same = state["settings"] == self._settings()
        except Exception as error:  # a damaged pickle raises nearly anything
            raise self._damaged() from error
        if not same:
            raise TilewrightError(
                f"{self.checkpoint} belongs to a training with other settings or data: "
                "delete it, or choose another --output"
            )
        try:
            for name, parameter in self.parameters.items():
                parameter.data.copy_(state["parameters"][name])
            for name, norm in self.norms.items():
                for role, value in norm.items():
                    value.data.copy_(state["norms"][name][role])
            self.optimizer.load_state_dict(state["optimizer"])
            self.history = [Epoch(**epoch) for epoch in state["history"]]
        except Exception as error:
            raise self._damaged() from error
        return True

    def run_epoch(self, progress: Callable[[int, int], None] = lambda done, of: None) -> Epoch:
        """One pass over the training images, then a test; the checkpoint is written at the end."""
        number = len(self.history) + 1
        # On the CPU, so that every device draws the same numbers.
        random = torch.Generator().manual_seed(self.seed * 100_003 + number)
        order = torch.randperm(len(self.images), generator=random).to(self.device)
        batches = torch.split(order, self.recipe.batch)
        loss_sum = torch.zeros((), device=self.device)
        correct = torch.zeros((), device=self.device)
        for index, chosen in enumerate(batches):
            images = self._varied(self.images[chosen], random)
            labels = self.labels[chosen]
            self._set_learning_rate((number - 1 + index / len(batches)) / self.recipe.epochs)
            scores = self._scores(images, self.parameters, self.norms)
            loss = functional.cross_entropy(scores, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss_sum += loss.detach() * len(chosen)
            correct += (scores.argmax(1) == labels).sum()
            progress(index + 1, len(batches))
        count = len(self.images)
        epoch = Epoch(number, float(loss_sum) / count, float(correct) / count, self.test_accuracy())
        if not math.isfinite(epoch.loss):
            raise TilewrightError(f"epoch {number}: the loss is {epoch.loss}: training diverged")
        self._save_checkpoint([*self.history, epoch])
        self.history.append(epoch)
        return epoch

    def test_accuracy(self) -> float:
        correct = 0
        with torch.no_grad():
            parameters = self._folded()
            for images, labels in zip(
                torch.split(self.test_images, EVALUATION_BATCH),
                torch.split(self.test_labels, EVALUATION_BATCH),
                strict=True,
            ):
                scores = self._scores(images, parameters, {})
                correct += int((scores.argmax(1) == labels).sum())
        return correct / len(self.test_images)

    def finish(self) -> tuple[Network, float]:
        """Store the weights as float16, and test them as they were stored."""
        with torch.no_grad():
            for name, value in self._folded().items():
                self.parameters[name].data.copy_(value.half())
        self.norms = {}
        accuracy = self.test_accuracy()
        notes = {
            "test_accuracy": f"{accuracy:.4f}",
            "recipe": ", ".join(f"{key} {value}" for key, value in asdict(self.recipe).items()),
            "seed": str(self.seed),
            "date": str(datetime.date.today()),
            "machine": f"{self._where()}, PyTorch {torch.__version__}",
        }
        arrays = {name: value.detach().cpu().numpy() for name, value in self.parameters.items()}
        trained = self.network.with_parameters(arrays, notes)
        weights.save(trained, self.output, np.float16)
        self.checkpoint.unlink(missing_ok=True)
        return trained, accuracy

    def _tensors(self, dataset: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
        if dataset.labels is None:
            raise TilewrightError(f"{dataset.source}: training needs labels")
        checked_labels(dataset.labels, math.prod(self.network.output_shape), dataset.source)
        images: NDArray[Any] = np.ascontiguousarray(dataset.images)
        return (
            torch.from_numpy(images).to(self.device),
            torch.from_numpy(dataset.labels).to(self.device),
        )

    def _initial_parameters(self) -> dict[str, torch.Tensor]:
        """He's initialisation, biases zero."""
        random = torch.Generator().manual_seed(self.seed)
        parameters = {}
        for name, shape in self.network.parameter_shapes.items():
            if name.endswith(".bias"):
                value = torch.zeros(shape)
            else:
                scale = math.sqrt(2 / math.prod(shape[1:]))
                value = torch.randn(shape, generator=random) * scale
            parameters[name] = value.to(self.device).requires_grad_()
        return parameters

    def _is_normalised(self, stage: Stage) -> bool:
        """A convolution without bias has nowhere to put what a norm is folded into."""
        layer = stage.layer
        return self.recipe.normalise and isinstance(layer, Convolution) and layer.bias

    def _norm(self, stage: Stage) -> dict[str, torch.Tensor]:
        """What a batch norm learns, and the mean and variance that it has seen."""
        start = {"scale": 1.0, "offset": 0.0, "mean": 0.0, "variance": 1.0}
        filters = stage.output_shape[0]
        made = {
            role: torch.full((filters,), value, device=self.device) for role, value in start.items()
        }
        for role in LEARNED:
            made[role].requires_grad_()
        return made

    def _folded(self) -> dict[str, torch.Tensor]:
        """The parameters with which layers alone compute what they do with their norms."""
        folded = dict(self.parameters)
        for name, norm in self.norms.items():
            weight, bias = self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]
            factor = norm["scale"] / torch.sqrt(norm["variance"] + NORM_EPSILON)
            folded[f"{name}.weight"] = weight * factor[:, None, None, None]
            folded[f"{name}.bias"] = norm["offset"] + (bias - norm["mean"]) * factor
        return folded

    def _scores(
        self,
        x: torch.Tensor,
        parameters: dict[str, torch.Tensor],
        norms: dict[str, dict[str, torch.Tensor]],
    ) -> torch.Tensor:
        made: dict[int, torch.Tensor] = {}
        for stage, names in self.stages:
            tensors = [parameters[name] for name in names]
            taken = [made[index] for index in stage.sources] or [x]
            result = layer_function(stage, *tensors)(*taken)
            if stage.name in norms:
                norm = norms[stage.name]
                result = functional.batch_norm(
                    result, norm["mean"], norm["variance"], norm["scale"], norm["offset"],
                    training=True, eps=NORM_EPSILON,
                )  # fmt: skip
            made[stage.index] = result
        return made[stage.index]

    def _varied(self, images: torch.Tensor, random: torch.Generator) -> torch.Tensor:
        """Mirror half of the images and shift each by a little, the edge taking the middle grey."""
        count, channels, height, width = images.shape
        shift = self.recipe.shift
        moves = torch.randint(0, 2 * shift + 1, (2, count, 1), generator=random).to(self.device)
        mirrored = (torch.rand(count, generator=random) < 0.5).to(self.device)
        rows = torch.arange(height, device=self.device) + moves[0]
        columns = torch.arange(width, device=self.device)
        columns = torch.where(mirrored[:, None], width - 1 - columns, columns) + moves[1]
        # The value that enters the network as (about) nothing.
        pixels = self.network.input
        first, scale = pixels.shifts[0], pixels.scales[0]
        grey = min(255, max(0, round(-first / scale))) if scale else 0
        padded = functional.pad(images, (shift,) * 4, value=grey)
        image = torch.arange(count, device=self.device)[:, None, None, None]
        channel = torch.arange(channels, device=self.device)[:, None, None]
        return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]

    def _set_learning_rate(self, done: float) -> None:
        """`done` is the share of the training behind us."""
        rise = min(1.0, done / 0.1)
        fall = 0.5 * (1 + math.cos(math.pi * done))
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * rise * fall

    def _settings(self) -> dict[str, object]:
        described = {"network": to_json(self.network), "seed": self.seed, "data": self.data}
        return {**described, **asdict(self.recipe)}

    def _damaged(self) -> TilewrightError:
        return TilewrightError(f"{self.checkpoint}: damaged checkpoint; delete it to start over")

    def _save_checkpoint(self, history: list[Epoch]) -> None:
        state = {
            "settings": self._settings(),
            "parameters": {name: value.detach() for name, value in self.parameters.items()},
            "norms": {
                name: {role: value.detach() for role, value in norm.items()}
                for name, norm in self.norms.items()
            },
            "optimizer": self.optimizer.state_dict(),
            "history": [asdict(epoch) for epoch in history],
        }
        content = io.BytesIO()
        torch.save(state, content)
        with atomic_write(self.checkpoint) as file:
            file.write(content.getbuffer())

    def _where(self) -> str:
        if self.device.type == "cuda":
            return str(torch.cuda.get_device_name(self.device))
        return "the CPU"


def _fingerprint(dataset: Dataset) -> str:
    """Which images these are, so that a training does not go on with others."""
    content = hashlib.sha256(dataset.images.data)
    content.update(b"" if dataset.labels is None else dataset.labels.tobytes())
    return content.hexdigest()
