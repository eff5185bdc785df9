from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.model.formats.graphs import agrees, model, outputs, runtime, saved
from tilewright.errors import SeveralLines, TilewrightError
from tilewright.model.layers import Convolution, FullyConnected, HardSwish, ReLU6, SiLU

numbers = np.random.default_rng(1)


def drawn(*shape):
    return numbers.normal(0, 1, shape).astype(np.float32)


def norm(channels):
    """A batch normalisation's constants."""
    return {"g": drawn(channels), "b": drawn(channels), "m": drawn(channels),
            "v": numbers.uniform(0.5, 2, channels)}  # fmt: skip


W, BN = drawn(4, 3, 3, 3), ("BatchNormalization", "c,g,b,m,v", "y")
CONV = ("Conv", "x,w", "c")
FLAT = ("Flatten", "x", "f")
SIZES = ("Shape", "x", "s"), ("Gather", "s,zero", "n"), ("Unsqueeze", "n,axes", "u")
KERAS = [
    ("Transpose", "x", "t", {"perm": [0, 3, 1, 2]}), ("Conv", "t,w", "c"), ("Relu", "c", "r"),
    ("Transpose", "r", "back", {"perm": [0, 2, 3, 1]}), ("Reshape", "back,shape", "f"),
    ("MatMul", "f,d", "p"), ("Add", "p,e", "z"), ("Softmax", "z", "y"),
]  # fmt: skip
# Nodes, constants, and the layers that become of them.
GATE = [("GlobalAveragePool", "x", "p"), ("Sigmoid", "p", "g")]
# As exporters write it where there is no operator for it yet.
ERF = [("Div", "x,root", "a"), ("Erf", "a", "b"), ("Add", "b,one", "c")]
NEAR = [("Pow", "x,three", "a"), ("Mul", "a,cube", "b"), ("Add", "x,b", "c"),
        ("Mul", "c,slope", "d"), ("Tanh", "d", "e"), ("Add", "e,one", "g")]  # fmt: skip
