"""What compilers have to say of a user's kernel, at the user's own lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilewright.errors import SeveralLines, TilewrightError
from tilewright.runtime.dialect import Part, Source, placed

KINDS = {"*": "a buffer", "i": "a whole number (int)", "?": "neither a buffer nor an int"}
ANYTHING = "."  # where a compiler does not say what a kernel takes
MOST_SHOWN = 8
LONGEST = 200  # of a message, and of a line of source


@dataclass(frozen=True)
class CompilerMessage:
    """One error. The column may be unknown."""

    line: int
    column: int | None
    text: str


class CompilerRefused(TilewrightError):
    """A compiler has made nothing of a text. `log` is all that it said."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message, log)
        self.log = log

    def __str__(self) -> str:
        return str(self.args[0])


class KernelDoesNotCompile(SeveralLines):
    """A kernel file has errors: `report` shows each with its line of source and a caret."""

    def __init__(
        self,
        file: str,
        text: str,
        messages: tuple[CompilerMessage, ...],
        parts: tuple[Part, ...] = (),
    ) -> None:
        super().__init__(file, text, messages, parts)
        self.file, self.text, self.messages, self.parts = file, text, messages, parts

    def __str__(self) -> str:
        first, others = self.messages[0], len(self.messages) - 1
        more = f" (and {others} more error{'s' if others > 1 else ''})" if others else ""
        return f"{self._place(first)}: {first.text}{more}"

    @property
    def report(self) -> str:
        """Every error on lines of its own."""
        count = len(self.messages)
        return "\n".join(
            (
                f"{self.file} does not compile: {count} error{'s' if count > 1 else ''}",
                *(line for message in self.messages[:MOST_SHOWN] for line in self._lines(message)),
                *((f"and {count - MOST_SHOWN} more",) if count > MOST_SHOWN else ()),
            )
        )

    def _place(self, message: CompilerMessage) -> str:
        column = "" if message.column is None else f":{message.column}"
        file, line = placed(self.parts, self.file, message.line)
        return f"{file}:{line}{column}"

    def _lines(self, message: CompilerMessage) -> Iterator[str]:
        yield f"{self._place(message)}: {message.text}"
        source = self.text.split("\n")
        if message.line <= len(source):
            shown = source[message.line - 1].expandtabs(8).rstrip()
            yield f"    {shown[:LONGEST]}"
            if message.column is not None:
                before = source[message.line - 1][: message.column - 1].expandtabs(8)
                yield f"    {' ' * min(len(before), LONGEST)}^"


def in_users_lines(source: Source, refused: CompilerRefused) -> TilewrightError:
    """What to tell of a source that was refused: at the lines of its file, if it has one."""
    if source.file is None:
        return refused
    messages = tuple(dict.fromkeys(_messages(source.file, refused.log)))
    if messages:
        return KernelDoesNotCompile(source.file, source.text, messages, source.parts)
    return TilewrightError(f"{source.file} does not compile: {_last_words(refused.log)}")


def no_such_kernel(name: str, known: Iterable[str]) -> TilewrightError:
    known = tuple(known)
    if f"_cl_{name}" in known:  # as PoCL spells what OpenCL C has already
        return TilewrightError(
            f"{name!r} is a function of OpenCL C's own: give the kernel another name"
        )
    return TilewrightError(f"there is no kernel {name!r} in the source; it has {', '.join(known)}")


def check_parameters(source: Source, taken: str, added: str = "") -> None:
    """Whether a kernel takes what its header says it is given; `added` is what a runtime adds."""
    if source.parameters is None:
        return
    given, where = source.parameters + added, f"{source.file}: kernel {source.name}"
    if len(given) != len(taken):
        raise TilewrightError(
            f"{where} takes {len(taken)} arguments, and its header gives it {len(given)}"
        )
    for number, (has, wants) in enumerate(zip(given, taken, strict=True), 1):
        if wants not in (has, ANYTHING):
            raise TilewrightError(
                f"{where} takes {KINDS[wants]} as argument {number}, and its header gives it "
                f"{KINDS[has]}"
            )


def _messages(file: str, log: str) -> Iterator[CompilerMessage]:
    """Errors in a file, as compilers of OpenCL (clang's form and PoCL's) and CUDA write them."""
    name = re.escape(file)
    clang = re.compile(rf"(?:.*/)?{name}:(\d+):(\d+): (?:fatal )?error: (.*)")
    pocl = re.compile(
        rf"(?:fatal )?error: (?:.*/)?{name}:(\d+):(\d+)"
        rf"(?: <Spelling=(?:.*/)?(?:{name}:(\d+):(\d+)|.*?)>)?: (.*)"
    )
    nvrtc = re.compile(rf"(?:.*/)?{name}\((\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (.*)")
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if found := clang.match(line):
            yield CompilerMessage(int(found[1]), int(found[2]), _short(found[3]))
        elif found := pocl.match(line):
            # In a macro of ours the place is where the user has it; what a macro is given is exact.
            at, column = (found[3], found[4]) if found[3] else (found[1], found[2])
            yield CompilerMessage(int(at), int(column), _short(found[5]))
        elif found := nvrtc.match(line):
            yield CompilerMessage(int(found[1]), _caret(lines[number + 1 :]), _short(found[2]))


def _caret(after: list[str]) -> int | None:
    """NVRTC shows the line, moved by two places and without tabs, and a caret below it."""
    if len(after) < 2 or after[1].strip() != "^":
        return None
    return max(1, after[1].index("^") - 1)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _last_words(log: str) -> str:
    """The lines that speak of an error, without paths of this machine."""
    lines = [re.sub(r"\S*/(\S+)", r"\1", line.strip()) for line in log.splitlines()]
    telling = [line for line in lines if "error" in line.lower()] or [
        line for line in lines if line
    ]
    return _short("; ".join(dict.fromkeys(telling)) or "the compiler does not say why")
