"""Stop requests by signals, of runs and of sweeps."""

from __future__ import annotations

import signal
import threading

import pytest

from noisynet.runs.stop_signals import StopRequest, stop_on_signals


def test_the_second_signal_asks_to_stop_immediately() -> None:
    with stop_on_signals() as request:
        assert not request()
        signal.raise_signal(signal.SIGTERM)
        assert (request(), request.immediate, request.signal) == (True, False, signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert (request.immediate, request.signal) == (True, signal.SIGTERM)


def test_only_a_second_ctrl_c_interrupts() -> None:
    with stop_on_signals(interrupt_twice=True) as stop:
        assert not stop()
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
            assert stop()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_sighup_is_handled_unless_it_is_ignored() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        for disposition, requested in ((signal.SIG_DFL, True), (signal.SIG_IGN, False)):
            signal.signal(signal.SIGHUP, disposition)
            with stop_on_signals((signal.SIGHUP,)) as request:
                signal.raise_signal(signal.SIGHUP)
            assert request() is requested
            assert signal.getsignal(signal.SIGHUP) is disposition
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_no_handler_is_installed() -> None:
    before, made = signal.getsignal(signal.SIGTERM), list[StopRequest]()

    def body() -> None:
        with stop_on_signals() as request:
            made.append(request)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert not made[0]()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_handler_that_was_replaced_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as request:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert not request()
        signal.raise_signal(signal.SIGTERM)
        assert request()
    assert signal.getsignal(signal.SIGTERM) is before
    assert not request.handled
