"""Termination by signals, in a separate process."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, time
from cruise.app.process import (exit_if_busy, run_until_signal)

async def work():
    try:
        print("at work", flush=True)
        await asyncio.sleep(60)
    finally:
        print("clearing up", flush=True)
        await asyncio.sleep({clearing_up})
        print("cleared up", flush=True)

async def stuck():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def main():
    left = asyncio.ensure_future(stuck()) if {leaves_behind!r} == "task" else None
    if {leaves_behind!r} == "thread":
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    stopped = await run_until_signal(work())
    print("stopped" if stopped else "ended", flush=True)
    exit_if_busy(7)

asyncio.run(main())
"""


@contextmanager
def at_work(clearing_up: float = 0.0, leaves_behind: str = "nothing") -> Iterator["subprocess.Popen[str]"]:
    program = PROGRAM.format(clearing_up=clearing_up, leaves_behind=leaves_behind)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    ) as process:
        try:
            until_line(process, "at work")
            yield process
        finally:
            process.kill()


def until_line(process: "subprocess.Popen[str]", wanted: str) -> None:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.strip() == wanted:
            return
    raise AssertionError("".join(seen))


def rest(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None
    return process.stdout.read().split("\n")[:-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cancels_the_work_and_awaits_its_end(number: signal.Signals):
    with at_work(clearing_up=0.1) as process:
        process.send_signal(number)
        lines = rest(process)
        assert process.wait(30) == 0
    assert [line for line in lines if "event" not in line and "stopping" not in line] == [
        "clearing up",
        "cleared up",
        "stopped",
    ]


def test_a_second_signal_does_not_wait():
    with at_work(clearing_up=60) as process:
        process.send_signal(signal.SIGTERM)
        until_line(process, "clearing up")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM


@pytest.mark.parametrize("what", ["task", "thread"])
def test_the_end_does_not_wait_for_what_was_left_behind(what: str):
    with at_work(leaves_behind=what) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 7


def test_imported_objects_do_not_delay_the_collection_of_cycles():
    program = """
import asyncio, gc
import cruise.app.serve.serve
from cruise.app.process import run_as_service

async def work():
    print(gc.get_freeze_count() > 100_000, sum(len(gc.get_objects(generation)) for generation in range(3)) < 10_000)

asyncio.run(run_as_service(work()))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ended.stdout == "True True\n", ended.stderr
