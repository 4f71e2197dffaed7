"""The packing process: loads the solver, compiles missing kernels, then solves request after request."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import cruise
from cruise.packer.answer import Packing
from cruise.packer.problem import PackingProblem
from cruise.runtime.cores import count_usable_cores
from cruise.runtime.packing.kernel_cache import choose_cache_directory, is_cache_warm, mark_cache_warm

# The messages between a controller and its packing process, through two pipes.

PICKLE_PROTOCOL = 5
# Each message of the process is preceded by its length.
HEADER_BYTES = 8
_ROOT = str(Path(cruise.__file__).parent.parent)
# Annealing finds better packings faster than they are read.
_REPORT_SECONDS = 0.05
# If memory runs out, the kernel kills this process before the controller: it can be restarted.
_OOM_SCORE = 500


@dataclass(frozen=True, slots=True, eq=False)
class SolveRequest:
    """A problem to solve until a time of the monotonic clock, or with an amount of work; replies repeat `number`."""

    number: int
    problem: PackingProblem
    deadline_seconds: float
    work_units: float
    seed: int


@dataclass(frozen=True, slots=True)
class WarmUpStatus:
    """Whether every kernel is loaded; until then the process loads or compiles them."""

    is_warm: bool
    compiling: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SolveReply:
    """The best packing of a request so far, or None if the solver raised: the error in one line, and its traceback.

    The `is_last` reply ends the request.
    """

    number: int
    packing: Packing | None
    is_last: bool = True
    error: str = ""
    trace: str = ""


def build_process_command(function: str) -> tuple[str, ...]:
    """Return the command that runs a function of this module in a separate process."""
    # Last in the search path, so that nothing in a checkout hides a library.
    start = f"import sys; sys.path.append(sys.argv[1]); from {__name__} import {function}; {function}()"
    return sys.executable, "-c", start, _ROOT


def serve_requests() -> None:
    """Solve the requests of standard input, write replies to standard output, exit when the pipe is closed."""
    _raise_oom_score()
    # The parent process handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    receiving, sending = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # The output of libraries must not be read as a reply.
    os.dup2(2, 1)
    requests: SimpleQueue[SolveRequest] = SimpleQueue()
    threading.Thread(target=_receive, args=(receiving, requests), daemon=True).start()
    outbox = _ReplySender(sending)
    _warm_up(outbox)
    while True:
        _solve(requests.get(), outbox)


def compile_kernels() -> Path | None:
    """Compile every kernel into the cache that a packing process uses, and return its directory."""
    cache = _set_cache_directory()
    _load_kernels(cache)
    return cache


def compile_column_kernels() -> None:
    """Compile the kernels of dense problems; exit when standard input is closed."""
    threading.Thread(target=_exit_when_input_ends, daemon=True).start()
    from cruise.packer.warm_up import warm_up_column_kernels

    warm_up_column_kernels()


def _exit_when_input_ends() -> None:
    os.read(0, 1)
    os._exit(0)


def _set_cache_directory() -> Path | None:
    cache = choose_cache_directory(os.environ)
    if cache is not None:
        os.environ["NUMBA_CACHE_DIR"] = str(cache)
    else:
        os.environ.pop("NUMBA_CACHE_DIR", None)
    return cache


def _load_kernels(cache: Path | None) -> None:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        # Without compilation, kernels cannot read the clock.
        sys.exit("NUMBA_DISABLE_JIT is set")
    # Dense and large problems share almost no kernels, so two processes compile in parallel.
    compiler = None
    if cache is not None and not is_cache_warm(cache):
        compiler = subprocess.Popen(build_process_command("compile_column_kernels"), stdin=subprocess.PIPE)
    # Numba reads the cache directory when it is imported.
    from cruise.packer.warm_up import warm_up_column_kernels, warm_up_ejection_kernels

    warm_up_ejection_kernels()
    if compiler is not None:
        compiler.wait()
    # Compiles what the other process could not.
    warm_up_column_kernels()
    if cache is not None:
        mark_cache_warm(cache)


def _warm_up(outbox: "_ReplySender") -> None:
    cache = _set_cache_directory()
    outbox.send(WarmUpStatus(is_warm=False, compiling=not is_cache_warm(cache)))
    _load_kernels(cache)
    outbox.send(WarmUpStatus(is_warm=True))


def _solve(request: SolveRequest, outbox: "_ReplySender") -> None:
    from cruise.packer.budget import SolveBudget, ThreadPool
    from cruise.packer.pack import pack

    cores = count_usable_cores()
    try:
        with ThreadPoolExecutor(cores) as pool:
            budget = SolveBudget(
                request.deadline_seconds, request.work_units, request.seed, ThreadPool(cores, pool.map)
            )
            packing = pack(
                request.problem, budget, lambda better: outbox.report(SolveReply(request.number, better, is_last=False))
            )
    except Exception as error:
        outbox.finish(SolveReply(request.number, None, error=_format_error(error), trace=traceback.format_exc()))
        return
    outbox.finish(SolveReply(request.number, packing))


def _format_error(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")


def _receive(receiving: BinaryIO, requests: "SimpleQueue[SolveRequest]") -> None:
    """Receive requests until the parent process has ended, then exit."""
    try:
        while True:
            requests.put(pickle.load(receiving))
    finally:
        os._exit(0)


def _raise_oom_score() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(_OOM_SCORE))
    except OSError:
        # Not Linux, or forbidden: then the process has the default OOM score.
        return


class _ReplySender:
    """Sends messages; of packings in quick succession only the last one, with a delay."""

    def __init__(self, sending: BinaryIO) -> None:
        self._sending = sending
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._latest: SolveReply | None = None
        threading.Thread(target=self._send_latest, daemon=True).start()

    def send(self, message: WarmUpStatus | SolveReply) -> None:
        """Send immediately."""
        body = pickle.dumps(message, PICKLE_PROTOCOL)
        try:
            with self._writing:
                self._sending.write(len(body).to_bytes(HEADER_BYTES, "big") + body)
                self._sending.flush()
        except OSError:
            # The parent process has ended.
            os._exit(0)

    def report(self, message: SolveReply) -> None:
        """Send soon, unless a better packing comes first; never waits for the reader."""
        with self._changed:
            self._latest = message
            self._changed.notify()

    def finish(self, message: SolveReply) -> None:
        """Send the last message of a request."""
        with self._changed:
            self._latest = None
        self.send(message)

    def _send_latest(self) -> None:
        pause = threading.Event()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._latest is not None)
                latest, self._latest = self._latest, None
            if latest is not None:
                self.send(latest)
            pause.wait(_REPORT_SECONDS)
