"""PyTorch's tensors on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape
from tilewright.serving.again import telling
from tilewright.serving.exchanged import strides_of
from tilewright.serving.gpu_arrays import LEGACY, Facts, Looked, OwnKind

CUDA = 1  # PyTorch's number of that kind of device


class TorchKind(OwnKind):
    """Of PyTorch its compiler's ways are used: they take a third of the time of `torch.empty`."""

    gradients = True

    def __init__(self, index: int) -> None:
        import torch

        self.torch, self.index, self.float32 = torch, index, torch.float32
        self.tell = telling(torch.Tensor)
        own: Any = torch._C
        guards = getattr(getattr(own, "_dynamo", None), "guards", None)
        self.new = getattr(guards, "_empty_strided_cuda", self._new)
        # As PyTorch's own compiler asks: torch.cuda.current_stream makes an object first. What is
        # built for the host alone has nothing of these.
        if hasattr(own, "_cuda_getDevice"):
            self.device, self.now, self.work_on = (
                own._cuda_getDevice, own._cuda_getCurrentStream, own._cuda_setStream
            )  # fmt: skip
            self.current_stream: Callable[[], int] = partial(own._cuda_getCurrentRawStream, index)

    def _new(self, shape: Shape, strides: Shape, dtype: Any) -> Any:
        """Of versions whose compiler has no way of its own."""
        return self.torch.empty_strided(shape, strides, dtype=dtype, device="cuda")

    def look(self, array: Any) -> tuple[int, Facts]:
        return array.data_ptr(), (
            array.shape, array.dtype, array.is_contiguous(), array.get_device(),
            array.requires_grad,
        )  # fmt: skip

    def read(self, facts: Facts) -> Looked:
        shape, dtype, contiguous, gpu, gradient = facts
        if gradient:
            raise TilewrightError(
                "a tensor requires a gradient, and none is computed here: give x.detach()"
            )
        return Looked(tuple(shape), str(dtype).removeprefix("torch."), contiguous, gpu)

    def empty(self, shape: Shape, stream: int | None) -> tuple[Any, int]:
        made = self.on(stream, self.maker(shape))
        return made, made.data_ptr()

    def on(self, stream: int | None, work: Callable[[], Any]) -> Any:
        if self.device() != self.index:
            with self.torch.cuda.device(self.index):
                return self.on(stream, work)
        if stream is None:
            return work()
        now = self.now(self.index)
        # A stream that is not PyTorch's is known to it by its handle; the default one is 0.
        self.work_on(0 if stream == LEGACY else stream, self.index, CUDA)
        try:
            return work()
        finally:
            self.work_on(*now)

    def maker(self, shape: Shape) -> Callable[[], Any]:
        return partial(self.new, shape, strides_of(shape), self.float32)

    def again(self, shape: Shape) -> Callable[[int | None], tuple[Any, int]]:
        return partial(self.empty, shape)  # memory has other streams' work noted: record_stream
