from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

import tilewright
from tests.model.formats.graphs import agrees, outputs
from tilewright.errors import TilewrightError
from tilewright.model.layers import Convolution

# One worker has them: what PyTorch needs to export and to train takes seconds to import.
pytestmark = pytest.mark.xdist_group("torch")


def randomised(module):
    """Statistics that a batch normalisation could have."""
    torch.manual_seed(0)
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d | nn.BatchNorm1d):
            each.running_mean.normal_()
            each.running_var.uniform_(0.5, 2)
            each.weight.data.uniform_(0.5, 2)
            each.bias.data.normal_()
    return module.eval()


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.conv = nn.Conv2d(3, 8, 3, padding="same", bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, (3, 2), stride=2, padding=1, groups=8)
        self.bn2 = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout()
        self.first = nn.Linear(16, 12)
        self.bn3 = nn.BatchNorm1d(12)
        self.second = nn.Linear(12, 5)
        self.register_buffer("mean", torch.tensor([0.1, 0.2, 0.3]).reshape(3, 1, 1))

    def forward(self, x):
        x = functional.hardswish(self.bn1(self.conv((x - self.mean) / 0.5)))
        x = functional.relu6(x + functional.silu(x))
        x = functional.leaky_relu(self.depthwise(functional.pad(x, (0, 1))), 0.2)
        x = torch.cat([x, functional.max_pool2d(self.bn2(x), 3, 1, 1)], 1)
        x = functional.avg_pool2d(x, 2, 2, ceil_mode=True, padding=1)
        x = torch.tanh(functional.adaptive_avg_pool2d(torch.sigmoid(x), 1))
        x = torch.relu(self.first(x.view(x.size(0), -1)))
        return functional.softmax(self.second(self.dropout(self.bn3(x))), -1)


X = torch.rand(3, 3, 10, 11, generator=torch.Generator().manual_seed(5))


def compare(network, module, x=X):
    with torch.no_grad():
        expected = module(x).numpy()
    np.testing.assert_allclose(outputs(network, x.numpy()), expected, rtol=1e-4, atol=1e-6)


def dynamic(module):
    return torch.export.export(module, (X,), dynamic_shapes=[{0: torch.export.Dim("images")}])


def test_a_module_becomes_a_network():
    module = randomised(Everything())
    network = tilewright.from_torch(module, X)
    compare(network, module)
    assert network.name == "Everything"
    folded = network.notes["folded"].split(", ")
    assert folded == ["bn1", "bn3", "bn2 (into a convolution of its own)"]
    assert not any(layer.type == "flatten" for layer in network.layers)


def test_a_module_in_training_is_taken_in_eval_mode_and_left_as_it_was():
    module = randomised(Everything()).train()
    network = tilewright.from_torch(module, X)
    assert module.training and module.bn1.training
    compare(network, module.eval())


@pytest.fixture(scope="module")
def exported():
    return dynamic(randomised(Everything()))


def test_exported_programs_with_a_free_batch_and_in_core_operators(exported):
    module = randomised(Everything())
    compare(tilewright.from_torch(exported), module)
    compare(tilewright.from_torch(exported.run_decompositions(), name="core"), module)