NEAR_CONSTANTS = {"three": 3.0, "cube": 0.044715, "slope": 0.7978845608, "one": 1.0, "half": 0.5}
ERF_CONSTANTS = {"root": 2**0.5, "one": 1.0, "half": 0.5}
AROUND = np.array([0, 0, 1, 1, 0, 0, 1, 1])
CASES = {
    "same upper": ([("Conv", "x,w", "y", {"auto_pad": "SAME_UPPER", "strides": [2, 2]})],
                   {"w": W}, "conv"),
    "same lower": ([("Conv", "x,w", "y", {"auto_pad": "SAME_LOWER"})],
                   {"w": drawn(4, 3, 2, 4)}, "conv"),
    "valid": ([("Conv", "x,w", "y", {"auto_pad": "VALID"})], {"w": W}, "conv"),
    "asymmetric": ([("Conv", "x,w,k", "y", {"pads": [0, 2, 1, 0]})], {"w": W, "k": drawn(4)},
                   "conv"),
    "depthwise": ([("Conv", "x,w", "y", {"group": 3})], {"w": drawn(6, 1, 3, 3)}, "conv"),
    "norm": ([CONV, BN], {"w": W, **norm(4)}, "conv"),
    "norm after relu": ([CONV, ("Relu", "c", "r"), ("BatchNormalization", "r,g,b,m,v", "y")],
                        {"w": W, **norm(4)}, "conv1 relu conv2"),
    "constants": ([CONV, ("Mul", "c,a", "d"), ("Add", "d,k", "e"), ("Div", "e,two", "h"),
                   ("Sub", "one,h", "y")],
                  {"w": W, "a": drawn(1, 4, 1, 1), "k": drawn(4, 1, 1), "two": 2.0, "one": 1.0},
                  "conv"),
    "silu": ([("Sigmoid", "x", "s"), ("Mul", "x,s", "y")], {}, "silu"),
    "silu the other way": ([("Sigmoid", "x", "s"), ("Mul", "s,x", "y")], {}, "silu"),
    "hard swish": ([("HardSwish", "x", "y")], {}, "hard_swish"),
    "hard swish of a hard sigmoid": ([("HardSigmoid", "x", "s", {"alpha": 1 / 6}),
                                      ("Mul", "x,s", "y")], {}, "hard_swish"),
    "hard swish in pieces": ([("Add", "x,three", "a"), ("Clip", "a,zero,six", "c"),
                              ("Mul", "x,c", "m"), ("Div", "m,six", "y")],
                             {"three": 3.0, "zero": 0.0, "six": 6.0}, "hard_swish"),
    "hard swish, divided first": ([("Add", "x,three", "a"), ("Clip", "a,zero,six", "c"),
                                   ("Mul", "c,sixth", "m"), ("Mul", "x,m", "y")],
                                  {"three": 3.0, "zero": 0.0, "six": 6.0, "sixth": 1 / 6},
                                  "hard_swish"),
    "activations": ([("Relu", "x", "a"), ("LeakyRelu", "a", "b", {"alpha": 0.2}),
                     ("Sigmoid", "b", "c"), ("Tanh", "c", "d"), ("Clip", "d,zero,six", "y")],
                    {"zero": 0.0, "six": 6.0}, "relu leaky_relu sigmoid tanh relu6_1"),
    "pooling": ([("MaxPool", "x", "a", {"kernel_shape": [3, 2], "strides": [2, 1],
                                        "pads": [1, 0, 1, 1]}),
                 ("AveragePool", "a", "y", {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0],
                                            "count_include_pad": 1})], {}, "pool1 pool2"),
    "global": ([("GlobalAveragePool", "x", "y")], {}, "pool"),
    "mean": ([("ReduceMean", "x", "y", {"axes": [-1, 2], "keepdims": 0})], {}, "pool flatten"),
    "gemm": ([FLAT, ("Gemm", "f,d,e", "y", {"alpha": 0.5, "beta": 2.0})],
             {"d": drawn(210, 5), "e": drawn(1, 5)}, "fc"),
    "gemm, turned": ([FLAT, ("Gemm", "f,d", "y", {"transB": 1})], {"d": drawn(5, 210)}, "fc"),
    "matmul": ([FLAT, ("MatMul", "f,d", "p"), ("Add", "e,p", "z"), ("Softmax", "z", "y")],
               {"d": drawn(210, 5), "e": drawn(5)}, "fc softmax"),
    "norm of a row": ([FLAT, ("Gemm", "f,d", "p"), ("Relu", "p", "r"),
                       ("BatchNormalization", "r,g,b,m,v", "n"), ("Gemm", "n,h", "y")],
                      {"d": drawn(210, 5), "h": drawn(5, 2), **norm(5)}, "fc1 relu fc2"),
    "residual": ([("Relu", "x", "r"), ("Add", "x,r", "a"), ("Sum", "a,x,r", "b"),
                  ("Concat", "b,x", "y", {"axis": 1})], {}, "relu add1 add2 concat"),
    "twice the same": ([CONV, ("Add", "c,c", "a"), ("Relu", "a", "y")], {"w": W}, "conv relu"),
    "dropped": ([("Identity", "x", "a"), ("Dropout", "a", "b"), ("Cast", "b", "c", {"to": 1}),
                 ("Relu", "c", "y")], {}, "relu"),
    "a flattening computed": ([*SIZES, ("Concat", "u,rest", "to", {"axis": 0}),
                               ("Reshape", "x,to", "f"), ("Gemm", "f,d", "y")],
                              {"zero": np.int64(0), "axes": np.array([0]),
                               "rest": np.array([-1]), "d": drawn(210, 5)}, "fc"),
    "squeezed": ([("GlobalMaxPool", "x", "p"), ("Squeeze", "p,axes", "f"), ("Gemm", "f,d", "y")],
                 {"axes": np.array([2, 3]), "d": drawn(3, 5)}, "pool fc"),
    "there and back": ([("GlobalAveragePool", "x", "p"), ("Flatten", "p", "f"),
                        ("Reshape", "f,to", "r"), ("Conv", "r,w", "y")],
                       {"to": np.array([0, 3, 1, 1]), "w": drawn(2, 3, 1, 1)}, "pool conv"),
    "zeros around": ([("Pad", "x,pads", "p"), ("Conv", "p,w", "y", {"pads": [1, 1, 1, 1]})],
                     {"pads": np.array([0, 0, 1, 0, 0, 0, 0, 2]), "w": W}, "conv"),
    "zeros around a pooling": ([("Relu", "x", "r"), ("Pad", "r,pads", "p"),
                                ("MaxPool", "p", "m", {"kernel_shape": [3, 3]}),
                                ("Pad", "m,pads", "q"),
                                ("AveragePool", "q", "y", {"kernel_shape": [2, 2]})],
                               {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])}, "relu pool1 pool2"),
    "two values multiplied": ([("Relu", "x", "r"), ("Mul", "x,r", "y")], {}, "relu multiply"),
    "a square": ([("Mul", "x,x", "y")], {}, "multiply"),
    "a cube": ([("Pow", "x,three", "y")], {"three": 3.0}, "multiply1 multiply2"),
    "a number for each channel": ([*GATE, ("Mul", "g,x", "y")], {}, "pool sigmoid multiply"),
    "a number for each place": ([("Conv", "x,one", "g"), ("Mul", "x,g", "y")],
                                {"one": drawn(1, 3, 1, 1)}, "conv multiply"),
    "a row for each channel": ([*GATE, ("Flatten", "g", "f"), ("Gemm", "f,d", "h"),
                                ("Unsqueeze", "h,last", "u"), ("Mul", "x,u", "y")],
                               {"d": drawn(3, 3), "last": np.array([2, 3])},
                               "pool sigmoid fc multiply"),
    "repeated for each place": ([*GATE, ("Shape", "x", "s"), ("Expand", "g,s", "e"),
                                 ("Mul", "x,e", "y")], {}, "pool sigmoid multiply"),
    "channels last, gated": ([("Transpose", "x", "t", {"perm": [0, 2, 3, 1]}),
                              ("ReduceMean", "t", "m", {"axes": [1, 2], "keepdims": 0}),
                              ("Reshape", "m,to", "r"), ("MatMul", "r,d", "h"), ("Mul", "t,h", "k"),
                              ("Transpose", "k", "y", {"perm": [0, 3, 1, 2]})],
                             {"to": np.array([-1, 1, 1, 3]), "d": drawn(3, 3)},
                             "pool conv multiply"),
    "hard sigmoid": ([("HardSigmoid", "x", "a"), ("HardSigmoid", "a", "y", {"alpha": 1 / 6})], {},
                     "hard_sigmoid1 hard_sigmoid2"),
    "other bounds": ([("Clip", "x,a,b", "c"), ("Clip", "c,zero,one", "y")],
                     {"a": -0.7, "b": 1.5, "zero": 0.0, "one": 1.0},
                     "hard_sigmoid1 conv hard_sigmoid2"),
    "one bound": ([("Max", "x,a", "c"), ("Min", "c,b", "y")], {"a": -0.7, "b": 1.5},
                  "conv1 relu1 conv2 relu2 conv3"),
    "gelu in pieces": ([*ERF, ("Mul", "x,c", "d"), ("Mul", "d,half", "y")], ERF_CONSTANTS, "gelu"),
    "gelu of a half": ([*ERF, ("Mul", "x,half", "d"), ("Mul", "d,c", "y")], ERF_CONSTANTS, "gelu"),
    "gelu by tanh": ([*NEAR, ("Mul", "x,g", "h"), ("Mul", "h,half", "y")], NEAR_CONSTANTS,
                     "gelu_tanh"),
    "gelu by tanh of a half": ([*NEAR, ("Mul", "x,half", "h"), ("Mul", "h,g", "y")],
                               NEAR_CONSTANTS, "gelu_tanh"),
    "mish in pieces": ([("Softplus", "x", "a"), ("Tanh", "a", "b"), ("Mul", "x,b", "y")], {},
                       "mish"),
    "selu of what is negated": ([("Neg", "x", "a"), ("Selu", "a", "y")], {}, "conv1 elu conv2"),
    "nearly a gelu": ([("Mul", "x,half", "a"), ("Tanh", "a", "b"), ("Add", "b,one", "c"),
                       ("Mul", "x,c", "y")], ERF_CONSTANTS, "conv1 tanh conv2 multiply"),
    "channels split": ([("Split", "x,sizes", "a,b", {"axis": 1}), ("Conv", "b,w", "c"),
                        ("Concat", "c,a", "y", {"axis": 1})],
                       {"sizes": np.array([1, 2]), "w": drawn(2, 2, 1, 1)},
                       "conv1 conv2 conv3 concat"),
    "channels sliced": ([("Slice", "x,from,to,along,step", "y")],
                        {"from": np.array([-3]), "to": np.array([2**62]), "along": np.array([1]),
                         "step": np.array([2])}, "conv"),
    "channels shuffled": ([("Conv", "x,w", "c"), ("Reshape", "c,five", "r"),
                           ("Transpose", "r", "t", {"perm": [0, 2, 1, 3, 4]}),
                           ("Reshape", "t,four", "s"), ("Split", "s,sizes", "a,y", {"axis": 1}),
                           ("Relu", "a", "unread")],
                          {"w": drawn(6, 3, 1, 1), "five": np.array([0, 2, 3, 7, 10]),
                           "four": np.array([0, 6, 7, 10]), "sizes": np.array([2, 4])},
                          "conv1 conv2"),
    "slopes that differ": ([("PRelu", "x,slopes", "y")], {"slopes": drawn(3, 1, 1)},
                           "relu conv1 conv2 add"),
    "two values subtracted": ([("Relu", "x", "r"), ("Sub", "x,r", "y")], {}, "relu conv add"),
    "zeros kept": ([("Pad", "x,p", "y")], {"p": AROUND}, "conv"),
    "a crop, and every other row": ([("Slice", "x,from,to,along,step", "y")],
                                    {"from": np.array([-2, 3]), "to": np.array([-99, -1]),
                                     "along": np.array([2, 3]), "step": np.array([-2, 1])}, "take"),
    "edges cut off by a padding": ([("Pad", "x,p", "y")],
                                   {"p": np.array([0, 0, -1, 2, 0, 0, 0, -3])}, "take conv"),
    "edges mirrored": ([("Pad", "x,p", "z", {"mode": "reflect"}), ("Conv", "z,w", "y")],
                       {"p": AROUND, "w": W}, "take conv"),
    "edges repeated": ([("Pad", "x,p", "z", {"mode": "edge"}),
                        ("AveragePool", "z", "y", {"kernel_shape": [3, 3]})],
                       {"p": AROUND}, "take pool"),
    "twice as large": ([("Resize", "x,,by", "z", {"mode": "nearest",
                                                  "coordinate_transformation_mode": "asymmetric",
                                                  "nearest_mode": "floor"}), ("Conv", "z,w", "y")],
                       {"by": np.array([1, 1, 2, 2], np.float32), "w": W}, "take conv"),
    "of other sizes": ([("Shape", "x", "s", {"end": 2}), ("Concat", "s,to", "all", {"axis": 0}),
                        ("Resize", "x,,,all", "y")], {"to": np.array([5, 23])}, "take"),
    "corners aligned": ([("Resize", "x,,by", "y",
                          {"coordinate_transformation_mode": "align_corners",
                           "nearest_mode": "ceil"})],
                        {"by": np.array([1, 1, 2.5, 0.7], np.float32)}, "take"),
    "hardly larger": ([("Resize", "x,,by", "a", {"mode": "nearest"}), ("Relu", "a", "y")],
                      {"by": np.array([1, 1, 1.1, 1.05], np.float32)}, "relu"),
    "hardly wider": ([("Resize", "x,,by", "y", {"mode": "nearest"})],
                     {"by": np.array([1, 1, 3.9, 1.05], np.float32)}, "take"),
    "rows gathered": ([("Gather", "x,rows", "a", {"axis": 2}),
                       ("Gather", "a,rows", "b", {"axis": 3}),
                       ("Gather", "b,one", "y", {"axis": 1})],
                      {"rows": np.array([0, 4, -1]), "one": np.array([2])}, "take conv"),
    "rows behind each other": ([("Slice", "x,from,to,along", "a"),
                                ("Concat", "a,x", "y", {"axis": 2})],
                               {"from": np.array([5]), "to": np.array([7]), "along": np.array([2])},
                               "take"),
    "softplus": ([("Softplus", "x", "y")], {}, "softplus"),
    "softplus of twice": ([("Mul", "x,two", "a"), ("Greater", "a,far", "g"), ("Exp", "a", "e"),
                           ("Add", "e,one", "p"), ("Log", "p", "l"), ("Div", "l,two", "s"),
                           ("Where", "g,x,s", "y")],
                          {"two": 2.0, "far": 20.0, "one": 1.0}, "conv1 softplus conv2"),
    "one of two values": ([("Mul", "x,tenth", "a"), ("Greater", "x,zero", "g"),
                           ("Where", "g,x,a", "y")], {"tenth": 0.1, "zero": 0.0}, "leaky_relu"),
    "the logarithm of a sigmoid": ([("Sigmoid", "x", "s"), ("Log", "s", "y")], {},
                                   "conv1 softplus conv2"),
    "celu": ([("Celu", "x", "y", {"alpha": 0.7})], {}, "conv1 elu conv2"),
    "absolute": ([("Abs", "x", "y")], {}, "conv relu1 relu2 add"),
    "one axis": ([("ReduceMean", "x", "a", {"axes": [3]}), ("ReduceMax", "a", "y", {"axes": [2]})],
                 {}, "pool1 pool2"),
    "the channels' mean": ([("ReduceMean", "x", "y", {"axes": [1]})], {}, "conv"),
    "a sum": ([("ReduceSum", "x,both", "y", {"keepdims": 0})], {"both": np.array([2, 3])},
              "pool conv flatten"),
    "places as one axis": ([("Reshape", "x,to", "f"), ("Relu", "f", "r"),
                            ("ReduceMean", "r", "y", {"axes": [2], "keepdims": 0})],
                           {"to": np.array([0, 3, -1])}, "relu pool flatten"),
    "one axis after the other": ([("ReduceSum", "x,last", "a", {"keepdims": 0}),
                                  ("ReduceMean", "a", "y", {"axes": [2], "keepdims": 0})],
                                 {"last": np.array([3])}, "pool1 conv pool2 flatten"),
    "transposed": ([("ConvTranspose", "x,w,k", "y", {"strides": [2, 3], "pads": [1, 0, 2, 1],
                                                     "output_padding": [1, 2], "group": 3})],
                   {"w": drawn(3, 2, 3, 4), "k": drawn(6)}, "conv1 take conv2"),
    "transposed, of a shape": ([("ConvTranspose", "x,w", "y", {"strides": [2, 2],
                                                               "output_shape": [13, 21]})],
                               {"w": drawn(3, 2, 3, 3)}, "conv1 take conv2"),
    "transposed to the same": ([("ConvTranspose", "x,w", "y", {"strides": [1, 2],
                                                               "auto_pad": "SAME_UPPER"})],
                               {"w": drawn(3, 2, 2, 3)}, "conv1 take conv2"),
    "transposed and cut": ([("ConvTranspose", "x,w", "y", {"pads": [3, 1, 3, 1],
                                                           "dilations": [1, 2]})],
                           {"w": drawn(3, 2, 3, 3)}, "take conv"),
    "weights that are normalised": ([("ReduceL2", "w", "n", {"axes": [1, 2, 3]}),
                                     ("ReduceMean", "w", "m", {"axes": [1, 2, 3]}),
                                     ("Sub", "w,m", "s"), ("Div", "s,n", "u"),
                                     ("Conv", "x,u", "y")], {"w": W}, "conv"),
    "a row scaled": ([FLAT, ("Relu", "f", "r"), ("Mul", "r,k", "y")], {"k": 1 + drawn(210)},
                     "flatten relu fc"),
    "a pixel's softmax": ([("GlobalAveragePool", "x", "p"), ("Softmax", "p", "s", {"axis": 1}),
                           ("Flatten", "s", "y")], {}, "pool flatten softmax"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", ["n", 2])
def test_a_graph_computes_what_onnx_runtime_does(name, batch, tmp_path):
    nodes, constants, layers = CASES[name]
    path = saved(model(nodes, (batch, 3, 7, 10), constants), tmp_path)
    # Further below 0, ONNX Runtime's sigmoid has few digits left for a logarithm.
    network = agrees(path, np.clip(3 * drawn(2, 3, 7, 10), -8, 8))
    assert " ".join(stage.name for stage in network.stages[1:]) == layers


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12])
def test_older_opsets(opset, tmp_path):
    clip = ("Clip", "c", "d", {"min": 0.0, "max": 6.0}) if opset < 11 else ("Clip", "c,lo,hi", "d")
    nodes = [
        CONV, clip, ("Pad", "d", "e", {"pads": [0, 0, 1, 1, 0, 0, 1, 1]}),
        ("AveragePool", "e", "g", {"kernel_shape": [2, 2]}),
        ("ReduceMean", "g", "h", {"axes": [2, 3]}), ("Squeeze", "h", "i", {"axes": [2, 3]}),
        ("Softmax", "i", "y"),
    ]  # fmt: skip
    constants = {"w": W, "lo": 0.0, "hi": 6.0}
    if opset >= 11:
        nodes[2] = ("Pad", "d,pads", "e")
        constants["pads"] = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    path = saved(model(nodes, ("n", 3, 7, 10), constants, opset=opset), tmp_path)
    network = agrees(path, drawn(2, 3, 7, 10))
    assert any(isinstance(layer, ReLU6) for layer in network.layers)


