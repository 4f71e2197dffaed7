"""The warm process that packs: started once, given problem after problem, killed to stop it, and started anew."""

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
from cruise.packer.pack import pack_quickly
from cruise.packer.problem import PackingProblem
from cruise.runtime.packing.solver_process import (
    HEADER_BYTES,
    PICKLE_PROTOCOL,
    SolveReply,
    SolveRequest,
    WarmUpStatus,
    build_process_command,
)

# Loading compiled kernels takes seconds, and is no part of the time to solve in; compiling them takes a minute.
_LOADING_SECONDS = 30.0
# How long after its deadline a solver may still answer before it is stopped.
_GRACE_SECONDS, _GRACE_SHARE = 1.0, 0.1
_ATTEMPTS = 2
# How long a process may take to end once its pipe is closed.
_ENDING_SECONDS = 5.0
ProgressFunction = Callable[[Packing, float], None]

# Its matrices are small, and threads for them, one a core of the node, wait for each other within a container's limit.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


class SolverProcess:
    """One packing process, for as long as the context lasts; it ends with this one, however that ends.

    It starts loading `at_once` or, as most clusters never need it, with the first order, and stays. A process that dies
    is replaced, and its order given once more.
    """

    def __init__(self, *, at_once: bool = True) -> None:
        self._at_once = at_once
        self._turn, self._starting = asyncio.Lock(), asyncio.Lock()
        self._numbers = count(1)
        self._child: _SolverProcessHandle | None = None
        self._tasks = asyncio.TaskGroup()
        self._closed = False

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        if self._at_once:
            await self._living()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if self._child is not None:
            self._child.kill()
        # Whatever ended the context, its process is waited for.
        await self._tasks.__aexit__(None, None, None)

    @property
    def process_id(self) -> int | None:
        """The process that runs now, None while there is none."""
        return self._child.process.pid if self._child is not None and not self._child.ended else None

    @property
    def wait_until_warm(self) -> bool:
        """Whether the solver is in memory, so that an order starts at once."""
        return self._child is not None and self._child.warm

    @property
    def compiling(self) -> bool:
        """Whether the solver is being compiled, which takes a minute once after an installation."""
        return self._child is not None and self._child.compiling

    async def ready(self) -> bool:
        """Wait until every kernel is loaded or compiled; tell whether the solver could be started at all."""
        child = await self._living()
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
        """Solve within `seconds` (infinite for replay by work units), and answer even where the solver cannot.

        `on_progress` is called with every better packing, the answer last, and the seconds since solving began; what
        a process needs to load compiled kernels is not among them. Cancelling stops the solver. Notes tell where the
        answer is not the solver's own. Raises Unavailable where the solver fails.
        """
        async with self._turn:
            run = _SolveRun(problem, seconds, on_progress)
            answer = await self._answer(run, work_units, seed)
            run.report(answer)
            return answer

    async def _answer(self, run: "_SolveRun", work_units: float, seed: int) -> Packing:
        complaint = PackingNote(PackingNoteCode.NO_TIME)
        for _ in range(_ATTEMPTS):
            if run.get_remaining() <= 0:
                break
            child = await self._living()
            if not child.warm and run.seconds < math.inf and (await run.pack_quickly()).status.is_proved:
                # Nothing is left to find out, so the solver is not waited for.
                return await run.pack_quickly()
            missing = await self._wait_for_kernels(child, run)
            if missing is not None:
                complaint = missing
                break
            order = SolveRequest(next(self._numbers), run.problem, run.begun + run.seconds, work_units, seed)
            answer = await self._ask(child, order, run)
            if answer is not None:
                return answer
            complaint = PackingNote(PackingNoteCode.SOLVER_ENDED, child.cause())
        return _noted(await run.pack_quickly(), complaint)

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

    async def _ask(self, child: "_SolverProcessHandle", order: SolveRequest, run: "_SolveRun") -> Packing | None:
        """Give an order and return its answer, None where the process died; whatever stops this stops the solver."""
        best: Packing | None = None
        done = False
        try:
            async with asyncio.timeout(run.get_patience()):
                await child.send(order)
                while (reply := await child.replies.get()) is not None:
                    if reply.number != order.number:
                        continue
                    done = reply.last
                    if reply.packing is None:
                        error = UnavailableError(f"the solver failed: {reply.error}")
                        error.add_note(reply.trace)
                        raise error
                    if reply.last:
                        return reply.packing
                    best = reply.packing
                    run.report(best)
                done = True
                return None
        except TimeoutError:
            return _noted(
                best if best is not None else await run.pack_quickly(), PackingNote(PackingNoteCode.OVER_TIME)
            )
        finally:
            if not done:
                self._replace(child)

    async def _living(self) -> "_SolverProcessHandle":
        async with self._starting:
            if self._child is None or self._child.ended:
                self._child = await self._start()
            return self._child

    def _replace(self, child: "_SolverProcessHandle") -> None:
        """Stop a process in the middle of its work, and start loading another."""
        child.kill()
        if self._child is child and not self._closed:
            self._child = None
            self._tasks.create_task(self._start_again())

    async def _start_again(self) -> None:
        # Where it cannot be started, the next order says so.
        with suppress(UnavailableError):
            if not self._closed:
                await self._living()

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


