from __future__ import annotations

import pytest

from tilewright.trace import Event, Trace, calling, moving, reaching


def ticking(step=1.0):
    now = -step

    def clock():
        nonlocal now
        now += step
        return now

    return clock


def test_a_phase_is_recorded_also_when_it_fails():
    trace = Trace(clock=ticking())
    with pytest.raises(RuntimeError), trace.phase("load data"):
        raise RuntimeError
    (event,) = trace.events
    assert (event.kind, event.name, event.start, event.end) == ("phase", "load data", 1, 2)
    assert trace.phase_seconds("load data") == 1


def test_events_are_chosen_by_kind():
    trace = Trace()
    trace.add(Event("kernel", "k", 0, 1, ("conv1",)))
    trace.add(Event("copy", "host to device", 1, 3, bytes=8))
    assert [event.seconds for event in trace.of("copy")] == [2]
    assert trace.of("kernel")[0].layers == ("conv1",)


def test_sinks_get_every_event_and_the_trace_need_not_keep_any():
    seen = []
    trace = Trace(keep=False, sinks=(seen.append, seen.append))
    trace.add(Event("kernel", "k", 0, 1))
    assert len(seen) == 2
    assert trace.events == []


def test_a_detailed_trace_has_layers_and_calls():
    trace = Trace(clock=ticking(), detailed=True)
    with reaching(trace, ("conv1", "relu1")):
        assert trace.inside == ("conv1", "relu1")
        with calling(trace, "clFinish") as number:
            pass
    call, layer = trace.events
    assert (call.kind, call.name, call.layers) == ("api", "clFinish", ("conv1", "relu1"))
    assert call.correlation == number == 1
    assert (layer.kind, layer.name, layer.layers) == ("layer", "conv1..relu1", ("conv1", "relu1"))
    assert layer.start < call.start < call.end < layer.end
    assert trace.inside == ()


@pytest.mark.parametrize("trace", [None, Trace()])
def test_nobody_else_pays_for_details(trace):
    with reaching(trace, ("conv1",)), calling(trace, "clFinish") as number:
        assert number == 0
    assert trace is None or trace.events == []


def test_what_a_collector_sees_is_not_recorded_twice():
    trace = Trace(detailed=True, collector=object())
    with calling(trace, "cudaStreamSynchronize"):
        pass
    assert trace.events == []


def test_a_layer_and_a_call_end_also_when_they_fail():
    trace = Trace(detailed=True)
    with pytest.raises(RuntimeError), trace.layer(("fc",)), trace.call("clFinish"):
        raise RuntimeError
    assert [event.kind for event in trace.events] == ["api", "layer"]
    assert trace.inside == ()


def test_a_copy_knows_its_array_and_the_line_that_asks_for_it():
    trace = Trace(detailed=True)
    assert trace.moved is None
    with moving(trace, "images"):
        assert trace.moved.array == "images" and trace.moved.place.startswith("test_trace:")
        with moving(trace, "conv1.weight"):
            assert trace.moved.array == "conv1.weight"
        assert trace.moved.array == "images"
    assert trace.moved is None
    timed = Trace()  # where nobody asks for details, nothing is looked up
    with moving(timed, "images"), moving(None, "images"):
        assert timed.moved is None
