"""The reference, made from the code: every command and option, every public name, every schema."""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import tilewright
from tilewright.cli import VERBS, Parser

LINE = 90  # a longer signature has an argument a line
DOCS = Path(__file__).resolve().parents[1]


def command_line() -> str:
    parts = [
        "# The command line",
        "Made from the commands themselves: `tilewright VERB --help` says the same. The exit code "
        "is 0; 2 after an error, which is one line on standard error; 130 after Ctrl-C.",
        table(
            ["verb", "what it does"],
            [[f"[`{verb}`](#tilewright-{verb})", cell(about)] for verb, about in VERBS.items()],
        ),
    ]  # fmt: skip
    for verb in VERBS:
        module = import_module(f"tilewright.cli.{verb}")
        parser = Parser(prog=f"tilewright {verb}", description=module.__doc__)
        module.add_arguments(parser)
        parts += command(parser, "##")
    return "\n\n".join(parts) + "\n"


def command(parser: argparse.ArgumentParser, level: str) -> Iterator[str]:
    """A command's usage and options, then the commands below it."""
    parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=100)
    yield f"{level} {parser.prog}"
    yield cell(parser.description or "")
    usage = parser.format_usage().removeprefix("usage: ").rstrip().replace("\n" + 7 * " ", "\n")
    yield f"```text\n{usage}\n```"
    below: list[argparse.ArgumentParser] = []
    for group in parser._action_groups:
        rows = []
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                below += action.choices.values()
            elif action.help != argparse.SUPPRESS and action.dest != "help":
                rows.append([f"`{named(action)}`", cell(explained(parser, action))])
        if rows:
            yield table([group.title or "", ""], rows)
    for each in below:
        yield from command(each, level + "#")


def named(action: argparse.Action) -> str:
    """An option as it is typed, with what follows it."""
    values = action.metavar if isinstance(action.metavar, str) else action.dest
    if action.metavar is None and action.choices:
        values = ",".join(map(str, action.choices))
    if not action.option_strings:
        return values
    return ", ".join(action.option_strings) + (f" {values}" if action.nargs != 0 else "")


def explained(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""


def python_api() -> str:
    parts = [
        "# The Python API",
        "Made from the code: the names in `tilewright.__all__`, with signatures and docstrings. "
        "[From Python](../python.md) shows them at work.",
    ]  # fmt: skip
    for name in sorted(tilewright.__all__, key=lambda name: (name[0].isupper(), name)):
        thing = getattr(tilewright, name)
        parts += [f"## {name}", *described(thing, f"tilewright.{name}")]
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            for method, value in members(thing):
                parts += [f"### {name}.{method}", *described(value, method)]
    return "\n\n".join(parts) + "\n"


def members(thing: type) -> list[tuple[str, Any]]:
    """Public methods and properties that are explained."""
    found = inspect.getmembers_static(thing)
    plain = [(name, getattr(value, "__func__", value)) for name, value in found if name[0] != "_"]
    return [(name, value) for name, value in plain if own_words(value)]


def own_words(thing: Any) -> str:
    """A docstring that somebody wrote, without dataclasses' own signature."""
    callables = (property, staticmethod, classmethod)
    if not (inspect.isroutine(thing) or inspect.isclass(thing) or isinstance(thing, callables)):
        return ""
    words = inspect.getdoc(thing) or ""
    name = getattr(thing, "__name__", "")
    return "" if words.startswith(f"{name}(") else words


def described(thing: Any, name: str) -> Iterator[str]:
    # Results and errors are given, not made.
    given = inspect.isclass(thing) and thing.__name__.endswith(("Result", "Error"))
    if callable(thing) and not given:
        yield f"```python\n{call(name, inspect.signature(thing))}\n```"
    yield own_words(thing)


def call(name: str, signature: inspect.Signature) -> str:
    """A signature, an argument a line where it is long."""
    words, named_only = [], False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not named_only:
            words, named_only = [*words, "*"], True
        if each.name != "self":
            words.append(argument(each))
    back = signature.return_annotation
    end = f") -> {back}" if isinstance(back, str) and back != "None" else ")"
    line = f"{name}({', '.join(words)}{end}"
    if len(line) <= LINE:
        return line
    return f"{name}(\n" + "".join(f"    {word},\n" for word in words) + end


def argument(each: inspect.Parameter) -> str:
    """As it stands in the source; a default that is no plain value is an ellipsis."""
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    words = f"{stars}{each.name}"
    if each.annotation is not each.empty:
        words += f": {each.annotation}"
    if each.default is not each.empty:
        plain = each.default is None or isinstance(each.default, str | int | float | tuple)
        words += f" = {each.default!r}" if plain else " = ..."
    return words


def schemas() -> str:
    parts = [
        "# JSON schemas",
        "What `--json` writes, as [JSON Schema](https://json-schema.org), made "
        "from the types that the JSON is made from; the tests hold one to the other.",
    ]  # fmt: skip
    for path in sorted(DOCS.glob("*.schema.json")):
        schema = json.loads(path.read_text())
        if "$ref" in schema:
            schema |= schema["$defs"][schema["$ref"].rpartition("/")[2]]
        rows = [
            [f"`{name}`", kind(value), cell(value.get("description", ""))]
            for name, value in schema.get("properties", {}).items()
        ]
        parts += [f"## {path.name.partition('.')[0]}", cell(schema.get("description", ""))]
        parts += [
            table(["field", "type", ""], rows),
            f"The whole schema: [{path.name}](../{path.name}).",
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def kind(value: dict[str, Any]) -> str:
    """A field's type in a word or two."""
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "anyOf" in value:
        return " or ".join(kind(each) for each in value["anyOf"])
    if value.get("type") == "array" and isinstance(value.get("items"), dict):
        return f"array of {kind(value['items'])}"
    if "const" in value or "enum" in value:
        return " or ".join(json.dumps(each) for each in value.get("enum", [value.get("const")]))
    given = value.get("type", "any")
    return given if isinstance(given, str) else " or ".join(given)


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(escaped(line))} |" for line in lines)


def escaped(line: list[str]) -> list[str]:
    """A bar in a cell is no end of it; in code it is none by itself."""
    parts = [each.split("`") for each in line]
    return [
        "`".join(text if i % 2 else text.replace("|", r"\|") for i, text in enumerate(each))
        for each in parts
    ]


def cell(words: str) -> str:
    """Text of a help or docstring in one line; < is no tag."""
    return " ".join(words.split()).replace("<", "&lt;")


PAGES: dict[str, Callable[[], str]] = {
    "reference/command-line.md": command_line,
    "reference/python.md": python_api,
    "reference/schemas.md": schemas,
}