def _noted(packing: Packing, note: PackingNote) -> Packing:
    return replace(packing, notes=(*packing.notes, note))


class _SolveRun:
    """One problem on its way: since when, until when, where progress goes, and what the quick method makes of it."""

    def __init__(self, problem: PackingProblem, seconds: float, on_progress: ProgressFunction | None) -> None:
        self.problem = problem
        self.seconds = seconds
        self.begun = time.monotonic()
        self._on_progress = on_progress
        self._quick: Packing | None = None

    async def pack_quickly(self) -> Packing:
        """What the quick method answers."""
        if self._quick is None:
            self._quick = await asyncio.to_thread(pack_quickly, self.problem)
        return self._quick

    def report(self, packing: Packing) -> None:
        """Hand on a packing, with the seconds since solving began."""
        if self._on_progress is not None:
            self._on_progress(packing, time.monotonic() - self.begun)

    def get_remaining(self) -> float:
        """What is left of the time."""
        return self.begun + self.seconds - time.monotonic()

    def get_patience(self) -> float | None:
        """How long an answer is waited for; None for as long as it takes."""
        if self.seconds == math.inf:
            return None
        return self.get_remaining() + max(_GRACE_SECONDS, self.seconds * _GRACE_SHARE)


class _SolverProcessHandle:
    """A packing process as seen from here: what it said of itself, and its replies in order, None at the end."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self.process = process
        self.replies: asyncio.Queue[SolveReply | None] = asyncio.Queue()
        self.warm, self.ended = False, False
        self._compiling = True
        self._spoke, self._settled = asyncio.Event(), asyncio.Event()
        self._errors = errors

    async def read(self) -> None:
        """Take in messages until the process has ended, and clear away what is left of it."""
        assert self.process.stdout is not None
        with suppress(asyncio.IncompleteReadError):
            while True:
                length = int.from_bytes(await self.process.stdout.readexactly(HEADER_BYTES), "big")
                # Only ever from a process of one's own.
                self._take(pickle.loads(await self.process.stdout.readexactly(length)))
        await self._wait()
        self.warm, self.ended = False, True
        self._spoke.set()
        self._settled.set()
        self.replies.put_nowait(None)

    def _take(self, message: WarmUpStatus | SolveReply) -> None:
        if isinstance(message, SolveReply):
            self.replies.put_nowait(message)
        elif message.is_warm:
            self.warm = True
            self._settled.set()
        else:
            self._compiling = message.compiling
            self._spoke.set()

    async def send(self, order: SolveRequest) -> None:
        """Give an order; that a process is gone is noticed by its replies."""
        assert self.process.stdin is not None
        with suppress(ConnectionError):
            self.process.stdin.write(pickle.dumps(order, PICKLE_PROTOCOL))
            await self.process.stdin.drain()

    @property
    def compiling(self) -> bool:
        """Whether the process is compiling kernels, as far as it has said."""
        return self._spoke.is_set() and self._compiling and not (self.warm or self.ended)

    async def loads_compiled(self) -> bool:
        """Tell whether the process loads compiled kernels, once it has said so."""
        await self._spoke.wait()
        return not self._compiling

    async def wait_until_ready(self, seconds: float) -> bool:
        """Wait until the kernels are there or the process is gone, at most so long; tell whether they are there."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == math.inf else max(seconds, 0.0)):
                await self._settled.wait()
        return self.warm

    def cause(self) -> str:
        """Why the process has ended, in words."""
        code = self.process.returncode or 0
        if code < 0:
            return f"signal {-code}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit {code}"

    def kill(self) -> None:
        """End the process at once, wherever it is."""
        # Popen's own kill looks first whether the process has ended, and may take its exit code from the event loop.
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)

    async def _wait(self) -> None:
        """Wait for the end of a process that has nothing more to say."""
        try:
            async with asyncio.timeout(_ENDING_SECONDS):
                await self.process.wait()
        except TimeoutError:
            self.kill()
            await self.process.wait()
