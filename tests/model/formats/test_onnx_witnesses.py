"""The `onnx` package's own tests of operators: inputs and expected outputs that nobody here made.

A network takes a batch of pictures and one input, so a case is put into a graph around its node.
All inputs but the first are constants; a tensor without a batch is one image; rows come from
pictures of one pixel; the operands of an addition are picked from one picture by convolutions; a
constant along the last axis is one for each channel of a picture with channels last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from fnmatch import fnmatch
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.model.formats.graphs import outputs, saved
from tests.rungs.own.test_rung import needs_opencl
from tilewright.errors import TilewrightError
from tilewright.execute import program_of
from tilewright.rungs import choose
from tilewright.runtime.device import CPU, OPENCL

# One worker has them, and asks for the cases when they are tried: to make them takes a second.
pytestmark = pytest.mark.xdist_group("cases of ONNX")
MODULES = (
    "add", "averagepool", "batch_normalization", "clip", "concat", "conv", "div", "dropout", "elu",
    "flatten", "gelu", "gemm", "globalaveragepool", "globalmaxpool", "hardsigmoid", "hardswish",
    "identity", "leakyrelu", "logsoftmax", "matmul", "maxpool", "mish", "mul", "neg", "pad",
    "prelu", "reducemax", "reducemean", "relu", "reshape", "selu", "sigmoid", "softmax", "squeeze",
    "sub", "sum", "swish", "tanh", "transpose", "unsqueeze",
)  # fmt: skip
OUT = {
    "*int8*": "whole numbers", "*int16*": "whole numbers", "*int32*": "whole numbers",
    "*int64*": "whole numbers", "*_bool*": "truth values",
    "*pool_1d_*": "one dimension", "*pool_3d_*": "three dimensions",
    "*pool_2d_dilations": "dilated pooling", "test_maxpool_with_argmax_*": "indices",
    "*training*": "training", "test_dropout_default_mask*": "the mask",
    "test_clip_*expanded": "in pieces (Less, Where)", "test_clip_default_inbounds": "no bounds",
    "test_clip_min_greater_than_max": "no bounds", "test_clip_default_int8_*": "whole numbers",
    "test_concat_1d_*": "no batch", "test_concat_2d_*": "of rows",
    "test_concat_3d_axis_2": "width", "test_concat_3d_axis_negative_1": "width",
    "test_div": "a divisor for each place", "test_div_example": "a divisor for each place",
    "test_flatten_axis[023]": "images mixed", "test_flatten_negative_axis[124]": "images mixed",
    "test_gemm_transposeA": "images mixed", "test_gemm_all_attributes": "images mixed",
    "test_gemm_default_matrix_bias": "a bias for each image",
    "test_identity_sequence": "no tensor", "test_identity_opt": "no tensor",
    "test_leakyrelu*_expanded": "in pieces (Less, Where)",
    "test_elu*_expanded*": "in pieces (Less, Where)", "test_selu*_expanded*": "in pieces (Less)",
    "test_prelu*": "a slope for each place or column",
    "test_logsoftmax*_expanded*": "in pieces (Exp, Log)",
    "test_softmax*_expanded*": "in pieces (Exp)",
    "test_logsoftmax_*axis*": "not of a row", "test_softmax_*axis*": "not of a row",
    "test_matmul_[134]d*": "not of a row and a matrix", "test_matmul_bcast": "not of a row",
    "test_constant_pad*": "other values than zeros", "test_[erw]*_pad": "other values than zeros",
    "test_reduce_*": "one axis of three; not height and width",
    "test_reshape_[!r]*": "no flattening",
    "test_reshape_reordered*": "no flattening",
    "test_squeeze*": "no flattening", "test_unsqueeze*": "no flattening",
    "test_transpose_*": "three axes",
}  # fmt: skip
JOINS = {"Add", "Mul", "Sub", "Sum", "Concat"}
ROWS = {"Gemm", "MatMul", "Softmax", "LogSoftmax"}
# A kernel of every form on the GPU's side, too: each takes half a second to compile.
ON_GPU = (
    "test_conv_with_strides_and_asymmetric_padding", "test_averagepool_2d_precomputed_pads",
    "test_averagepool_2d_ceil", "test_maxpool_2d_precomputed_pads", "test_maxpool_2d_ceil",
    "test_globalaveragepool_precomputed", "test_batchnorm_example", "test_gemm_alpha",
    "test_softmax_large_number", "test_add", "test_concat_3d_axis_0", "test_relu",
    "test_leakyrelu", "test_sigmoid", "test_tanh", "test_hardswish", "test_swish", "test_mul",
    "test_gelu_default_2", "test_gelu_tanh_2", "test_hardsigmoid", "test_elu", "test_mish",
)  # fmt: skip


@cache
def cases() -> dict[str, Any]:
    from onnx.backend.test.case import node
    from onnx.reference.ops import op_pool_common

    pool = op_pool_common.pool

    def flat(padded, x_shape, *rest, **more):
        """Their pooling in three dimensions takes ten seconds, and is no use here."""
        return np.zeros(1) if len(x_shape) == 5 else pool(padded, x_shape, *rest, **more)

    op_pool_common.pool = flat
    try:
        for name in MODULES:
            import_module(f"onnx.backend.test.case.node.{name}")
    finally:
        op_pool_common.pool = pool
    return {each.name: each for each in node._NodeTestCases}


def out_of_scope(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in OUT)


def graph(nodes, x, constants, like):
    """The case's nodes and those around them, from `picture` to `outcome`."""
    tensors = [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()]
    made = helper.make_graph(
        nodes, "case", [helper.make_tensor_value_info("picture", TensorProto.FLOAT, list(x.shape))],
        [helper.make_tensor_value_info("outcome", TensorProto.FLOAT, None)], tensors,
    )  # fmt: skip
    return helper.make_model(made, opset_imports=like.opset_import, ir_version=like.ir_version)


