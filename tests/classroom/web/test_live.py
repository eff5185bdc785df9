"""Streams of events: the whole state each time, nothing missed, an end when it is done."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from starlette.exceptions import HTTPException

from tests.classroom.made import right
from tilewright.classroom.web import live
from tilewright.classroom.web.boards import Boards
from tilewright.classroom.web.live import MOST_STREAMS, Bell, Places, stream
from tilewright.classroom.web.states import Following, state_of
from tilewright.errors import TilewrightError


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.01)


def states(text: str) -> list[dict[str, object]]:
    return [
        json.loads(line.removeprefix("data: "))
        for line in text.split("\n")
        if line.startswith("data: ")
    ]


def test_what_is_done_is_told_at_once_and_the_stream_ends(school):
    number = school.handed_in("anna", right())
    for answer in (
        school.browser("anna").get(f"/submissions/{number}/events"),
        school.program("anna").get(f"/api/submissions/{number}/events"),
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        (state,) = states(answer.text)
        assert (state["number"], state["state"], state["position"]) == (number, "done", None)
        assert state["judged"]["outcome"] == "right"


def heard(bell: Bell, state, concerns=lambda event: True):
    """Messages of a stream, one by one."""
    return stream(bell, "anna", state, concerns).body_iterator


def test_a_submission_is_followed_from_the_queue_to_its_verdict(school):
    first, second = school.handed_in("anna"), school.handed_in("ben")
    store = school.store

    boards, bell = Boards(school.course, store), Bell(store)
    following = Following(boards, bell, second)

    async def follow() -> list[dict[str, object]]:
        seen = []
        steps = [
            lambda: store.take("w1", {"opencl"}),
            lambda: store.finish(first, "w1", right()),
            lambda: store.take("w2", {"opencl"}),
            lambda: store.progress(second, "w2", "timing 1 of 9"),
            lambda: store.finish(second, "w2", right()),
        ]
        async for part in heard(bell, following, following.concerned):
            seen += states(part)
            while steps and state_of(boards, store, second) == seen[-1]:  # not every step is seen
                steps.pop(0)()
        return seen

    seen = asyncio.run(asyncio.wait_for(follow(), 60))
    assert [(each["state"], each["position"], each["words"]) for each in seen] == [
        ("waiting", 2, ""),
        ("waiting", 1, ""),
        ("judging", 0, ""),
        ("judging", 0, "timing 1 of 9"),
        ("done", None, ""),
    ]


def test_one_reader_looks_for_all_and_rests_when_nobody_listens(school, monkeypatch):
    store, looks = school.store, []
    usual = store.events
    monkeypatch.setattr(store, "events", lambda after: looks.append(after) or usual(after))
    bell = Bell(store)

    async def listen() -> None:
        streams = [heard(bell, lambda events: {"last": store.last_event()}) for _ in range(5)]
        await asyncio.gather(*(anext(each) for each in streams))  # all at the same moment
        assert len([task for task in asyncio.all_tasks() if "Bell._look" in repr(task)]) == 1
        assert bell.streams("anna") == 5 and bell.streams("ben") == 0
        waiting = [asyncio.ensure_future(anext(each)) for each in streams]
        await asyncio.sleep(0)
        school.handed_in("anna")
        told = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert set(told) == {f'data: {{"last": {store.last_event()}}}\n\n'}
        for each in streams:
            await each.aclose()
        assert bell.streams("anna") == 0 and bell._looking is None
        looks.clear()
        await asyncio.sleep(0.05)
        assert looks == []

    asyncio.run(listen())


def test_a_quiet_line_is_kept_open_and_ends_with_the_server(school, monkeypatch):
    monkeypatch.setattr(live, "QUIET_SECONDS", 0.01)
    bell = Bell(school.store)

    async def listen() -> list[str]:
        seen = []
        async for part in heard(bell, lambda events: {"state": "waiting"}):
            seen.append(part)
            if len(seen) == 3:
                bell.close()
        return seen

    seen = asyncio.run(asyncio.wait_for(listen(), 60))
    assert seen[0].startswith("data: ") and set(seen[1:]) == {":\n\n"}


def test_the_end_of_the_server_wakes_who_waits(school):
    bell = Bell(school.store)

    async def listen() -> None:
        asyncio.get_running_loop().call_later(0.05, bell.close)
        seen = [part async for part in heard(bell, lambda events: {"state": "waiting"})]
        assert len(seen) == 1
        # And who comes later gets the state, and no more.
        assert len([part async for part in heard(bell, lambda events: {"state": "waiting"})]) == 1

    asyncio.run(asyncio.wait_for(listen(), 60))
    assert threading.active_count() < 100


def test_nobody_takes_all_streams(school):
    bell = Bell(school.store)

    async def listen() -> None:
        streams = [heard(bell, lambda events: {"state": "waiting"}) for _ in range(MOST_STREAMS)]
        for each in streams:
            await anext(each)
        with pytest.raises(HTTPException, match="20 pages of yours"):
            heard(bell, list)
        await anext(stream(bell, "ben", lambda events: {"state": "done"}, bool).body_iterator)
        for each in streams:
            await each.aclose()
        heard(bell, list)

    asyncio.run(asyncio.wait_for(listen(), 60))


def test_places_are_worked_out_once_for_all_who_ask(school, monkeypatch):
    numbers = [school.handed_in(login) for login in ("anna", "anna", "ben")]
    places = Places(school.store)
    asked = [places(number) for number in numbers]
    assert asked == [school.store.position(number) for number in numbers] == [1, 3, 2]
    with monkeypatch.context() as patched:
        patched.setattr(school.store, "waiting", lambda: pytest.fail("asked again"))
        assert places(numbers[0]) == 1 and places(99) is None
    school.judge()
    places.forget()
    assert [places(number) for number in numbers] == [None, 2, 1]


def test_what_cannot_be_read_now_is_read_later(school, monkeypatch, capsys):
    store, usual, failed = school.store, school.store.events, []

    def sometimes(after):
        if len(failed) < 2:
            failed.append(after)
            raise TilewrightError("cannot read the class: it is locked")
        return usual(after)

    monkeypatch.setattr(store, "events", sometimes)

    async def listen() -> None:
        stream = heard(Bell(store), lambda events: {"last": store.last_event()})
        before = await anext(stream)
        school.handed_in("anna")
        assert await anext(stream) != before and len(failed) == 2
        await stream.aclose()

    asyncio.run(asyncio.wait_for(listen(), 60))
    assert "it is locked" in capsys.readouterr().err
