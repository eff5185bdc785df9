"""Ray without a cluster: everything happens here and at once, one thing after the other."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace


class Handle:
    """An actor's: its methods are called when they are asked."""

    def __init__(self, actor: object) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> SimpleNamespace:
        method = SimpleNamespace(remote=getattr(self.actor, name))
        method.options = lambda **given: method
        return method


class Rows:
    """A data set of Ray Data: rows, each of which goes through one worker, pickled."""

    def __init__(self, rows: list[dict[str, bytes]]) -> None:
        self.rows, self.context = rows, SimpleNamespace()

    def map_batches(self, kind, fn_constructor_args, **given):
        self.worker = kind(*fn_constructor_args)
        return self

    def iter_batches(self, **given):
        for row in self.rows:
            ((name, value),) = row.items()
            yield pickle.loads(pickle.dumps(self.worker({name: [value]})))


class Near:
    """As much of Ray's module as we use. `machines` are what `ray.nodes()` tells of."""

    class exceptions:
        class RayError(Exception):
            pass

    def __init__(self, *machines: dict[str, float]) -> None:
        self.machines = machines or ({"CPU": 2.0},)
        self.data = SimpleNamespace(
            from_items=lambda rows, **given: Rows(rows),
            ActorPoolStrategy=lambda **given: given,
        )

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, object]]:
        return [{"Alive": True, "Resources": machine} for machine in self.machines]

    def remote(self, **given: object) -> Callable[[type], SimpleNamespace]:
        return lambda kind: SimpleNamespace(remote=lambda *given: Handle(kind(*given)))

    def get(self, value: object) -> object:
        return value

    def put(self, value: object) -> object:
        """As it arrives elsewhere."""
        return pickle.loads(pickle.dumps(value))