def put(case):
    """A model and the pictures to give it."""
    inner, (given, _) = case.model.graph, case.data_sets[0]
    names, arrays = [each.name for each in inner.input], [np.asarray(each) for each in given]
    operator, x, make = inner.node[-1].op_type, np.asarray(given[0]), helper.make_node
    nodes, before, after = deepcopy(list(inner.node)), [], []
    constants = dict(zip(names[1:], arrays[1:], strict=True))
    result = inner.output[0].name
    if operator in JOINS and len(arrays) > 1 and arrays[0].shape == arrays[1].shape:
        axis = nodes[0].attribute[0].i % x.ndim if operator == "Concat" else 0
        if operator == "Concat" and (x.ndim != 3 or axis == 2):
            raise ValueError("no channels")
        parts = [_picture(each, images=axis == 1) for each in arrays]
        for attribute in nodes[0].attribute:
            attribute.i = 1  # channels are behind the batch now
        x, constants, channels = np.concatenate(parts, 1), {}, parts[0].shape[1]
        for index, name in enumerate(names):
            picked = np.eye(channels * len(names), dtype=np.float32)
            constants[f"pick{index}"] = picked[index * channels :][:channels, :, None, None]
            before.append(make("Conv", ["picture", f"pick{index}"], [name]))
        after = [make("Identity", [result], ["outcome"])]
    elif case.name.endswith("_bcast"):
        x = np.moveaxis(x, -1, 0)[None]
        before = [make("Transpose", ["picture"], names[:1], perm=[0, 2, 3, 1])]
        after = [make("Transpose", [result], ["outcome"], perm=[0, 3, 1, 2])]
    elif operator in ROWS:
        x = x[:, :, None, None]
        before, after = [make("Flatten", ["picture"], names[:1])], []
        nodes[-1].output[0] = "outcome"
    else:
        if case.name == "test_reshape_reduced_dims":
            x = x[:, :, :, None]
        elif operator.startswith("Reduce") and x.ndim != 4:
            raise ValueError("its axes would be others")
        elif x.ndim != 4:
            x = _picture(x, False)
        before = [make("Identity", ["picture"], names[:1])]
        # Some nodes do nothing, and a network needs a layer: windows of one pixel.
        one = make("MaxPool", [result], ["outcome"], kernel_shape=[1, 1])
        nothing = operator in ("Identity", "Dropout") or (len(arrays) == 1 and operator == "Sum")
        after = [one if nothing else make("Identity", [result], ["outcome"])]
    return graph([*before, *nodes, *after], x, constants, case.model), np.ascontiguousarray(x)


