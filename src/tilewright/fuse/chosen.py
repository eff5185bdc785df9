"""What a compiler chose for a network, as plain data: a plan holds it, and a file can."""

from __future__ import annotations

from typing import Self

import msgspec

from tilewright.errors import TilewrightError


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    @classmethod
    def of(cls, options: object) -> Self:
        """Of plain data, as a plan has it."""
        try:
            return msgspec.convert(options, cls)
        except msgspec.ValidationError as error:
            raise TilewrightError(f"options: {error}") from error
