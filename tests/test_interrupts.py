from __future__ import annotations

import signal
import threading

import pytest

from tilewright.interrupts import held_back


def test_what_is_inside_is_finished_first(press_ctrl_c):
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        press_ctrl_c()
        press_ctrl_c()
        done.append("inside")
    assert done == ["inside"]
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c()  # as always


def test_one_inside_the_other(press_ctrl_c):
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        with held_back():
            press_ctrl_c()
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]


def test_it_is_not_forgotten_if_something_fails(press_ctrl_c):
    with pytest.raises(KeyboardInterrupt), held_back():
        press_ctrl_c()
        raise ValueError("wrong")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_and_processes_that_ignore_it_are_left_alone(press_ctrl_c):
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
            press_ctrl_c()
            done.append("ignored")
    finally:
        signal.signal(signal.SIGINT, usual)
    assert done == ["thread", "ignored"]