@pytest.mark.parametrize("opset", [8, 9, 10])
def test_older_ways_to_become_larger(opset, tmp_path):
    by = np.array([1, 1, 2, 3], np.float32)
    name = "Resize" if opset == 10 else "Upsample"
    nodes = [(name, "x", "y", {"scales": by.tolist()}) if opset < 9 else (name, "x,by", "y")]
    path = saved(model(nodes, ("n", 3, 7, 10), {"by": by}, opset=opset), tmp_path)
    network = agrees(path, drawn(2, 3, 7, 10))
    assert network.output_shape == (3, 14, 30)


def test_weights_of_brief_floating_point(tmp_path):
    """Inside, and beside the file."""
    made = model([("Cast", "x", "a", {"to": 1}), ("Conv", "a,w", "y")], ("n", 3, 7, 10), {"w": W})
    brief = helper.make_tensor("w", TensorProto.BFLOAT16, W.shape, W.ravel())
    made.graph.initializer[0].CopyFrom(brief)
    for each in (made.graph.node[0].attribute[0], made.graph.input[0].type.tensor_type):
        setattr(each, "i" if hasattr(each, "i") else "elem_type", TensorProto.BFLOAT16)
    inside = tilewright.load(saved(made, tmp_path)).parameters["conv.weight"]
    np.testing.assert_allclose(inside, W, rtol=2**-8)
    assert not (inside.view(np.uint32) & 0xFFFF).any()
    path = tmp_path / "beside.onnx"
    made.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(numpy_helper.to_array(made.graph.initializer[0]), "w")
    )
    onnx.save(made, path, save_as_external_data=True, location="data", size_threshold=0)
    np.testing.assert_array_equal(tilewright.load(path).parameters["conv.weight"], inside)