class Gates(nn.Module):
    """Squeeze-and-excitation as MobileNetV3 and as SENet write it, a gate for each place, GELU."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.stem, self.place = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 1, 1)
        self.squeeze, self.excite = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.first, self.second = nn.Linear(8, 4), nn.Linear(4, 8)
        self.last = nn.Linear(8, 5)

    def forward(self, x):
        x = functional.gelu(self.stem(x))
        gate = self.excite(functional.relu(self.squeeze(functional.adaptive_avg_pool2d(x, 1))))
        x = functional.hardsigmoid(gate) * x
        row = functional.gelu(self.first(x.mean((2, 3))), approximate="tanh")
        x = x * torch.sigmoid(self.second(row))[:, :, None, None].expand_as(x)
        x = functional.hardtanh(x * torch.sigmoid(self.place(x)) * x.square(), -0.5, 0.3)
        return self.last(x.mean((2, 3)))


def test_gates_and_products():
    module = Gates().eval()
    network = tilewright.from_torch(module, X)
    compare(network, module)
    types = [layer.type for layer in network.layers]
    assert types.count("multiply") == 5 and {"gelu", "gelu_tanh", "hard_sigmoid"} < {*types}
    program = dynamic(module)
    compare(tilewright.from_torch(program), module)
    again = tilewright.from_torch(program.run_decompositions())
    compare(again, module)
    assert sum(layer.type.startswith("gelu") for layer in again.layers) == 2


def test_exponential_activations():
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ELU(0.7), nn.Conv2d(4, 4, 3), nn.SELU(), nn.Conv2d(4, 2, 3),
        nn.Mish(), nn.Flatten(), nn.LazyLinear(3),
    )  # fmt: skip
    module(X)
    network = tilewright.from_torch(module.eval(), X)
    compare(network, module)
    types = [layer.type for layer in network.layers]
    assert types.count("elu") == 2 and types.count("mish") == 1


class Shuffled(nn.Module):
    """Channels in pieces and in another order, as ShuffleNet, GhostNet and Res2Net have them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.stem, self.slopes = nn.Conv2d(3, 12, 3), nn.PReLU(12)
        self.mixed, self.last = nn.Conv2d(6, 6, 1), nn.Linear(10, 4)
        self.slopes.weight.data.uniform_(-0.5, 0.5)

    def forward(self, x):
        x = self.slopes(self.stem(x))
        first, second = x.chunk(2, dim=1)
        x = torch.cat((first - self.mixed(second), second), 1)
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        x = functional.channel_shuffle(x, 3)[:, 1:11]
        a, b, c = torch.split(x, [2, 3, 5], 1)
        x = torch.cat((torch.add(c, torch.cat((a, b), 1), alpha=0.5), b, a), 1)
        return self.last(x.mean((2, 3)))


def test_channels_split_and_shuffled():
    module = Shuffled().eval()
    network = tilewright.from_torch(module, X)
    compare(network, module)
    program = dynamic(module)
    compare(tilewright.from_torch(program), module)
    module.slopes = nn.ReLU()  # a PReLU is no operator in there any more
    compare(tilewright.from_torch(dynamic(module).run_decompositions()), module)


