"""The client of the packing process, which is started once, solves request after request, and is killed to stop it."""

import asyncio
import math
import os
import pickle
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from types import TracebackType
from typing import IO, Self

from cruise.errors import UnavailableError
from cruise.packer.answer import Packing, PackingNote, PackingNoteCode
from cruise.packer.greedy import pack_quickly
from cruise.packer.problem import PackingProblem
from cruise.runtime.packing.solver_process import (
    HEADER_BYTES,
    PICKLE_PROTOCOL,
    SolveReply,
    SolveRequest,
    WarmUpStatus,
    build_process_command,
)

# Loading compiled kernels takes seconds, which do not count as solving time; compiling takes a minute.
_LOADING_SECONDS = 30.0
# How long a solver may answer after its deadline before it is killed.
_GRACE_SECONDS, _GRACE_SHARE = 1.0, 0.1
_ATTEMPTS = 2
# How long a process may take to exit after its pipe is closed.
_ENDING_SECONDS = 5.0
ProgressFunction = Callable[[Packing, float], None]

# Its matrices are small: one thread a core would only contend for the container's CPU limit.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


class SolverProcess:
    """One packing process, which exits at the latest with this process.

    It starts immediately with `start_now`, otherwise with the first request, because most clusters never need it. A
    process that dies is replaced, and its request is sent again.
    """

    def __init__(self, *, start_now: bool = True) -> None:
        self._start_now = start_now
        self._solving, self._starting = asyncio.Lock(), asyncio.Lock()
        self._numbers = count(1)
        self._child: _SolverProcessHandle | None = None
        self._tasks = asyncio.TaskGroup()
        self._closed = False

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        if self._start_now:
            await self._get_process()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if self._child is not None:
            self._child.kill()
        # Wait for the process, whatever ended the context.
        await self._tasks.__aexit__(None, None, None)

    @property
    def process_id(self) -> int | None:
        """The id of the running process, None if there is none."""
        return self._child.process.pid if self._child is not None and not self._child.ended else None

    @property
    def is_warm(self) -> bool:
        """Whether the solver is loaded, so that a request starts immediately."""
        return self._child is not None and self._child.warm

    @property
    def compiling(self) -> bool:
        """Whether the solver is being compiled, which takes a minute once after an installation."""
        return self._child is not None and self._child.compiling

    async def wait_until_warm(self) -> bool:
        """Wait until every kernel is loaded or compiled; return whether the solver could be started."""
        child = await self._get_process()
        return await child.wait_until_ready(math.inf)

    async def pack(
        self,
        problem: PackingProblem,
        seconds: float,
        on_progress: ProgressFunction | None = None,
        *,
        work_units: float = math.inf,
        seed: int = 1,
    ) -> Packing:
        """Solve within `seconds` (infinite for a limit in work units), and answer even if the solver cannot.

        `on_progress` is called with every better packing, the answer last, and the seconds since solving started; the
        time to load compiled kernels does not count. Cancelling stops the solver. Notes tell if the answer is not the
        solver's own. Raises UnavailableError if the solver fails.
        """
        async with self._solving:
            run = _SolveRun(problem, seconds, on_progress)
            answer = await self._answer(run, work_units, seed)
            run.report(answer)
            return answer

    async def _answer(self, run: "_SolveRun", work_units: float, seed: int) -> Packing:
        note = PackingNote(PackingNoteCode.NO_TIME)
        for _ in range(_ATTEMPTS):
            if run.get_remaining() <= 0:
                break
            child = await self._get_process()
            if not child.warm and run.seconds < math.inf and (await run.pack_quickly()).status.is_proved:
                # The quick answer is proved, so the solver is not needed.
                return await run.pack_quickly()
            reason = await self._wait_for_kernels(child, run)
            if reason is not None:
                note = reason
                break
            request = SolveRequest(next(self._numbers), run.problem, run.begun + run.seconds, work_units, seed)
            answer = await self._send_request(child, request, run)
            if answer is not None:
                return answer
            note = PackingNote(PackingNoteCode.SOLVER_ENDED, child.cause())
        return _add_note(await run.pack_quickly(), note)

    async def _wait_for_kernels(self, child: "_SolverProcessHandle", run: "_SolveRun") -> PackingNote | None:
        """Return None once the solver can start, otherwise why it cannot within its time."""
        if child.warm:
            return None
        run.report(await run.pack_quickly())
        loading = await child.loads_compiled()
        warm = await child.wait_until_ready(
            max(run.get_remaining(), _LOADING_SECONDS) if loading else run.get_remaining()
        )
        if warm and loading:
            run.begun = time.monotonic()
        if child.ended:
            return PackingNote(PackingNoteCode.SOLVER_NOT_STARTED, child.cause())
        return None if warm and run.get_remaining() > 0 else PackingNote(PackingNoteCode.STILL_COMPILING)

    async def _send_request(
        self, child: "_SolverProcessHandle", request: SolveRequest, run: "_SolveRun"
    ) -> Packing | None:
        """Send a request and return its answer, None if the process died; any other end stops the solver."""
        best: Packing | None = None
        done = False
        try:
            async with asyncio.timeout(run.get_response_timeout()):
                await child.send(request)
                while (reply := await child.replies.get()) is not None:
                    if reply.number != request.number:
                        continue
                    done = reply.is_last
                    if reply.packing is None:
                        error = UnavailableError(f"the solver failed: {reply.error}")
                        error.add_note(reply.trace)
                        raise error
                    if reply.is_last:
                        return reply.packing
                    best = reply.packing
                    run.report(best)
                done = True
                return None
        except TimeoutError:
            return _add_note(
                best if best is not None else await run.pack_quickly(), PackingNote(PackingNoteCode.OVER_TIME)
            )
        finally:
            if not done:
                self._replace(child)

    async def _get_process(self) -> "_SolverProcessHandle":
        async with self._starting:
            if self._child is None or self._child.ended:
                self._child = await self._start()
            return self._child

    def _replace(self, child: "_SolverProcessHandle") -> None:
        """Kill a process during its work, and start another."""
        child.kill()
        if self._child is child and not self._closed:
            self._child = None
            self._tasks.create_task(self._start_again())

    async def _start_again(self) -> None:
        # If it cannot be started, the next request raises.
        with suppress(UnavailableError):
            if not self._closed:
                await self._get_process()

    async def _start(self) -> "_SolverProcessHandle":
        errors = tempfile.TemporaryFile()
        try:
            process = await asyncio.create_subprocess_exec(
                *build_process_command("serve_requests"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env=_ENVIRONMENT | os.environ,
            )
        except OSError as error:
            raise UnavailableError(f"the packing process cannot be started: {error.strerror}") from error
        child = _SolverProcessHandle(process, errors)
        self._tasks.create_task(child.read())
        if self._closed:
            child.kill()
        return child


def _add_note(packing: Packing, note: PackingNote) -> Packing:
    return replace(packing, notes=(*packing.notes, note))


class _SolveRun:
    """One problem being solved: its start, its time limit, its progress callback and its quick answer."""

    def __init__(self, problem: PackingProblem, seconds: float, on_progress: ProgressFunction | None) -> None:
        self.problem = problem
        self.seconds = seconds
        self.begun = time.monotonic()
        self._on_progress = on_progress
        self._quick: Packing | None = None

    async def pack_quickly(self) -> Packing:
        """Return the quick method's answer."""
        if self._quick is None:
            self._quick = await asyncio.to_thread(pack_quickly, self.problem)
        return self._quick

    def report(self, packing: Packing) -> None:
        """Report a packing, with the seconds since solving started."""
        if self._on_progress is not None:
            self._on_progress(packing, time.monotonic() - self.begun)

    def get_remaining(self) -> float:
        """Return the remaining seconds."""
        return self.begun + self.seconds - time.monotonic()

    def get_response_timeout(self) -> float | None:
        """Return how long to wait for an answer, None for no limit."""
        if self.seconds == math.inf:
            return None
        return self.get_remaining() + max(_GRACE_SECONDS, self.seconds * _GRACE_SHARE)


class _SolverProcessHandle:
    """A packing process: its status and its replies in order, None at the end."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self.process = process
        self.replies: asyncio.Queue[SolveReply | None] = asyncio.Queue()
        self.warm, self.ended = False, False
        self._compiling = True
        self._has_status, self._is_settled = asyncio.Event(), asyncio.Event()
        self._errors = errors

    async def read(self) -> None:
        """Receive messages until the process has ended, then release its resources."""
        assert self.process.stdout is not None
        with suppress(asyncio.IncompleteReadError):
            while True:
                length = int.from_bytes(await self.process.stdout.readexactly(HEADER_BYTES), "big")
                # Unpickling is safe: the message is from cruise's own process.
                self._receive_message(pickle.loads(await self.process.stdout.readexactly(length)))
        await self._wait()
        self.warm, self.ended = False, True
        self._has_status.set()
        self._is_settled.set()
        self.replies.put_nowait(None)

    def _receive_message(self, message: WarmUpStatus | SolveReply) -> None:
        if isinstance(message, SolveReply):
            self.replies.put_nowait(message)
        elif message.is_warm:
            self.warm = True
            self._is_settled.set()
        else:
            self._compiling = message.compiling
            self._has_status.set()

    async def send(self, request: SolveRequest) -> None:
        """Send a request; the end of the process is noticed by its replies."""
        assert self.process.stdin is not None
        with suppress(ConnectionError):
            self.process.stdin.write(pickle.dumps(request, PICKLE_PROTOCOL))
            await self.process.stdin.drain()

    @property
    def compiling(self) -> bool:
        """Whether the process is compiling kernels, according to its last status."""
        return self._has_status.is_set() and self._compiling and not (self.warm or self.ended)

    async def loads_compiled(self) -> bool:
        """Wait for the first status; return whether the process loads compiled kernels."""
        await self._has_status.wait()
        return not self._compiling

    async def wait_until_ready(self, seconds: float) -> bool:
        """Wait until the kernels are loaded, the process ends or the time is over; return whether they are loaded."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == math.inf else max(seconds, 0.0)):
                await self._is_settled.wait()
        return self.warm

    def cause(self) -> str:
        """Return why the process has ended."""
        code = self.process.returncode or 0
        if code < 0:
            return f"signal {-code}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit {code}"

    def kill(self) -> None:
        """Kill the process."""
        # Popen.kill polls the process first, which may take its exit code from the event loop.
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)

    async def _wait(self) -> None:
        """Wait for the exit of a process whose output has ended."""
        try:
            async with asyncio.timeout(_ENDING_SECONDS):
                await self.process.wait()
        except TimeoutError:
            self.kill()
            await self.process.wait()