def test_channels_last_cropped_and_larger(tmp_path):
    """As Keras's Cropping2D and UpSampling2D come."""
    nodes = [("Slice", "x,from,to,along", "c"), ("Resize", "c,,by", "r", {"nearest_mode": "floor"}),
             ("Transpose", "r", "t", {"perm": [0, 3, 1, 2]}), ("Conv", "t,w", "y")]  # fmt: skip
    constants = {"from": np.array([1, 2]), "to": np.array([6, 9]), "along": np.array([1, 2]),
                 "by": np.array([1, 2, 3, 1], np.float32), "w": W}  # fmt: skip
    path = saved(model(nodes, ("n", 7, 10, 3), constants), tmp_path)
    x = drawn(2, 7, 10, 3)
    network = agrees(path, x, np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    assert [stage.name for stage in network.stages[1:]] == ["take", "conv"]


def test_channels_last_as_keras_has_them(tmp_path):
    constants = {"w": W, "shape": np.array([-1, 160]), "d": drawn(160, 6), "e": drawn(6)}
    path = saved(model(KERAS, ("n", 7, 10, 3), constants), tmp_path)
    x = drawn(2, 7, 10, 3)
    network = agrees(path, x, np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    assert network.input.shape == (3, 7, 10)
    assert [stage.name for stage in network.stages[1:]] == ["conv", "relu", "fc", "softmax"]


def test_channels_last_to_the_end(tmp_path):
    """Of a file that takes them so, the network gives them as it takes them."""
    ends = ({"perm": [0, 3, 1, 2]}, {"perm": [0, 2, 3, 1]})
    nodes = [
        ("Transpose", "x", "t", ends[0]),
        ("Conv", "t,w", "c"),
        ("Transpose", "c", "y", ends[1]),
    ]
    path = saved(model(nodes, ("n", 7, 10, 3), {"w": W}), tmp_path)
    x, network = drawn(2, 7, 10, 3), tilewright.load(path)
    found = outputs(network, np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    np.testing.assert_allclose(found.transpose(0, 2, 3, 1), runtime(path, x), rtol=1e-4, atol=1e-5)
    assert network.notes["output"] == "pictures of channel, y, x, where the file has channels last"


def test_remainders_of_sizes(tmp_path):
    """As Keras computes what to cut off of a transposed convolution."""
    nodes = [("Shape", "x", "s"), ("Gather", "s,last", "width"), ("Mod", "width,four", "rest"),
             ("Slice", "x,rest,end,along", "y")]  # fmt: skip
    constants = {"last": np.array([3]), "four": np.array([4]), "end": np.array([9]),
                 "along": np.array([3])}  # fmt: skip
    network = agrees(saved(model(nodes, ("n", 3, 7, 10), constants), tmp_path), drawn(2, 3, 7, 10))
    assert network.output_shape == (3, 7, 7)
    constants["four"] = np.array([0])
    with pytest.raises(TilewrightError, match=r"n2_Mod \(Mod\): a remainder of other than whole"):
        tilewright.load(saved(model(nodes, ("n", 3, 7, 10), constants), tmp_path))


@pytest.mark.parametrize("last", [False, True])
def test_normalisation_of_pixels_is_the_inputs(last, tmp_path):
    """What a graph does to bytes at its start is no layer."""
    ends = (1, 1, 1, 3) if last else (1, 3, 1, 1)
    nodes = [("Cast", "x", "a", {"to": 1}), ("Div", "a,d", "b"), ("Sub", "b,m", "c"),
             ("Div", "c,s", "e")]  # fmt: skip
    nodes += [("Transpose", "e", "t", {"perm": [0, 3, 1, 2]})] if last else [("Identity", "e", "t")]
    nodes += [("Conv", "t,w", "y")]
    constants = {"d": 255.0, "m": drawn(*ends), "s": np.abs(drawn(*ends)) + 0.5, "w": W}
    shape = (7, 10, 3) if last else (3, 7, 10)
    path = saved(model(nodes, ("n", *shape), constants, kind=TensorProto.UINT8), tmp_path)
    pixels = numbers.integers(0, 256, (2, *shape), np.uint8)
    ours = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)) if last else pixels
    network = agrees(path, pixels, ours)
    assert len(network.layers) == 1 and len(network.input.scale) == 3
    assert "input" not in network.notes


def test_floating_point_enters_as_a_255th_and_says_so(tmp_path):
    """What is done to it then is a layer: numbers given instead of pixels must see it, too."""
    path = saved(model([("Sub", "x,m", "a"), ("Conv", "a,w", "y")], (2, 3, 7, 10),
                       {"w": W, "m": 0.5}), tmp_path)  # fmt: skip
    network = agrees(path, drawn(2, 3, 7, 10))
    assert network.input.scale == 1 / 255 and network.input.shift == 0
    assert len(network.layers) == 2
    assert "value / 255" in network.notes["input"]


def test_what_was_folded_is_noted(tmp_path):
    nodes = [CONV, ("BatchNormalization", "c,bn1.weight,b,m,v", "d"), ("Relu", "d", "r"),
             ("BatchNormalization", "r,g,b,m,v", "y")]  # fmt: skip
    constants = {"w": W, **norm(4)}
    constants["bn1.weight"] = constants["g"]
    network = agrees(saved(model(nodes, ("n", 3, 7, 10), constants), tmp_path), drawn(2, 3, 7, 10))
    said = "bn1, n3_BatchNormalization (into a convolution of its own)"
    assert network.notes["folded"] == said


def test_a_bias_added_behind_keeps_the_bits_of_the_weights(tmp_path):
    nodes = [FLAT, ("MatMul", "f,d", "p"), ("Add", "p,e", "y")]
    constants = {"d": drawn(210, 5), "e": drawn(5)}
    network = tilewright.load(saved(model(nodes, ("n", 3, 7, 10), constants), tmp_path))
    np.testing.assert_array_equal(network.parameters["fc.weight"], constants["d"].T)
    np.testing.assert_array_equal(network.parameters["fc.bias"], constants["e"])
    assert network.layers == (FullyConnected(5),)


def test_an_output_that_others_read_is_not_folded_away(tmp_path):
    nodes = [CONV, ("BatchNormalization", "c,g,b,m,v", "n"), ("Add", "c,n", "y")]
    path = saved(model(nodes, ("n", 3, 7, 10), {"w": W, **norm(4)}), tmp_path)
    network = agrees(path, drawn(2, 3, 7, 10))
    assert sum(isinstance(layer, Convolution) for layer in network.layers) == 2


def test_the_last_logarithm_is_left_out_and_that_is_said(tmp_path):
    nodes = [FLAT, ("LogSoftmax", "f", "y")]
    path = saved(model(nodes, ("n", 3, 7, 10)), tmp_path)
    network = tilewright.load(path)
    assert "n1_LogSoftmax" in network.notes["output"]
    x = drawn(2, 3, 7, 10)
    np.testing.assert_allclose(np.log(outputs(network, x)), runtime(path, x), atol=1e-4)


def test_everything_that_is_not_understood_is_named_at_once(tmp_path):
    nodes = [
        ("Relu", "x", "a"), ("Sinh", "a", "b"), ("Conv", "b,w", "c"), ("Einsum", "c", "d"),
        ("MaxPool", "a", "e", {"kernel_shape": [2, 2], "dilations": [2, 2]}), ("Sinh", "d", "y"),
    ]  # fmt: skip
    path = saved(model(nodes, ("n", 3, 7, 10), {"w": W}), tmp_path)
    with pytest.raises(SeveralLines) as error:
        tilewright.load(path)
    lines = error.value.report.splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "n1_Sinh (Sinh)", "n3_Einsum (Einsum)", "n4_MaxPool (MaxPool)", "n5_Sinh (Sinh)",
    ]  # fmt: skip
    assert "dilated" in lines[3]


