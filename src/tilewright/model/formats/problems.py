"""Everything in a file that is not understood, at once."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import SeveralLines

MOST = 60  # lines


class NotUnderstood(SeveralLines):
    """Pairs of where it is and what it is."""

    def __init__(self, source: str, problems: Sequence[tuple[str, str]]) -> None:
        self.source, self.problems = source, list(problems)
        super().__init__(f"{source}: {'; '.join(f'{where}: {what}' for where, what in problems)}")

    @property
    def report(self) -> str:
        if len(self.problems) == 1:
            return str(self)
        lines = [f"{where}: {what}" for where, what in self.problems[:MOST]]
        if len(self.problems) > MOST:
            lines.append(f"and {len(self.problems) - MOST:,} more")
        count = len(self.problems)
        return "\n  ".join([f"{self.source}: {count:,} things are not understood:", *lines])


def several(what: str, count: int, names: str = "") -> str:
    """What to do about a graph with several inputs or outputs, or none."""
    return (
        f"has {count} {what}s{names}; a network here has one {what}: export the model with the "
        f"{what} that you want alone"
    )
