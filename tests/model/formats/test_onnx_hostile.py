"""Damaged and hostile ONNX files: one line, nothing read that is not the file's, bounded memory."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import tilewright
from tests.examples import examples
from tests.model.formats.graphs import agrees, model, saved
from tilewright.cli import main
from tilewright.errors import TilewrightError
from tilewright.model.formats import places

NODES = [("Conv", "x,w", "c"), ("Relu", "c", "r"), ("Flatten", "r", "f"), ("Gemm", "f,d", "y")]
CONSTANTS = {"w": np.ones((2, 3, 2, 2)), "d": np.ones((32, 4))}
PLACE = "data.bin"


def small():
    return model(NODES, ("n", 3, 5, 5), CONSTANTS)


def tensor(made, name="w"):
    return next(each for each in made.graph.initializer if each.name == name)


def refused(path, *words):
    """One line that names the file, and little memory on the way."""
    tracemalloc.start()
    try:
        with pytest.raises(TilewrightError) as error:
            tilewright.load(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    text = str(error.value)
    assert most < 50_000_000
    assert "\n" not in text
    assert all(word in text for word in words), text
    return text


def dims(made, *sizes):
    del tensor(made).dims[:]
    tensor(made).dims.extend(sizes)


def set_opset(made, version):
    del made.opset_import[:]
    if version is not None:
        made.opset_import.append(helper.make_opsetid("", version))


def set_input(made, *sizes, kind=TensorProto.FLOAT):
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", kind, list(sizes)))


def twice(made):
    made.graph.initializer.append(tensor(made))


def cycle(made):
    made.graph.node[0].input[0] = "r"


def same_output(made):
    made.graph.node[1].output[0] = "c"
    made.graph.node[2].input[0] = "c"


def nan(made):
    tensor(made).raw_data = np.full((2, 3, 2, 2), np.nan, np.float32).tobytes()


def many(made):
    for index in range(10_001):
        made.graph.node.append(helper.make_node("Relu", ["x"], [f"unread{index}"]))


def subgraph(made):
    inner = helper.make_graph([], "inner", [], [])
    made.graph.node.append(
        helper.make_node("If", ["x"], ["z"], "if", then_branch=inner, else_branch=inner)
    )


def doubled(made):
    """A constant that doubles with every node."""
    for index in range(60):
        name = "d" if index == 0 else f"double{index - 1}"
        made.graph.node.append(
            helper.make_node("Concat", [name, name], [f"double{index}"], f"twice{index}", axis=0)
        )


def claim(made):
    made.graph.node.append(helper.make_node("ConstantOfShape", ["huge"], ["z"], "claim"))
    made.graph.initializer.append(helper.make_tensor("huge", TensorProto.INT64, [2], [1 << 20] * 2))


def scaled_rows(made):
    """Each would be a matrix."""
    made.graph.ClearField("node")
    set_input(made, 1, 1500)
    for index in range(3):
        taken = "x" if index == 0 else f"r{index - 1}"
        made.graph.node.append(helper.make_node("Mul", [taken, "k"], [f"m{index}"], f"mul{index}"))
        made.graph.node.append(helper.make_node("Relu", [f"m{index}"], [f"r{index}"]))
    made.graph.initializer.append(helper.make_tensor("k", TensorProto.FLOAT, [], [2.0]))
    made.graph.output[0].name = "r2"


def biased(made):
    """And scaled, so that something is computed of it."""
    made.graph.node[0].input.append("k")
    made.graph.initializer.append(helper.make_tensor("k", TensorProto.FLOAT, [3], [1.0] * 3))
    made.graph.initializer.append(helper.make_tensor("two", TensorProto.FLOAT, [], [2.0]))
    made.graph.node.insert(1, helper.make_node("Mul", ["c", "two"], ["m"], "twice"))
    made.graph.node[2].input[0] = "m"


def between(made, operator, **settings):
    """One more node, before the second, as older opsets have it."""
    set_opset(made, 8)
    made.graph.node.insert(
        1, helper.make_node(operator, ["c"], ["b"], f"n0_{operator}", **settings)
    )
    made.graph.node[2].input[0] = "b"


def transposed(made, padding):
    made.graph.node[0].op_type = "ConvTranspose"
    made.graph.node[0].attribute.append(helper.make_attribute("auto_pad", padding))


HOSTILE = {
    "3 GB are claimed": (lambda made: dims(made, 3, 1 << 28), "96 bytes of the 3,221,225,472"),
    "100 MB are claimed": (lambda made: dims(made, 5000, 5000), "96 bytes of the 100,000,000"),
    "less is claimed": (lambda made: dims(made, 1), "96 bytes of the 4 it claims"),
    "a negative size": (lambda made: dims(made, -2, 3, 2, 2), "'w' has a negative size"),
    "a size of 0": (lambda made: dims(made, 0, 3, 2, 2), "'w' has 96 bytes of the 0"),
    "an unknown type": (lambda made: setattr(tensor(made), "data_type", 99), "holds no type"),
    "no opset": (lambda made: set_opset(made, None), "does not say which opset"),
    "an old opset": (lambda made: set_opset(made, 6), "is in opset 6; 7 to"),
    "a later opset": (lambda made: set_opset(made, 9999), "is in opset 9999"),
    "an input of 0": (lambda made: set_input(made, 1, 3, 0, 5), "axis 2 is 0"),
    "a negative input": (lambda made: set_input(made, 1, 3, 5, -5), "axis 3 is -5"),
    "a huge input": (lambda made: set_input(made, 1, 3, 10**6, 10**6), "are more than"),
    "a free width": (lambda made: set_input(made, 1, 3, 5, "w"), "axis 3 is free"),
    "a negative batch": (lambda made: set_input(made, -1, 3, 5, 5), "a batch of -1"),
    "whole numbers": (lambda made: set_input(made, 1, 3, 5, 5, kind=7), "neither uint8 nor"),
    "a line": (lambda made: set_input(made, 1, 3, 25), "3 axes; 4"),
    "rows for a convolution": (lambda made: set_input(made, 1, 75), "needs pictures"),
    "a name twice": (twice, "two initialisers are called 'w'"),
    "a cycle": (cycle, "n0_Conv (Conv): takes 'r', which no node before it makes"),
    "an output made twice": (same_output, "n1_Relu (Relu): makes 'c' a second time"),
    "a missing node": (lambda made: made.graph.node.pop(1), "takes 'r', which no node"),
    "no nodes": (lambda made: made.graph.ClearField("node"), "has no nodes"),
    "no output": (lambda made: made.graph.ClearField("output"), "has 0 outputs; a network"),
    "an output nobody makes": (lambda made: setattr(made.graph.output[0], "name", "z"),
                               "output 'z': no node makes it"),
    "NaN": (nan, "conv.weight[0, 0, 0, 0] is nan"),
    "too many nodes": (many, "10,005 nodes are more than"),
    "branches": (subgraph, "if (If): not an operator that is understood"),
    "a constant that grows": (doubled, "makes a constant that is too large"),
    "a constant that claims": (claim, "claim (ConstantOfShape): makes a constant that is too"),
    "a bias for others": (biased, "n0_Conv (Conv): a bias of 3 for 2 outputs"),
    "rows that would be matrices": (scaled_rows, "mul1: scales a row of 1,500 features"),
    "whole numbers as weights": (lambda made: tensor(made).CopyFrom(
        helper.make_tensor("w", TensorProto.INT8, [2, 3, 2, 2], [1] * 24)),
        "n0_Conv (Conv): its weight holds int8, not floating point"),
    "a type with a name": (lambda made: setattr(tensor(made), "data_type", 17),
                           "holds FLOAT8E4M3FN, which is not understood"),
    "far beyond": (lambda made: between(made, "Pad", pads=[0, 0, 1 << 40, 0, 0, 0, 0, 0]),
                   "are more than"),
    "far too large": (lambda made: between(made, "Upsample", scales=[1.0, 1.0, 1e12, 1.0]),
                      "resizes 4 to 3"),
    "rows from far away": (lambda made: between(made, "Slice", starts=[1 << 60], ends=[1 << 62],
                                                axes=[2]), "takes nothing of axis 2"),
    "padding of no kind": (lambda made: transposed(made, "SAME"), "auto_pad is 'SAME'"),
    "a number for padding": (lambda made: transposed(made, 3), "auto_pad is 3"),
    "an axis that is not there": (lambda made: between(made, "Slice", starts=[0], ends=[1],
                                                       axes=[7]), "names axis 7 of 4"),
    "flat from nowhere": (lambda made: made.graph.node[2].attribute.append(
        helper.make_attribute("axis", 5)), "n2_Flatten (Flatten): names axis 5 of 4"),
    "fewer axes in order": (lambda made: between(made, "Transpose", perm=[0, 1]),
                            "reorders axes as [0, 1]"),
    "joined along no axis": (lambda made: between(made, "Concat", axis=99), "names axis 99 of 4"),
    "functions": (lambda made: made.functions.add(), "functions of its own"),
    "another domain": (lambda made: setattr(made.graph.node[0], "domain", "com.microsoft"),
                       "(com.microsoft.Conv): not an operator"),
    "a name of two lines": (lambda made: setattr(made.graph.node[1], "op_type", "a\nb" * 200),
                            "not an operator"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_file_claims_is_checked(name, tmp_path):
    made, (change, words) = small(), HOSTILE[name]
    change(made)
    path = saved(made, tmp_path)
    assert len(refused(path, str(path), words)) < 2000


def test_rows_are_not_taken_without_end(tmp_path, monkeypatch):
    """Each of these nodes would hold a list of them."""
    monkeypatch.setattr(places, "MOST_TAKEN", 20_000)
    made = small()
    made.graph.ClearField("node")
    set_input(made, 1, 1, 3000, 1)
    set_opset(made, 8)
    for index in range(9):
        taken, settings = f"s{index - 1}" if index else "x", {"ends": [3000], "axes": [2]}
        node = helper.make_node("Slice", [taken], [f"s{index}"], starts=[1], **settings)
        made.graph.node.append(node)
    refused(saved(made, tmp_path), "node 3 (Slice): takes more than 20,000 rows and columns")


def beside(made, location, **entries):
    """The first weights as external data."""
    weights = tensor(made)
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, **entries}.items():
        weights.external_data.add(key=key, value=str(text))
    return made


def test_weights_beside_the_file(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(small(), path, save_as_external_data=True, location=PLACE, size_threshold=0)
    assert (tmp_path / PLACE).stat().st_size > 500
    network = agrees(path, np.ones((1, 3, 5, 5), np.float32))
    assert (network.parameters["conv.weight"] == 1).all()
    (tmp_path / PLACE).unlink()
    refused(path, "No such file")


@pytest.mark.parametrize(
    "location", ["../secret.bin", "/etc/hostname", "a/../../secret.bin", "", "link.bin", "linked/x"]
)
def test_data_outside_of_the_folder_is_not_read(location, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(1000))
    (tmp_path / "x").write_bytes(bytes(1000))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "linked").symlink_to(tmp_path)
    refused(saved(beside(small(), location), folder), "folder")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"offset": 950}, "claims 96 bytes"),
        ({"offset": -4}, "claims 96 bytes"),
        ({"length": 3_000_000_000}, "3,000,000,000"),
        ({"offset": "ten"}, "must be numbers"),
    ],
)
def test_external_data_that_is_not_there(entries, words, tmp_path):
    (tmp_path / PLACE).write_bytes(bytes(1000))
    refused(saved(beside(small(), PLACE, **entries), tmp_path), words)


def test_a_pipe_beside_the_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / PLACE)
    refused(saved(beside(small(), PLACE), tmp_path), "not a plain file")


def test_external_data_is_not_taken_over_and_over(tmp_path):
    made = beside(small(), PLACE)
    (tmp_path / PLACE).write_bytes(bytes(96))
    saved(made, tmp_path)
    for index in range(4):
        again = made.graph.initializer.add()
        again.CopyFrom(tensor(made))
        again.name = f"again{index}"
        again.external_data[0].value = f"{'./' * index}{PLACE}"
    refused(saved(made, tmp_path), "claim 480 bytes of external data, of which there are 96")


def test_huge_external_data_is_not_allocated(tmp_path):
    made = beside(small(), PLACE)
    dims(made, 1 << 15, 1 << 15)
    (tmp_path / PLACE).write_bytes(bytes(1000))
    refused(saved(made, tmp_path), "claim 4,294,967,296 bytes")


@pytest.mark.parametrize("text", [b"", b"\0" * 100, b"not a model", b"\x80" * 5000, b"{}"])
def test_no_models_at_all(text, tmp_path, capsys):
    path = tmp_path / "model.onnx"
    path.write_bytes(text)
    assert main(["show", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"tilewright: {path}: ") and error.count("\n") == 1


CONTENT = small().SerializeToString()


@examples(150)
@given(
    st.lists(
        st.tuples(st.integers(0, len(CONTENT) - 1), st.integers(0, 255)), min_size=1, max_size=8
    ),
    st.integers(0, 2 * len(CONTENT)),
)
def test_any_bytes_changed_give_a_network_or_an_error(tmp_path_factory, changes, length):
    content = bytearray(CONTENT)
    for place, byte in changes:
        content[place] = byte
    path = tmp_path_factory.mktemp("changed") / "model.onnx"
    path.write_bytes(bytes(content[:length]))
    try:
        network = tilewright.load(path)
    except TilewrightError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:
        assert all(np.isfinite(value).all() for value in network.parameters.values())


@pytest.mark.parametrize(("gamma", "mean"), [(np.inf, np.inf), (0.0, np.inf), (np.inf, 0.0)])
@pytest.mark.filterwarnings("error")
def test_numbers_that_cannot_be_folded_are_refused_without_a_warning(gamma, mean, tmp_path):
    nodes = [("Conv", "x,w", "c"), ("BatchNormalization", "c,g,b,m,v", "y")]
    norm = {"g": np.full(2, gamma), "b": np.full(2, np.inf), "m": np.full(2, mean), "v": np.ones(2)}
    made = model(nodes, ("n", 3, 5, 5), {"w": np.zeros((2, 3, 2, 2)), **norm})
    refused(saved(made, tmp_path), "must be finite")


def test_two_outputs_are_named_with_what_to_do(tmp_path):
    made = small()
    made.graph.output.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, None))
    words = ("has 2 outputs ('y', 'r')", "export the model with the output that you want alone")
    refused(saved(made, tmp_path), *words)


def test_channels_are_not_put_in_order_by_more_weights_than_memory_has(tmp_path):
    ends = {"from": np.array([1]), "to": np.array([99_999]), "along": np.array([1])}
    made = model([("Slice", "x,from,to,along", "y")], ("n", 100_000, 1, 1), ends)
    refused(saved(made, tmp_path), "puts channels in order by more than")
    many = {f"o{index}": "" for index in range(300)}
    nodes = [("Split", "x", ",".join(many), {"axis": 1}), ("Relu", "o0", "y")]
    refused(saved(model(nodes, ("n", 300, 1, 1), {}), tmp_path), "splits 300 channels")


@pytest.mark.parametrize(
    ("node", "constants", "words"),
    [
        (("Split", "x", "a,y"), {}, "splits axis 0"),
        (("Split", "x,s", "a,y", {"axis": 1}), {"s": np.array([-1, 4])}, "splits 3 channels"),
        (("Split", "x", "a,y", {"axis": 9}), {}, "do not belong to it"),
        (("Expand", "x,s", "y"), {"s": np.array([1, 3, 10**12, 5])}, "repeats"),
        (("Expand", "x,s", "y"), {"s": np.array([2])}, "repeats"),
        (("HardSigmoid", "x", "y", {"alpha": float("nan")}), {}, "slope must be a number"),
        (("PRelu", "x,s", "y"), {"s": np.zeros((0,))}, "no slopes"),
        (("PRelu", "x,s", "y"), {"s": np.full((3, 1, 1), [[[np.inf]], [[1]], [[2]]])}, "finite"),
        (("Pow", "x,s", "y"), {"s": np.array([2.0, 3.0])}, "several exponents"),
        (("Gelu", "x", "y", {"approximate": "sigmoid"}), {}, "approximate is"),
    ],
)
def test_settings_of_products_gates_and_channels_that_cannot_be(node, constants, words, tmp_path):
    refused(saved(model([node], ("n", 3, 5, 5), constants, opset=20), tmp_path), words)
