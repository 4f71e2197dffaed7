import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from cruise.errors import UnavailableError
from cruise.packer.answer import PackingNote, PackingNoteCode, PackingStatus
from cruise.runtime.packing.kernel_cache import compute_kernels_key
from cruise.runtime.packing.solver_client import SolverProcess
from tests.runtime.packing.packing_problems import make_problem

PLENTY = 60.0


@asynccontextmanager
async def warm_worker():
    """A worker whose solver is in memory."""
    async with SolverProcess() as worker:
        assert await worker.wait_until_warm()
        yield worker


def running(process_id: int) -> bool:
    """Return whether a process is there and has not ended."""
    try:
        with open(f"/proc/{process_id}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def vanish(process_id: int) -> None:
    while running(process_id):
        await asyncio.sleep(0.01)


async def test_it_answers_again_and_again_from_one_process():
    problem = make_problem()
    told = []
    async with warm_worker() as worker:
        first = worker.process_id
        answer = await worker.pack(problem, PLENTY, lambda packing, seconds: told.append((packing, seconds)))
        again = await worker.pack(problem, PLENTY)
        assert worker.process_id == first
    assert answer.planned.priorities[0].placed == 1
    assert answer.notes == again.notes == ()
    assert answer.pod_node.tolist() == again.pod_node.tolist()
    assert told[-1][0] is answer
    assert all(0 <= seconds < PLENTY for _, seconds in told)


async def test_it_has_no_thread_for_each_core_of_the_node():
    async with warm_worker() as worker:
        # It solves, receives and sends.
        assert len(os.listdir(f"/proc/{worker.process_id}/task")) == 3


async def test_the_process_is_gone_once_the_context_is_left():
    async with SolverProcess() as worker:
        process = worker.process_id
        assert process is not None
    assert not running(process)
    assert worker.process_id is None


async def test_the_process_is_started_with_the_first_order_where_it_is_not_needed_before():
    async with SolverProcess(start_now=False) as worker:
        assert worker.process_id is None
        await worker.pack(make_problem(), 0.0)
        assert worker.process_id is None
        await worker.pack(make_problem(), PLENTY)
        process = worker.process_id
        assert process is not None
    assert not running(process)


@pytest.mark.server
async def test_replay_by_work_repeats_itself():
    problem = make_problem()
    async with warm_worker() as worker:
        answers = [await worker.pack(problem, math.inf, work_units=1e7, seed=5) for _ in range(2)]
    assert answers[0].pod_node.tolist() == answers[1].pod_node.tolist()
    assert answers[0].bound == answers[1].bound


async def test_a_dead_process_is_replaced_and_retried_once():
    async with warm_worker() as worker:
        first = worker.process_id
        assert first is not None
        # It stands still, so that it dies in the middle of its work.
        os.kill(first, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(0.2, os.kill, first, signal.SIGKILL)
        answer = await worker.pack(make_problem(), PLENTY)
        assert worker.process_id not in (None, first)
    assert answer.notes == ()
    assert answer.planned.priorities[0].placed == 1


@pytest.mark.server
async def test_if_the_solver_process_always_crashes_the_quick_method_answers():
    async def kill_all(worker: SolverProcess) -> None:
        while True:
            if worker.process_id is not None:
                os.kill(worker.process_id, signal.SIGKILL)
                await vanish(worker.process_id)
            await asyncio.sleep(0.01)

    async with SolverProcess() as worker:
        killing = asyncio.ensure_future(kill_all(worker))
        answer = await worker.pack(make_problem(), PLENTY)
        killing.cancel()
    assert answer.planned.priorities[0].placed == 1
    [note] = answer.notes
    assert note.code in (PackingNoteCode.SOLVER_NOT_STARTED, PackingNoteCode.SOLVER_ENDED)
    assert note.detail == "signal 9"


@pytest.mark.server
async def test_an_idle_process_that_died_is_replaced():
    async with warm_worker() as worker:
        first = worker.process_id
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await vanish(first)
        answer = await worker.pack(make_problem(), PLENTY)
        assert worker.process_id not in (None, first)
    assert answer.notes == ()


@pytest.mark.server
async def test_a_solver_that_does_not_stop_is_stopped():
    async with warm_worker() as worker:
        first = worker.process_id
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        answer = await worker.pack(make_problem(), 0.1)
        assert answer.notes == (PackingNote(PackingNoteCode.OVER_TIME),)
        assert answer.planned.priorities[0].placed == 1
        await vanish(first)
        # The next one loads already.
        assert await worker.wait_until_warm()
        assert worker.process_id != first


@pytest.mark.server
async def test_cancelling_stops_the_solver_and_the_next_order_is_answered():
    async with warm_worker() as worker:
        first = worker.process_id
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        order = asyncio.ensure_future(worker.pack(make_problem(), PLENTY))
        await asyncio.sleep(0.1)
        order.cancel()
        with pytest.raises(asyncio.CancelledError):
            await order
        await vanish(first)
        answer = await worker.pack(make_problem(), PLENTY)
    assert answer.notes == ()


@pytest.mark.server
async def test_a_solver_that_raises_remains_unavailable():
    problem = make_problem()
    broken = replace(problem, pod_class=np.full_like(problem.pod_class, 99))
    async with warm_worker() as worker:
        first = worker.process_id
        with pytest.raises(UnavailableError, match="the solver failed: "):
            await worker.pack(broken, PLENTY)
        assert (await worker.pack(problem, PLENTY)).notes == ()
        assert worker.process_id == first


async def test_without_time_the_quick_method_answers():
    async with SolverProcess() as worker:
        answer = await worker.pack(make_problem(), 0)
    assert answer.notes == (PackingNote(PackingNoteCode.NO_TIME),)
    assert answer.planned.priorities[0].placed == 1


async def test_with_no_compiled_kernels_the_quick_method_answers_and_says_so(tmp_path, monkeypatch):
    # An empty directory of this release: one that is not there would be filled from the installation's.
    (tmp_path / f"compiled-{compute_kernels_key()}").mkdir(mode=0o700)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    told = []
    async with SolverProcess() as worker:
        begun = time.monotonic()
        answer = await worker.pack(make_problem(), 0.3, lambda packing, seconds: told.append(packing))
        taken = time.monotonic() - begun
    assert answer.notes == (PackingNote(PackingNoteCode.STILL_COMPILING),)
    assert answer.planned.priorities[0].placed == 1
    # A whole plan was there before the wait.
    assert len(told) == 2
    assert taken < PLENTY


async def test_what_the_quick_method_proves_is_answered_without_the_solver(tmp_path, monkeypatch):
    (tmp_path / f"compiled-{compute_kernels_key()}").mkdir(mode=0o700)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    async with SolverProcess() as worker:
        answer = await worker.pack(make_problem(capacity=6), PLENTY)
    assert answer.status is PackingStatus.OPTIMAL
    assert answer.notes == ()


async def test_without_a_compiler_the_quick_method_answers_and_says_why(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    async with SolverProcess() as worker:
        assert not await worker.wait_until_warm()
        answer = await worker.pack(make_problem(), PLENTY)
    assert answer.notes[0] == PackingNote(PackingNoteCode.SOLVER_NOT_STARTED, "NUMBA_DISABLE_JIT is set")
    assert answer.planned.priorities[0].placed == 1


PARENT = """
import asyncio
from cruise.runtime.packing.kernel_cache import compute_kernels_key
from cruise.runtime.packing.solver_client import SolverProcess

async def main():
    async with SolverProcess() as worker:
        print(worker.process_id, flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.mark.server
async def test_it_ends_with_its_parent_even_when_that_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    process = int(parent.stdout.readline())
    assert running(process)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    await asyncio.wait_for(vanish(process), PLENTY)
    assert not running(process)


def test_nothing_compiled_is_loaded_into_the_calling_process():
    code = """
import sys
from cruise.packer.greedy import pack_quickly
from cruise.runtime.packing.kernel_cache import compute_kernels_key
from cruise.runtime.packing.solver_client import SolverProcess
from tests.runtime.packing.packing_problems import make_problem
pack_quickly(make_problem())
print(sorted({name.partition(".")[0] for name in sys.modules} & {"numba", "llvmlite", "ortools"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
