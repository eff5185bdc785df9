"""Loops that Numba has compiled, in the store on disk.

Numba keeps machine code itself, beside the source or in a folder of its own, and trusts what it
finds there: a truncated file fails on every start, a damaged one may do anything. The store knows a
damaged file, is private to its owner, and is shown and cleared by `tilewright cache`.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import compiler, serialize

from tilewright.store import key_of, open_store

KIND = "numba"
# What a user's NUMBA_OPT and the like change about machine code, by their names in Numba.
SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT")
# How Numba itself turns what it has compiled into bytes, and back.
_dumps: Callable[[Any], bytes] = serialize.dumps
_rebuild: Callable[..., Any] = compiler.CompileResult._rebuild


class Kept:
    """What a function of Numba's asks before it compiles, and tells when it has: its cache."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        """The function, and others that become a part of it."""
        self.functions = functions

    @property
    def cache_path(self) -> str:
        return str(open_store(KIND).folder)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The machine code for arguments of these types, or None."""
        target.refresh()
        content = open_store(KIND).read(self._key(signature, target.codegen()))
        return None if content is None else _rebuild(target, *pickle.loads(content))

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep machine code; where that is not possible, the next start takes its time again."""
        open_store(KIND).keep(self._key(signature, result.codegen), _dumps(result._reduce()))

    def _key(self, signature: Any, codegen: Any) -> str:
        codes = [function.__code__ for function in self.functions]
        sources = [part for x in codes for part in (x.co_qualname, _source(x.co_filename))]
        versions = f"{sys.version} {numba.__version__}"
        cpu = repr(codegen.magic_tuple())
        settings = repr([getattr(numba.config, name, None) for name in SETTINGS])
        return key_of(*sources, str(signature), cpu, versions, settings)


@cache
def _source(file: str) -> bytes:
    """The file that a function is from: a change to it is other machine code."""
    return Path(file).read_bytes()
