"""A network's layers as plain JSON: what `--net FILE.json` reads and weight files carry along.

    {"name": "lenet", "input": {"shape": [1, 28, 28]},
     "layers": [{"type": "convolution", "filters": 6, "kernel": 5, "padding": 2},
                {"type": "relu"}, {"type": "max_pool", "size": 2},
                {"type": "fully_connected", "outputs": 10}, {"type": "softmax"}]}

A layer's other keys are the fields of its dataclass; a field with a default may be left out. A
layer takes what the one before it gave, or what those give that it names in `from`: a name such as
`conv2` (layers are named by their kind, and numbered where there are several of it) or `input`, or
a list of names for a layer that takes several.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.errors import TilewrightError, unknown
from tilewright.files import check_file, reason
from tilewright.model.layers import TYPES, Layer, Pixels
from tilewright.model.network import Network, Stage, check_depth, names

LARGEST_BYTES = 10_000_000
GIVEN = "the network's description"  # one that is not in a file


def to_json(network: Network) -> str:
    """The network's description, without its parameters; one that can be read again."""
    _name(network.name)
    for stage in network.stages[1:]:
        if TYPES.get(stage.layer.type) is not type(stage.layer):
            raise TilewrightError(
                f"{stage.name}: layers of kind {stage.kind!r} ({type(stage.layer).__name__}) have "
                "no name in descriptions of networks"
            )
    layers = [
        {"type": stage.layer.type, **dataclasses.asdict(stage.layer), **_from(network, stage)}
        for stage in network.stages[1:]
    ]
    pixels = dataclasses.asdict(network.input)
    return json.dumps({"name": network.name, "input": pixels, "layers": layers})


def _from(network: Network, stage: Stage) -> dict[str, list[str] | str]:
    """What a layer takes, where that is not the layer before it."""
    if stage.sources == (stage.index - 1,):
        return {}
    names = [network.stages[source].name for source in stage.sources]
    return {"from": names if len(names) > 1 else names[0]}


def from_json(text: str, source: str) -> Network:
    """Read a description; `source` is what an error names."""
    try:
        document = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise TilewrightError(f"{source}: not JSON: {error}") from error
    with _blaming(source):
        return _network(document)


def from_mapping(description: Mapping[str, object]) -> Network:
    """The same of what the JSON stands for: dicts, lists or tuples, numbers, text."""
    with _blaming(GIVEN):
        try:
            document = _plain(description, "")
        except RecursionError as error:
            raise TilewrightError("it is nested too deeply, or holds itself") from error
        return _network(document)


@contextmanager
def _blaming(source: str) -> Iterator[None]:
    try:
        yield
    except TilewrightError as error:
        raise TilewrightError(f"{source}: {error}") from error


def _plain(value: object, place: str) -> object:
    """A value with nothing in it but what JSON has; `place` is where it stands."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TilewrightError(f"{place or 'it'} has a key that is no text: {key!r:.60}")
        return {key: _plain(each, f"{place}.{key:.60}".strip(".")) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, f"{place}[{index}]") for index, each in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TilewrightError(f"{place} is of type {type(value).__name__}, which JSON has not")


def read(path: Path) -> Network:
    check_file(path)
    if path.stat().st_size > LARGEST_BYTES:
        raise TilewrightError(f"{path}: too large for the description of a network")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TilewrightError(f"{path}: not JSON: not UTF-8 text") from error
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    return from_json(text, str(path))


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object in which no key comes twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key comes twice in an object")
    return content


def _name(given: object) -> str:
    if not isinstance(given, str) or not given.isprintable() or not 0 < len(given) <= 60:
        raise TilewrightError(f"name must be up to 60 printable characters, not {given!r:.60}")
    return given


def _network(document: object) -> Network:
    fields = _object("the description", document, required={"name", "input", "layers"})
    name = _name(fields["name"])
    if not isinstance(fields["layers"], list):
        raise TilewrightError("layers must be a list")
    check_depth(len(fields["layers"]))  # before they are made
    pixels = _object("input", fields["input"], required={"shape"}, optional={"scale", "shift"})
    if not isinstance(pixels["shape"], list):
        raise TilewrightError(f"input shape must be a list, not {pixels['shape']!r:.60}")
    layers, taken = [], []
    for index, entry in enumerate(fields["layers"], start=1):
        try:
            layers.append(_layer(entry))
            taken.append(_taken(entry))
        except TilewrightError as error:
            raise TilewrightError(f"layer {index}: {error}") from error
    places = {name: index for index, name in enumerate(("input", *names(layers)))}
    sources = []
    for index, given in enumerate(taken, start=1):
        for name in given or ():
            if name not in places:
                raise unknown(f'name in "from" of layer {index}', name, places)
        sources.append((index - 1,) if given is None else tuple(places[name] for name in given))
    return Network(fields["name"], Pixels(**pixels), tuple(layers), sources=tuple(sources))


def _taken(entry: Mapping[str, object]) -> list[str] | None:
    """The names of the layers whose outputs it takes; None: the one before it."""
    if "from" not in entry:
        return None
    given = entry["from"]
    listed = given if isinstance(given, list) else [given]
    texts = [name for name in listed if isinstance(name, str)]
    if not listed or texts != listed:
        raise TilewrightError(f'"from" must be a name or a list of names, not {given!r:.60}')
    return texts


def _layer(entry: object) -> Layer:
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
        raise TilewrightError(f'needs an object with a "type", not {entry!r:.60}')
    kind = entry["type"]
    if kind not in TYPES:
        raise unknown("layer type", kind, TYPES)
    settings = {key: value for key, value in entry.items() if key not in ("type", "from")}
    known = {field.name for field in dataclasses.fields(TYPES[kind])}
    for key in settings:
        if key not in known:
            raise unknown(f"setting of {kind}", key, sorted(known))
    try:
        return TYPES[kind](**settings)
    except TypeError as error:  # Python names the argument that is missing
        message = str(error).partition("missing")[2] or str(error)
        raise TilewrightError(f"{kind} lacks{message}") from error


def _object(
    what: str, value: object, required: set[str], optional: set[str] | None = None
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TilewrightError(f"{what} must be an object, not {value!r:.60}")
    for key in sorted(required - set(value)):
        raise TilewrightError(f"{what} lacks {key!r}")
    for key in set(value) - required - (optional or set()):
        raise unknown(f"key in {what}", key, sorted(required | (optional or set())))
    return value
