"""The layers a network is made of: one file a kind, with all that is true of it.

A new kind is a new file here: every module of this package is looked through for classes of
layers, and those that have a `type` are known by it in descriptions of networks.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tilewright.model.layers.add import Add as Add
from tilewright.model.layers.base import Layer as Layer
from tilewright.model.layers.base import Planar as Planar
from tilewright.model.layers.base import Weights as Weights
from tilewright.model.layers.concat import Concat as Concat
from tilewright.model.layers.convolution import Convolution as Convolution
from tilewright.model.layers.elementwise import Elementwise as Elementwise
from tilewright.model.layers.elu import ELU as ELU
from tilewright.model.layers.flatten import Flatten as Flatten
from tilewright.model.layers.forms import FORMS as FORMS
from tilewright.model.layers.forms import Form as Form
from tilewright.model.layers.forms import MissingForm as MissingForm
from tilewright.model.layers.forms import Table as Table
from tilewright.model.layers.fully_connected import FullyConnected as FullyConnected
from tilewright.model.layers.gelu import GELU as GELU
from tilewright.model.layers.gelu import TanhGELU as TanhGELU
from tilewright.model.layers.hard_sigmoid import HardSigmoid as HardSigmoid
from tilewright.model.layers.hard_swish import HardSwish as HardSwish
from tilewright.model.layers.join import Join as Join
from tilewright.model.layers.leaky_relu import LeakyReLU as LeakyReLU
from tilewright.model.layers.mish import Mish as Mish
from tilewright.model.layers.multiply import Multiply as Multiply
from tilewright.model.layers.pixels import Pixels as Pixels
from tilewright.model.layers.pooling import AveragePool as AveragePool
from tilewright.model.layers.pooling import MaxPool as MaxPool
from tilewright.model.layers.pooling import Pooling as Pooling
from tilewright.model.layers.relu import ReLU as ReLU
from tilewright.model.layers.relu6 import ReLU6 as ReLU6
from tilewright.model.layers.sigmoid import Sigmoid as Sigmoid
from tilewright.model.layers.silu import SiLU as SiLU
from tilewright.model.layers.sizes import Shape as Shape
from tilewright.model.layers.sizes import dimensions as dimensions
from tilewright.model.layers.softmax import Softmax as Softmax
from tilewright.model.layers.softplus import Softplus as Softplus
from tilewright.model.layers.take import Take as Take
from tilewright.model.layers.tanh import Tanh as Tanh


def _found() -> dict[str, type[Layer]]:
    names = sorted(module.name for module in iter_modules(__path__, f"{__name__}."))
    classes = [each for name in names for each in vars(import_module(name)).values()]
    layers = [each for each in classes if isinstance(each, type) and issubclass(each, Layer)]
    return {each.type: each for each in layers if each.type}


# Every kind by its name in descriptions.
TYPES = _found()