@pytest.mark.parametrize(
    ("features", "picture"), [(64, (1, 8, 8)), (75, (3, 5, 5)), (7, (7, 1, 1))]
)
def test_rows_are_taken_as_pictures(features, picture):
    module = nn.Sequential(nn.Linear(features, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    rows = torch.rand(4, features)
    network = tilewright.from_torch(module, rows)
    assert network.input.shape == picture and f"rows of {features}" in network.notes["rows"]
    assert [stage.name for stage in network.stages[1:]] == ["fc1", "relu", "fc2"]
    with torch.no_grad():
        expected = module(rows).numpy()
    found = outputs(network, rows.numpy().reshape(-1, *picture))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


class Places(nn.Module):
    """Rows and columns taken in all ways, and activations that come in pieces when decomposed."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")
        self.second = nn.Conv2d(4, 6, 3, padding=1, padding_mode="replicate")
        self.last = nn.Linear(3 * 5 * 3, 4)

    def forward(self, x):
        x = functional.softplus(self.first(torch.flip(x, [3])[:, :, 1:-1, 2:]), beta=2)
        x = functional.celu(self.second(functional.interpolate(x, scale_factor=2)), 0.7)
        x = functional.mish(functional.glu(x, 1).abs())
        x = functional.adaptive_max_pool2d(functional.adaptive_avg_pool2d(x, (7, 11)), (5, 3))
        x = functional.selu(self.last(x.flatten(1)))
        return functional.elu(x, 0.3) * 3


def test_rows_and_columns_and_activations_in_pieces():
    module = Places().eval()
    compare(tilewright.from_torch(module, X), module)
    network = tilewright.from_torch(dynamic(module).run_decompositions())
    compare(network, module)
    kinds = {layer.type for layer in network.layers}
    assert kinds >= {"take", "softplus", "mish", "elu", "average_pool", "max_pool"}


class Decoder(nn.Module):
    """Weights that are normalised, convolutions that are transposed, places as one axis."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.first = weight_norm(nn.Conv2d(3, 4, 3))
        self.second = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.last = nn.Linear(6, 4)

    def forward(self, x):
        weight = self.second.weight
        scaled = (weight - weight.mean((0, 2), keepdim=True)) / weight.std((1, 3), keepdim=True)
        x = functional.conv_transpose2d(functional.relu(self.first(x)), scaled, stride=2)[:, :3]
        x = self.second(functional.pad(x, (0, 0, 0, 0, 0, 1)))
        return self.last(x.flatten(2).max(2)[0] + x.mean(3).mean(2))


def test_decoders_and_weights_that_are_computed():
    module = Decoder().eval()
    compare(tilewright.from_torch(module, X), module)
    compare(tilewright.from_torch(dynamic(module).run_decompositions()), module)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("factor", [2, 1.05, (0.7, 1.3), (3.3, 1.01), (2.05, 0.5)])
def test_nearest_neighbours(factor, mode):
    class Larger(nn.Module):
        def forward(self, x):
            return functional.relu(functional.interpolate(x, scale_factor=factor, mode=mode))

    module = Larger().eval()
    compare(tilewright.from_torch(module, X), module)


@pytest.mark.parametrize("wanted", [(3, 4), (7, 10), (9, 13), (1, 6)])
def test_windows_of_several_sizes(wanted):
    for kind in (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d):
        module = kind(wanted).eval()
        compare(tilewright.from_torch(module, X), module)


@pytest.mark.parametrize("kind", [nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d])
def test_more_windows_than_places(kind):
    """As VGG's have of a small picture: all windows of an axis may be the same one."""
    module = nn.Sequential(nn.AvgPool2d((10, 5)), kind((7, 7))).eval()
    compare(tilewright.from_torch(module, X), module)


@pytest.mark.parametrize(("wanted", "sizes"), [((7, 7), (100, 100)), ((3, 1), (40_001, 1))])
def test_windows_that_have_too_little_in_common(wanted, sizes):
    """The second would be 533,440,020 rows."""
    with pytest.raises(TilewrightError, match="too little in common"):
        tilewright.from_torch(nn.AdaptiveAvgPool2d(wanted), torch.zeros(1, 1, *sizes))


def test_zeros_before_a_maximum_count():
    """(ONNX Runtime 1.31 makes such zeros the padding of the maximum, which are none to it.)"""
    module = nn.Sequential(Padding({}), nn.MaxPool2d(2), Padding({})).eval()
    network = tilewright.from_torch(module, X - 0.5)
    assert [layer.type for layer in network.layers] == ["convolution", "max_pool", "convolution"]
    compare(network, module, X - 0.5)


@pytest.mark.parametrize("join", [torch.add, lambda *both: torch.cat(both, 1)], ids=["add", "cat"])
def test_zeros_around_what_is_put_together_with_the_input(join):
    class Joined(nn.Module):
        def forward(self, x):
            return functional.relu(join(x, functional.pad(x[:, :, 1:-1, 1:-1], (1, 1, 1, 1))))

    module = Joined().eval()
    compare(tilewright.from_torch(module, X - 0.5), module, X - 0.5)


@pytest.mark.parametrize("how", [{"value": -torch.inf}, {"mode": "replicate"}])
def test_padding_before_a_maximum(how):
    class Padded(nn.Module):
        def forward(self, x):
            padded = functional.pad(x, (0, 1, 2, 1), **how)
            return functional.max_pool2d(padded, 3, 2)

    module = Padded().eval()
    network = tilewright.from_torch(module, X - 0.5)
    assert [layer.type for layer in network.layers] == ["max_pool"]
    compare(network, module, X - 0.5)
    before_sums = nn.Sequential(Padding(how), nn.Conv2d(3, 2, 3))
    if "value" in how:
        with pytest.raises(TilewrightError, match=r"minus infinity around .* before no maximum"):
            tilewright.from_torch(before_sums, X)
    else:
        compare(tilewright.from_torch(before_sums, X), before_sums)


class Padding(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, x):
        return functional.pad(x, (1, 1, 1, 1), **self.how)


def test_how_pixels_enter():
    module = nn.Conv2d(3, 1, 1)
    network = tilewright.from_torch(module, X, scale=[1, 2, 3], shift=-0.5)
    assert network.input.scale == (1, 2, 3) and network.input.shift == -0.5
    assert "input" not in network.notes
    numpy = tilewright.from_torch(module, X, scale=np.float32(0.5), shift=np.array([1, 2, 3]))
    assert numpy.input.scale == 0.5 and numpy.input.shift == (1, 2, 3)
    for wrong in ("half", [[1.0]], {}):
        with pytest.raises(TilewrightError, match=r"scale is .*, not a number, nor one for each"):
            tilewright.from_torch(module, X, scale=wrong)
    usual = tilewright.from_torch(module, X)
    assert usual.input.scale == 1 / 255 and "value / 255" in usual.notes["input"]


def test_a_module_of_bytes_normalises_them_itself():
    class Bytes(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 3)

        def forward(self, x):
            return self.conv(x.float() / 255 - 0.5)

    pixels = torch.randint(0, 256, (2, 3, 5, 5), dtype=torch.uint8)
    module = Bytes().eval()
    network = tilewright.from_torch(module, pixels)
    assert len(network.layers) == 1 and network.input.shift == -0.5
    compare(network, module, pixels)


@pytest.fixture(scope="module")
def program(tmp_path_factory, exported):
    path = tmp_path_factory.mktemp("programs") / "program.pt2"
    torch.export.save(exported, path)
    return path


def test_a_pt2_file(program):
    network = tilewright.load(program)
    assert network.name == "program"
    compare(network, randomised(Everything()).eval())


def test_weights_with_channels_last_in_memory():
    layers = (nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    module = nn.Sequential(*layers).to(memory_format=torch.channels_last).eval()
    compare(tilewright.from_torch(module, X), module)
    decomposed = torch.export.export(module, (X,)).run_decompositions()
    assert any("as_strided" in str(node.target) for node in decomposed.graph.nodes)
    compare(tilewright.from_torch(decomposed), module)


def test_weights_of_brief_floating_point():
    """PyTorch's bfloat16 is the upper half of a float32."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval().bfloat16()
    network = tilewright.from_torch(module, X.bfloat16())
    compare(network, module.float())


def rewritten(program, path, change, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(path, "w", method) as new:
        for member in old.infolist():
            new.writestr(member.filename, change(member.filename, old.read(member)))
    return path


def test_a_pickle_inside_is_not_opened(program, tmp_path):
    def change(name, data):
        if not name.endswith("weights_config.json"):
            return data
        content = json.loads(data)
        next(iter(content["config"].values()))["use_pickle"] = True
        return json.dumps(content)

    with pytest.raises(TilewrightError, match=r"stored as a pickle, which may run any code"):
        tilewright.load(rewritten(program, tmp_path / "a.pt2", change))


def test_a_file_that_claims_more_than_it_has(program, tmp_path):
    def change(name, data):
        if not name.endswith("weights_config.json"):
            return data
        return data.replace(b'[{"as_int": 12}]', b'[{"as_int": 900000}]')

    with pytest.raises(TilewrightError, match=r"numbers of the 900,000 it claims"):
        tilewright.load(rewritten(program, tmp_path / "a.pt2", change))


def test_little_that_would_be_much(program, tmp_path):
    """A member that is unpacked, a number that is repeated."""

    def zeros(name, data):
        return bytes(1 << 20) if name.endswith("weight_0") else data

    path = rewritten(program, tmp_path / "a.pt2", zeros, zipfile.ZIP_DEFLATED)
    with pytest.raises(TilewrightError, match=r"is compressed, as torch\.export\.save"):
        tilewright.load(path)

    def repeated(name, data):
        if not name.endswith("weights_config.json"):
            return data
        content = json.loads(data)
        meta = next(iter(content["config"].values()))["tensor_meta"]
        meta["sizes"], meta["strides"] = [{"as_int": 1 << 15}] * 2, [{"as_int": 0}] * 2
        return json.dumps(content)

    with pytest.raises(TilewrightError, match="are larger than the file"):
        tilewright.load(rewritten(program, tmp_path / "b.pt2", repeated))


def test_counting_in_steps_of_0_is_one_line(tmp_path):
    class Counting(nn.Module):
        def forward(self, x):
            return functional.relu(x[:, :, torch.arange(0, 6, 2)])

    path = tmp_path / "whole.pt2"
    torch.export.save(torch.export.export(Counting().eval(), (X,)), path)
    compare(tilewright.load(path), Counting())

    def standing(name, data):
        """Its third argument is the step."""
        if not name.endswith("model.json"):
            return data
        content = json.loads(data)
        nodes = content["graph_module"]["graph"]["nodes"]
        (counted,) = (each for each in nodes if "arange" in each["target"])
        counted["inputs"][2]["arg"]["as_int"] = 0
        return json.dumps(content)

    with pytest.raises(TilewrightError, match=r"\(arange\): has settings that do not belong to it"):
        tilewright.load(rewritten(path, tmp_path / "a.pt2", standing))


def test_places_of_axes_apart_are_not_taken_for_each_other():
    """PyTorch puts them first then: of 2 images, 2 channels, 10 rows and 2 columns, 2x2x2x10."""

    class Apart(nn.Module):
        def forward(self, x):
            return functional.relu(x[:, torch.tensor([[0], [2]]), :, torch.tensor([1, 3])])

    with pytest.raises(TilewrightError, match="takes places of axes apart"):
        tilewright.from_torch(Apart(), X)


@pytest.mark.parametrize("length", [0, 10, 500, 3000, 12000])
def test_a_damaged_file_is_one_line(program, length, tmp_path):
    path = tmp_path / "a.pt2"
    path.write_bytes(program.read_bytes()[:length])
    with pytest.raises(TilewrightError, match=r"a\.pt2: not a .pt2 archive"):
        tilewright.load(path)


def test_everything_that_is_not_understood_is_named_at_once():
    class Odd(nn.Module):
        def forward(self, x):
            x = torch.sinh(x)
            return torch.cumsum(functional.relu(x), 1) * torch.median(x)

    with pytest.raises(TilewrightError) as error:
        tilewright.from_torch(Odd(), X)
    assert all(
        name in str(error.value) for name in ("sinh (sinh)", "cumsum (cumsum)", "median (median)")
    )


def branching(x):
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("forward", "example", "words"),
    [
        (functional.relu, None, "needs an example: .* not none"),
        (functional.relu, (3, 8, 8), "needs an example: .* not tuple"),
        (functional.relu, torch.zeros(3, 8, 8), "not a tensor of 3 dimensions"),
        (lambda x: x @ torch.zeros(3, 3), X, "M: does not run on the example of .*: .*; give one"),
        (branching, X, "M: torch.export cannot follow it: .*; write its forward without branches"),
        (lambda x: (x, x + 1), X, "M: has 2 outputs; a network here has one output: export the"),
    ],
)
def test_what_pytorch_does_not_take_is_one_line_that_says_what_to_do(forward, example, words):
    class M(nn.Module):
        def forward(self, x):
            return forward(x)

    with pytest.raises(TilewrightError, match=words) as error:
        tilewright.from_torch(M(), example)
    assert "\n" not in str(error.value)


def test_only_modules_and_programs_are_taken():
    with pytest.raises(TilewrightError, match=r"takes a torch.nn.Module or what .* not dict"):
        tilewright.from_torch({}, X)


class Changed(nn.Module):
    """Applies a function to a convolution's outputs, and another convolution to what it gives."""

    def __init__(self, change):
        super().__init__()
        torch.manual_seed(5)
        self.change, self.first, self.second = change, nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)

    def forward(self, x):
        x = self.first(x)
        return self.second(self.change(x))


def all_dropouts(x):
    for kind in (nn.Dropout, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout):
        x = kind(inplace=True).eval()(kind().eval()(x))
    return x


def result_unused(x):
    x.mul_(2)
    functional.relu(x, inplace=True)
    return x


def read_before(x):
    squared = x[:, :, 1:].square()
    functional.silu(x, inplace=True)
    return squared + x[:, :, 1:]


@pytest.mark.parametrize(
    "change",
    [
        result_unused,
        read_before,
        lambda x: functional.relu(x, inplace=True) + x,
        all_dropouts,
        lambda x: torch.tanh_(x).clamp_(-0.5, 0.5).sub_(0.25).neg_().abs_(),
        lambda x: x.clamp_max(0.1).clamp_min_(-0.2),
        lambda x: torch.sigmoid(x) * x + (1 - torch.sigmoid(x)) * 2,
        lambda x: torch.rsub(x, x.abs(), alpha=0.5) - torch.sub(3, x, alpha=2),
        lambda x: torch.sub(x, x.relu(), alpha=0.25) - torch.sub(x, 3, alpha=2),
        lambda x: torch.cat([x.narrow(1, -3, 2), x.narrow(1, 0, 2)], 1),
    ],
)
def test_changes_in_place_differences_and_dropouts(change):
    module = Changed(change).eval()
    compare(tilewright.from_torch(module, X), module)
    compare(tilewright.from_torch(dynamic(module)), module)


def view_changed(x):
    x[:, 1:3].mul_(3)
    return x


def read_after(x):
    row = x.flatten(2)
    x.relu_()
    return row.view(x.shape) * 1


def behind_dropout(x):
    """Which gives in eval mode what it is given, not a copy."""
    functional.dropout(x, training=False).relu_()
    return x


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (view_changed, r"reads 'conv2d' after mul_ \(mul_\) changed it in place through another"),
        (read_after, r"view \(view\): reads 'flatten' after relu_ \(relu_\) changed it in place"),
        (behind_dropout, r"reads 'conv2d' after relu_"),
        (lambda x: (x * 3).int().float(), r"to \(to\): casts values .* else than floating point"),
        (lambda x: functional.softplus(x, 1, 2), "a softplus that is left out from 2 on"),
    ],
)
def test_what_would_be_silently_something_else_is_refused(change, words):
    module = Changed(change).eval()
    with pytest.raises(TilewrightError, match=words):
        tilewright.from_torch(module, X)


