from __future__ import annotations

import os
import signal
import threading

import pytest

from tilewright.interrupts import held_back


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_what_is_inside_is_finished_first():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        press()
        press()
        done.append("inside")
    assert done == ["inside"]
    with pytest.raises(KeyboardInterrupt):
        press()  # as always


def test_one_inside_the_other():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        with held_back():
            press()
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]


def test_an_error_comes_first():
    with pytest.raises(ValueError, match="wrong"), held_back():
        press()
        raise ValueError("wrong")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_and_processes_that_ignore_it_are_left_alone():
    done = []

    def work():
        with held_back():
            done.append("thread")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back():
            press()
            done.append("ignored")
    finally:
        signal.signal(signal.SIGINT, usual)
    assert done == ["thread", "ignored"]