REFUSED = {
    "two axes multiplied": ([*GATE, ("ReduceMean", "x", "q", {"axes": [2], "keepdims": 0}),
                             ("Mul", "q,g", "y")], {}, "multiplies 3x10 by 3x1x1"),
    "a product in another order": ([("GlobalAveragePool", "x", "p"),
                                    ("Transpose", "p", "t", {"perm": [0, 2, 3, 1]}),
                                    ("Mul", "x,t", "y")], {}, "in another order"),
    "a row times a picture": ([("GlobalAveragePool", "x", "p"), ("Flatten", "p", "f"),
                               ("Mul", "x,f", "y")], {}, "in another order"),
    "repeated values": ([*GATE, ("Expand", "g,to", "e"), ("Add", "x,e", "y")],
                        {"to": np.array([1, 3, 7, 10])}, "were repeated"),
    "repeated values kept": ([*GATE, ("Expand", "g,to", "y")], {"to": np.array([1, 3, 7, 10])},
                             "values that were repeated"),
    "an error function alone": ([("Erf", "x", "y")], {}, "(erf)"),
    "another power": ([("Pow", "x,p", "y")], {"p": 2.5}, "power of 2.5"),
    "rows split": ([("Split", "x,sizes", "a,y", {"axis": 2})], {"sizes": np.array([3, 4])},
                   "splits axis 2"),
    "more channels than there are": ([("Split", "x,sizes", "a,y", {"axis": 1})],
                                     {"sizes": np.array([3, 4])}, "splits 3 channels into [3, 4]"),
    "fewer parts than sizes": ([("Split", "x,sizes", "a,y", {"axis": 1})],
                               {"sizes": np.array([1, 1, 1])}, "2 parts of 3 sizes"),
    "no channels": ([("Slice", "x,from,to,along", "y")],
                    {"from": np.array([2]), "to": np.array([1]), "along": np.array([1])},
                    "takes nothing of axis 1: 2 to 1"),
    "channels in groups": ([("Reshape", "x,five", "r"), ("Relu", "r", "y")],
                           {"five": np.array([0, 3, 1, 7, 10])}, "channels in groups"),
    "channels kept in groups": ([("Reshape", "x,five", "y")],
                                {"five": np.array([0, 3, 1, 7, 10])}, "channels in groups"),
    "shapes that differ": ([("GlobalAveragePool", "x", "p"), ("Add", "x,p", "y")], {},
                           "shapes differ"),
    "a constant of every place": ([("Add", "x,k", "y")], {"k": drawn(1, 3, 7, 10)},
                                  "differs within a channel"),
    "another clip": ([("Clip", "x,a,b", "y")], {"a": -1.0, "b": 1e4}, "clips to -1 and 10000"),
    "no clip": ([("Clip", "x", "y")], {}, "clips to -inf and inf"),
    "a clip that is empty": ([("Clip", "x,a,b", "y")], {"a": 2.0, "b": 1.0}, "clips to 2 and 1"),
    "images mixed": ([("Reshape", "x,s", "y")], {"s": np.array([-1, 7])}, "mixes images"),
    "another shape": ([("Reshape", "x,s", "y")], {"s": np.array([0, 7, 3, 10])}, "reshapes 3x7x10"),
    "another order": ([("Transpose", "x", "y", {"perm": [0, 1, 3, 2]})], {}, "reorders axes"),
    "another level around": ([("Pad", "x,p,half", "y")], {"p": AROUND, "half": 0.5},
                             "pads with 0.5"),
    "minus infinity kept": ([("Pad", "x,p,low", "y")], {"p": AROUND, "low": np.float32(-np.inf)},
                            "before no maximum"),
    "mirrored too far": ([("Pad", "x,p", "y", {"mode": "reflect"})],
                         {"p": np.array([0, 0, 7, 0, 0, 0, 0, 0])}, "pads 7 by 7 of its own"),
    "smooth": ([("Resize", "x,,by", "y", {"mode": "linear"})],
               {"by": np.array([1, 1, 2, 2], np.float32)}, "resizes by mode 'linear'"),
    "fewer images": ([("Slice", "x,from,to", "y")], {"from": np.array([1]), "to": np.array([2])},
                     "takes some of the images"),
    "a row that is not there": ([("Gather", "x,rows", "y", {"axis": 2})], {"rows": np.array([7])},
                                "places that are not there"),
    "places kept as one axis": ([("Reshape", "x,to", "y")], {"to": np.array([0, 3, -1])},
                                "rows are one behind the other"),
    "places as one axis, and a product": ([("Reshape", "x,to", "f"), ("MatMul", "f,d", "y")],
                                          {"to": np.array([0, 3, -1]), "d": drawn(70, 4)},
                                          "do not fit 3x70"),
    "transposed far apart": ([("ConvTranspose", "x,w", "y", {"strides": [1 << 18, 1]})],
                             {"w": drawn(3, 2, 3, 3)}, "strides [262144, 1]"),
    "transposed beyond its windows": ([("ConvTranspose", "x,w", "y", {"strides": [4, 4],
                                                                      "auto_pad": "SAME_UPPER"})],
                                      {"w": drawn(3, 2, 3, 3)}, "do not reach as far as 28x40"),
    "neither yes nor no": ([("MaxPool", "x", "y", {"kernel_shape": [2, 2], "ceil_mode": 2})], {},
                           "ceil_mode is 2"),
    "an exponential": ([("Exp", "x", "y")], {}, "(exp)"),
    "a logarithm": ([("Log", "x", "y")], {}, "a logarithm"),
    "a comparison": ([("Greater", "x,z", "y")], {"z": 0.0}, "(comparison)"),
    "a choice": ([("Greater", "x,z", "g"), ("Tanh", "x", "t"), ("Where", "g,x,t", "y")], {"z": 0.0},
                 "chooses between values"),
    "training": ([("BatchNormalization", "x,g,b,m,v", "y", {"training_mode": 1})], norm(3),
                 "training mode"),
    "channels kept last": ([("Transpose", "x", "y", {"perm": [0, 2, 3, 1]})], {}, "channels last"),
    "weights that are computed": ([("Relu", "x", "r"), ("Conv", "x,r", "y")], {}, "constant"),
    "a picture's softmax": ([("Softmax", "x", "y", {"axis": 1})], {}, "softmax along axis 1"),
    "no layers": ([("Identity", "x", "y")], {}, "no layers"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_said(name, tmp_path):
    nodes, constants, words = REFUSED[name]
    path = saved(model(nodes, ("n", 3, 7, 10), constants, opset=15), tmp_path)
    with pytest.raises(TilewrightError) as error:
        tilewright.load(path)
    assert words in str(error.value) and str(path) in str(error.value)


def test_patterns_leave_nothing_behind(tmp_path):
    """A sigmoid that somebody else reads, too, stays."""
    nodes = [("Sigmoid", "x", "s"), ("Mul", "x,s", "m"), ("Add", "m,s", "y")]
    network = agrees(saved(model(nodes, ("n", 3, 7, 10)), tmp_path), drawn(2, 3, 7, 10))
    assert [stage.name for stage in network.stages[1:]] == ["sigmoid", "silu", "add"]
    assert isinstance(network.layers[1], SiLU) and not isinstance(network.layers[1], HardSwish)
