"""Server-sent events: one reader of the store's log, whoever watches.

A message is always the whole state, never a change of it: who lost the connection asks again, and
has missed nothing.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import aclosing, suppress

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from tilewright.classroom.store import Event, Store
from tilewright.errors import TilewrightError
from tilewright.terminal import say_once

MOST_STREAMS = 20  # of one person: more are mistakes, or meant to harm
LOOKS_A_SECOND = 20  # at pages that have changed, of all who watch
LOOK_SECONDS = 0.3  # between two looks at the log, while anybody watches
QUIET_SECONDS = 15.0  # then a word that means nothing, so that nobody takes the line for dead

State = dict[str, object]


class Places:
    """Places in the queue, worked out once for all who ask between two looks at the log."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[int, int] | None = None
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Something has moved."""
        self._known = None

    def __call__(self, number: int) -> int | None:
        """From 1, of one that waits; None if it does not."""
        with self._lock:  # of many who ask, one works
            known = self._known
            if known is None:
                before: Counter[str] = Counter()
                self._known = known = {}
                for each in self.store.waiting():
                    before[each.device] += 1
                    known[each.number] = before[each.device]
            return known.get(number)


class Bell:
    """Rings for everybody who listens when the log has grown."""

    def __init__(self, store: Store) -> None:
        self.store, self.places = store, Places(store)
        self._listening: dict[asyncio.Queue[Collection[Event] | None], str] = {}
        self._looking: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        self._closed = False

    def close(self) -> None:
        """The server ends: so does every stream. Whoever watches comes again."""
        self._closed = True
        for queue in list(self._listening):
            queue.put_nowait(None)

    @property
    def pause(self) -> int:
        """Seconds between two looks of a page, so that all together ask some twenty times in one:
        a device may be timed beside us."""
        return max(1, len(self._listening) // LOOKS_A_SECOND)

    def streams(self, login: str) -> int:
        """How many a person has open."""
        return list(self._listening.values()).count(login)

    async def listen(self, login: str) -> AsyncGenerator[Collection[Event], None]:
        """What was logged, as it comes; nothing, every quiet while."""
        queue: asyncio.Queue[Collection[Event] | None] = asyncio.Queue()
        self._listening[queue] = login
        if self._looking is None:
            self._begun = asyncio.Event()
            self._looking = asyncio.create_task(self._look(self._begun))
        try:
            await self._begun.wait()
            yield ()  # from here on nothing is missed
            while not self._closed:
                events: Collection[Event] | None = ()
                with suppress(TimeoutError):
                    events = await asyncio.wait_for(queue.get(), QUIET_SECONDS)
                if events is None:
                    return
                yield events
        finally:
            del self._listening[queue]
            if not self._listening and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look(self, begun: asyncio.Event) -> None:
        """For all who listen. What cannot be read now is read when it can."""
        after: int | None = None
        while True:
            try:
                if after is None:
                    after = await run_in_threadpool(self.store.last_event)
                    begun.set()
                elif events := await run_in_threadpool(self.store.events, after):
                    after = events[-1].id
                    self.places.forget()
                    for queue in list(self._listening):
                        queue.put_nowait(events)
            except TilewrightError as error:
                say_once(str(error))
            await asyncio.sleep(LOOK_SECONDS)


def stream(
    bell: Bell,
    login: str,
    state: Callable[[Collection[Event]], State],
    concerns: Callable[[Event], bool],
) -> StreamingResponse:
    """For one person the state now, and whenever an event that concerns it has changed it, until
    it is done. `state` is told the events since it was asked last."""
    if bell.streams(login) >= MOST_STREAMS:
        raise HTTPException(429, f"{MOST_STREAMS} pages of yours are kept up to date, and no more")

    async def messages() -> AsyncIterator[str]:
        shown: State | None = None
        async with aclosing(bell.listen(login)) as batches:
            async for events in batches:
                if shown is not None and not events:
                    yield ":\n\n"
                elif shown is None or any(map(concerns, events)):
                    now = await run_in_threadpool(state, events)
                    if now != shown:
                        shown = now
                        yield f"data: {json.dumps(now)}\n\n"
                    if now.get("state") == "done":
                        return

    return StreamingResponse(
        messages(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


def changes(bell: Bell, login: str, concerns: Callable[[Event], bool]) -> StreamingResponse:
    """Nothing but that something has changed: pages are made by the server, for whoever asks."""
    return stream(bell, login, lambda events: {"changed": bell.store.last_event()}, concerns)
