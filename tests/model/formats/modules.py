"""Networks of others as modules of PyTorch, from their published tables of layers.

ResNet-8, MobileNetV1 (a quarter as wide) and DS-CNN are those of MLPerf Tiny, ResNet-20 that of He
et al. for CIFAR-10 (with projections), SqueezeNet 1.1 that of torchvision. TensorFlow's padding
("same" at stride 2 is zeros below and on the right alone) is there where the original has it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def same(
    channels: int, filters: int, kernel: tuple[int, int] | int, stride: int = 1,
    size: tuple[int, int] = (32, 32), groups: int = 1, bias: bool = False,
) -> nn.Module:  # fmt: skip
    """A convolution padded as TensorFlow does it for pictures of this size."""
    kernels = (kernel, kernel) if isinstance(kernel, int) else kernel
    sides = []
    for extent, taps in zip(reversed(size), reversed(kernels), strict=True):
        total = max(0, (-(-extent // stride) - 1) * stride + taps - extent)
        sides += [total // 2, total - total // 2]
    conv = nn.Conv2d(channels, filters, kernel, stride, groups=groups, bias=bias)
    return nn.Sequential(nn.ZeroPad2d(tuple(sides)), conv)


def block(conv: nn.Module, filters: int) -> nn.Module:
    return nn.Sequential(conv, nn.BatchNorm2d(filters), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, channels: int, filters: int, stride: int, size: tuple[int, int]) -> None:
        super().__init__()
        after = (size[0] // stride, size[1] // stride)
        self.first = block(same(channels, filters, 3, stride, size), filters)
        self.second = nn.Sequential(same(filters, filters, 3, 1, after), nn.BatchNorm2d(filters))
        self.across = None if channels == filters else same(channels, filters, 1, stride, size)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        other = x if self.across is None else self.across(x)
        return self.relu(other + self.second(self.first(x)))


def resnet8() -> nn.Module:
    """MLPerf Tiny's image classification."""
    return nn.Sequential(
        block(same(3, 16, 3), 16),
        Residual(16, 16, 1, (32, 32)),
        Residual(16, 32, 2, (32, 32)),
        Residual(32, 64, 2, (16, 16)),
        nn.AvgPool2d(8),
        nn.Flatten(),
        nn.Linear(64, 10),
        nn.Softmax(1),
    )


def resnet20() -> nn.Module:
    """He et al., section 4.2, with n = 3."""
    layers: list[nn.Module] = [block(nn.Conv2d(3, 16, 3, 1, 1, bias=False), 16)]
    channels, size = 16, 32
    for filters in (16, 32, 64):
        for index in range(3):
            stride = 2 if index == 0 and filters > 16 else 1
            layers.append(Residual(channels, filters, stride, (size, size)))
            channels, size = filters, size // stride
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*layers, *head)


def mobilenet() -> nn.Module:
    """MLPerf Tiny's visual wake words: MobileNetV1, a quarter as wide, on 96x96 pixels."""
    layers, channels, size = [block(same(3, 8, 3, 2, (96, 96)), 8)], 8, 48
    filters_of = [16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256]
    for index, filters in enumerate(filters_of):
        stride = 2 if index in (1, 3, 5, 11) else 1
        depthwise = same(channels, channels, 3, stride, (size, size), groups=channels)
        pointwise = nn.Conv2d(channels, filters, 1, bias=False)
        layers += [block(depthwise, channels), block(pointwise, filters)]
        channels, size = filters, size // stride
    return nn.Sequential(*layers, nn.AvgPool2d(3), nn.Flatten(), nn.Linear(256, 2), nn.Softmax(1))


def ds_cnn() -> nn.Module:
    """MLPerf Tiny's keyword spotting, on 49 frames of 10 coefficients."""
    layers = [block(same(1, 64, (10, 4), 2, (49, 10), bias=True), 64), nn.Dropout(0.2)]
    for _ in range(4):
        layers += [
            block(same(64, 64, 3, 1, (25, 5), groups=64, bias=True), 64),
            block(nn.Conv2d(64, 64, 1), 64),
        ]
    head = [nn.Dropout(0.4), nn.AvgPool2d((25, 5)), nn.Flatten(), nn.Linear(64, 12), nn.Softmax(1)]
    return nn.Sequential(*layers, *head)


class Fire(nn.Module):
    def __init__(self, channels: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(channels, squeezed, 1), nn.ReLU())
        self.small = nn.Sequential(nn.Conv2d(squeezed, expanded, 1), nn.ReLU())
        self.large = nn.Sequential(nn.Conv2d(squeezed, expanded, 3, padding=1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze(x)
        return torch.cat([self.small(x), self.large(x)], 1)


def squeezenet() -> nn.Module:
    """torchvision's squeezenet1_1."""
    pool = lambda: nn.MaxPool2d(3, 2, ceil_mode=True)  # noqa: E731
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool(), Fire(64, 16, 64), Fire(128, 16, 64), pool(),
        Fire(128, 32, 128), Fire(256, 32, 128), pool(), Fire(256, 48, 192), Fire(384, 48, 192),
        Fire(384, 64, 256), Fire(512, 64, 256), nn.Dropout(), nn.Conv2d(512, 1000, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


# With the shape of an image.
MODULES = {
    "resnet8": (resnet8, (3, 32, 32)),
    "resnet20": (resnet20, (3, 32, 32)),
    "mobilenet": (mobilenet, (3, 96, 96)),
    "ds-cnn": (ds_cnn, (1, 49, 10)),
    "squeezenet": (squeezenet, (3, 224, 224)),
}


def made(name: str) -> tuple[nn.Module, Tensor]:
    """A module in eval mode with random weights and statistics, and two images for it."""
    torch.manual_seed(7)
    build, shape = MODULES[name]
    module = build()
    for each in module.modules():
        if isinstance(each, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(each.weight)
        if isinstance(each, nn.BatchNorm2d):
            each.running_mean.normal_(0, 0.2)
            each.running_var.uniform_(0.5, 2)
            each.weight.data.uniform_(0.5, 1.5)
            each.bias.data.normal_(0, 0.2)
    return module.eval(), torch.rand(1 if name == "squeezenet" else 2, *shape)