def _picture(x, images):
    """A tensor as one image, or as several that are one pixel high."""
    if images:
        return x[:, :, None, :]
    return x.reshape(1, *x.shape, *[1] * (3 - x.ndim))


def expected(case, shape):
    found = np.asarray(case.data_sets[0][1][0])
    if case.name.endswith("_bcast"):
        found = np.moveaxis(found, -1, 0)
    if case.model.graph.node[-1].op_type == "LogSoftmax":
        found = np.exp(found)  # the network gives probabilities
    return found.reshape(shape)


def close(name):
    """One case's outputs have four digits."""
    return {"rtol": 1e-3 if name.endswith("window_starts_on_pad") else 1e-5, "atol": 1e-6}


def in_scope() -> list[str]:
    return [name for name in cases() if not out_of_scope(name)]


def each(names: Iterable[str], check: Callable[[str, Path], None], folder: Path) -> None:
    """All of them, whatever is wrong with some; those are named."""
    wrong = []
    for name in names:
        (folder / name).mkdir()
        try:
            check(name, folder / name)
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_there_are_cases_of_every_kind():
    names = in_scope()
    operators = {cases()[name].model.graph.node[-1].op_type for name in names}
    assert len(names) >= 70 and len(operators) >= 25
    assert set(ON_GPU) <= set(names)


def test_the_cases_of_onnx(tmp_path):
    each(in_scope(), computed, tmp_path)


def computed(name, tmp_path):
    """The float64 truth, and NumPy's rung."""
    case = cases()[name]
    made, x = put(case)
    network = tilewright.load(saved(made, tmp_path))
    truth = outputs(network, x)
    np.testing.assert_allclose(truth, expected(case, truth.shape), **close(name))
    found = program_of(network, choose(CPU, "im2col"), CPU, len(x))(x)
    np.testing.assert_allclose(found, expected(case, found.shape), **close(name))


@needs_opencl
@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize("name", ON_GPU)
def test_a_case_of_onnx_on_a_gpu(name, tmp_path):
    case = cases()[name]
    made, x = put(case)
    network = tilewright.load(saved(made, tmp_path))
    found = program_of(network, choose(OPENCL, "direct"), OPENCL, len(x))(x)
    np.testing.assert_allclose(found, expected(case, found.shape), **close(name))


def refusable(name: str) -> bool:
    """Whether a case is out of scope, but could be put into a graph of floating point."""
    if not out_of_scope(name):
        return False
    try:
        return put(cases()[name])[1].dtype == np.float32
    except (TypeError, ValueError, AttributeError, IndexError):
        return False  # sequences, rows to join: not even that


def test_what_is_out_of_scope_is_refused(tmp_path):
    names = list(filter(refusable, cases()))
    assert len(names) > 100
    each(names, refused_or_right, tmp_path)


def refused_or_right(name, tmp_path):
    """Refused, or understood after all: no case may give wrong numbers silently."""
    case = cases()[name]
    made, x = put(case)
    try:
        network = tilewright.load(saved(made, tmp_path))
    except TilewrightError:
        return
    truth = outputs(network, x)
    np.testing.assert_allclose(truth, expected(case, truth.shape), **close(name))
