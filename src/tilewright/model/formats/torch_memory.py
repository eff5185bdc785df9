"""Which values of an exported program may lie in the same memory.

What changes a tensor in place changes all views of it. `torch.export` lets whatever reads that
tensor afterwards read what the change gave; readers of other views it leaves as they are. Taken for
functions, such calls would compute with what was there before, so they are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import TilewrightError
from tilewright.model.formats.torch_file import Call

# What gives the memory that it is given, always or if nothing is to be done.
VIEWS = frozenset(
    {
        "alias", "alpha_dropout", "as_strided", "chunk", "contiguous", "detach", "dropout",
        "expand", "expand_as", "feature_alpha_dropout", "feature_dropout", "flatten", "narrow",
        "numpy_T", "permute", "reshape", "slice", "split", "split_with_sizes", "squeeze", "t", "to",
        "transpose", "unsqueeze", "view",
    }
)  # fmt: skip


class Memory:
    """Follows a program's calls in their order."""

    def __init__(self) -> None:
        self._sharing: dict[str, set[str]] = {}
        self._changed: dict[str, str] = {}

    def check(self, name: str) -> None:
        if name in self._changed:
            raise TilewrightError(
                f"reads {name[:80]!r} after {self._changed[name]} changed it in place through "
                "another view: write that without a change in place"
            )

    def follow(self, call: Call, names: Sequence[str]) -> None:
        """`names` are those that it takes, in order."""
        if not names or not (call.in_place or call.plain in VIEWS):
            return
        sharing = self._sharing.setdefault(names[0], {names[0]})
        if call.in_place:
            others = sharing.difference(names[:1])
            self._changed.update(dict.fromkeys(others, call.label))
            sharing.difference_update(others)
        sharing.update(call.outputs)
        self._sharing.update(dict.fromkeys(call.outputs, sharing))