def test_what_a_module_remembers_is_refused():
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(X.shape))

        def forward(self, x):
            return functional.relu(self.last.add_(x))

    with pytest.raises(TilewrightError, match=r"add_ \(add_\): changes 'b_last', a constant"):
        tilewright.from_torch(Remembers().eval(), X)


def test_an_output_that_is_a_view_of_what_changed_is_refused():
    class Last(nn.Module):
        def forward(self, x):
            row = (scaled := x * 2).flatten(1)
            scaled.relu_()
            return row

    with pytest.raises(TilewrightError, match="Last: reads 'flatten' after relu_"):
        tilewright.from_torch(Last(), X)


def test_constants_become_whole_numbers():
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(-3, 3, 6).reshape(2, 3, 1, 1))

        def forward(self, x):
            return functional.conv2d(x, self.weight.to(torch.int32).to(torch.float32))

    module = Whole().eval()
    network = tilewright.from_torch(module, X)
    assert set(network.parameters["conv.weight"].ravel()) == {-3, -1, 0, 1, 3}
    compare(network, module)


@pytest.mark.parametrize(
    "ending",
    [
        lambda x: functional.avg_pool2d(x, (10, 11)).squeeze(-1).squeeze(-1),
        lambda x: torch.amax(x, (2, 3)),
        lambda x: functional.adaptive_max_pool2d(x, 1).flatten(1),
        lambda x: x.permute(0, 2, 3, 1).mean((1, 2)),
    ],
)
def test_ways_to_make_a_row_of_a_picture(ending):
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 4)

        def forward(self, x):
            return self.linear(ending(x))

    torch.manual_seed(4)
    module = Rows().eval()
    network = tilewright.from_torch(module, X)
    compare(network, module)
    assert [layer.type for layer in network.layers][1:] == ["fully_connected"]


class Shortcut(nn.Module):
    """Every second pixel, and channels of zeros: the shortcut of He et al. for CIFAR-10."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 2, 1)

    def forward(self, x):
        across = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 3))
        return torch.relu(self.conv(x) + across)


@pytest.mark.parametrize("exported", [False, True])
def test_a_shortcut_without_weights(exported, tmp_path):
    torch.manual_seed(3)
    module, path = Shortcut().eval(), tmp_path / "model.onnx"
    if exported:
        torch.onnx.export(module, (X,), path, dynamo=False)
        network = agrees(path, X.numpy())
    else:
        network = tilewright.from_torch(module, X)
    compare(network, module)


@pytest.mark.parametrize("dynamo", [False, True])
def test_both_exporters_to_onnx(dynamo, tmp_path):
    module, path = randomised(Everything()), tmp_path / "model.onnx"
    if dynamo:
        torch.onnx.export(module, (X,), path, dynamo=True, verbose=False)
    else:
        torch.onnx.export(module, (X,), path, dynamo=False, input_names=["x"],
                          dynamic_axes={"x": {0: "images"}})  # fmt: skip
    network = agrees(path, X.numpy())
    compare(network, module)
    assert sum(isinstance(layer, Convolution) for layer in network.layers) in (3, 4)
