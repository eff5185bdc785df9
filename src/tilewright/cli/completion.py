"""Print a script that completes verbs, options and names in a shell: bash, zsh or fish."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

SHELLS = ("bash", "zsh", "fish")
HOW = {
    "bash": "# in ~/.bashrc: eval \"$(tilewright completion bash)\"",
    "zsh": "# in ~/.zshrc, behind compinit: eval \"$(tilewright completion zsh)\"",
    "fish": "# tilewright completion fish > ~/.config/fish/completions/tilewright.fish",
}  # fmt: skip


@dataclass(frozen=True)
class Option:
    """`words` are values that it may have; none if it takes none, or any. `about` is its help."""

    names: tuple[str, ...]
    takes: bool
    words: tuple[str, ...]
    about: str


@dataclass(frozen=True)
class Verb:
    """`path` is the verb, or a verb and what it does; `words` are what may stand behind it."""

    path: tuple[str, ...]
    about: str
    options: tuple[Option, ...]
    words: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="which shell")


def main(arguments: argparse.Namespace) -> int:
    verbs = list(every_verb())
    made = fish(verbs) if arguments.shell == "fish" else bash(verbs)
    if arguments.shell == "zsh":
        made = ["autoload -U +X bashcompinit && bashcompinit", *made]
    print("\n".join((HOW[arguments.shell], *made)))
    return 0


def every_verb() -> Iterator[Verb]:
    """As their parsers have them."""
    from tilewright.cli import VERBS

    for name, about in VERBS.items():
        parser = argparse.ArgumentParser(prog=name)
        import_module(f"tilewright.cli.{name}").add_arguments(parser)
        yield from _verbs((name,), about, parser)


def _verbs(path: tuple[str, ...], about: str, parser: argparse.ArgumentParser) -> Iterator[Verb]:
    options, words = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words += list(action.choices)
            for name, below in action.choices.items():
                yield from _verbs((*path, name), str(below.description or ""), below)
        elif action.option_strings:
            takes = action.nargs != 0
            found = _words(action) if takes else ()
            options.append(Option(tuple(action.option_strings), takes, found, action.help or ""))
        else:
            words += _words(action)
    yield Verb(path, about, tuple(options), tuple(words))


def _words(action: argparse.Action) -> tuple[str, ...]:
    """Values that an argument may have: its choices, or names of its kind."""
    if action.choices is not None:
        return tuple(map(str, action.choices))
    from tilewright.data.catalogue import ENTRIES
    from tilewright.model.zoo import ZOO
    from tilewright.rungs import NAMES
    from tilewright.runtime.device import KINDS

    named: dict[str, Sequence[str]] = {
        "device": KINDS, "net": tuple(ZOO), "rung": NAMES, "rungs": NAMES, "against": NAMES,
        "data": tuple(ENTRIES),
    }  # fmt: skip
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.dest == "action" and "|" in metavar:
        return tuple(metavar.split("|"))
    return tuple(named.get(action.dest, ()))


def bash(verbs: Sequence[Verb]) -> list[str]:
    """For bash, and for zsh with its bashcompinit."""
    lines = ["_tilewright() {", '  local now="${COMP_WORDS[COMP_CWORD]}"',
             '  local before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
             '  case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in']  # fmt: skip
    for verb in sorted(verbs, key=lambda verb: -len(verb.path)):
        place = " ".join(verb.path) if len(verb.path) > 1 else f"{verb.path[0]} "
        lines.append(f"    {shlex.quote(place)}*)")
        lines.append('      case "$before" in')
        for option in verb.options:
            if option.takes:
                names, words = "|".join(option.names), " ".join(option.words)
                lines.append(f"        {names}) words={shlex.quote(words)} ;;")
        every = [*(name for option in verb.options for name in option.names), *verb.words]
        lines.append(f"        *) words={shlex.quote(' '.join(every))} ;;")
        lines.append("      esac ;;")
    first = " ".join(verb.path[0] for verb in verbs if len(verb.path) == 1)
    lines += [
        "  esac", f'  [ "$COMP_CWORD" -eq 1 ] && words={shlex.quote(first)}',
        '  COMPREPLY=($(compgen -W "$words" -- "$now"))', "}",
        "complete -o default -o bashdefault -F _tilewright tilewright",
    ]  # fmt: skip
    return lines


def fish(verbs: Sequence[Verb]) -> list[str]:
    lines = []
    for verb in verbs:
        *around, name = verb.path
        where = f"__fish_seen_subcommand_from {around[0]}" if around else "__fish_use_subcommand"
        about = shlex.quote(_sentence(verb.about))
        lines.append(f"complete -c tilewright -n '{where}' -f -a {name} -d {about}")
        behind = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in verb.path)
        for option in verb.options:
            names = " ".join(_fish_name(each) for each in option.names)
            values = f" -x -a {shlex.quote(' '.join(option.words))}" if option.words else ""
            takes = values or (" -r" if option.takes else "")
            help_ = shlex.quote(_sentence(option.about))
            lines.append(f"complete -c tilewright -n '{behind}' {names}{takes} -d {help_}")
        if verb.words:
            words = shlex.quote(" ".join(verb.words))
            lines.append(f"complete -c tilewright -n '{behind}' -a {words}")
    return lines


def _fish_name(option: str) -> str:
    return f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"


def _sentence(text: str) -> str:
    """The first part of a help, short."""
    return text.replace("%%", "%").split(" (default")[0].split("; ")[0]
