"""The packing process itself: it loads the solver, compiles what is not compiled yet, then solves order by order."""

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

# What a controller and its packing process say to each other through two pipes.

PICKLE_PROTOCOL = 5
# The process says how long each of its messages is before it.
HEADER_BYTES = 8


@dataclass(frozen=True, slots=True, eq=False)
class SolveRequest:
    """A problem to solve until a moment of the monotonic clock, or for an amount of work; `number` comes back."""

    number: int
    problem: PackingProblem
    deadline_seconds: float
    work_units: float
    seed: int


@dataclass(frozen=True, slots=True)
class WarmUpStatus:
    """Whether every kernel is in memory; until then the process loads them, or has to compile them first."""

    is_warm: bool
    compiling: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SolveReply:
    """The best packing of an order so far, or None where the solver raised: the error in one line, and from where.

    The `last` one ends the order.
    """

    number: int
    packing: Packing | None
    last: bool = True
    error: str = ""
    trace: str = ""


_ROOT = str(Path(cruise.__file__).parent.parent)
# An annealer finds better packings faster than they are read.
_REPORT_SECONDS = 0.05
# Rather this process than the controller, where memory runs out: it can be started anew.
_OOM_SCORE = 500


def build_process_command(function: str) -> tuple[str, ...]:
    """Return the command that runs a function of this module in a process of its own."""
    # Behind everything else in the search path, so that nothing in a checkout hides a library.
    start = f"import sys; sys.path.append(sys.argv[1]); from {__name__} import {function}; {function}()"
    return sys.executable, "-c", start, _ROOT


def serve_requests() -> None:
    """Solve what comes in on standard input, answer on standard output, end when the other end is gone."""
    _give_way()
    # Ctrl-C is for the process that started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    receiving, sending = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What a library prints must not be taken for an answer.
    os.dup2(2, 1)
    orders: SimpleQueue[SolveRequest] = SimpleQueue()
    threading.Thread(target=_receive, args=(receiving, orders), daemon=True).start()
    outbox = _ReplySender(sending)
    _warm_up(outbox)
    while True:
        _solve(orders.get(), outbox)


def compile_kernels() -> Path | None:
    """Compile every kernel into the cache that a packing process will use, and return where that is."""
    cache = _use_cache()
    _load(cache)
    return cache


def compile_column_kernels() -> None:
    """Compile the kernels of dense problems, and end early when standard input ends."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    from cruise.packer.warm_up import warm_up_column_kernels

    warm_up_column_kernels()


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(0)


def _use_cache() -> Path | None:
    cache = choose_cache_directory(os.environ)
    if cache is not None:
        os.environ["NUMBA_CACHE_DIR"] = str(cache)
    else:
        os.environ.pop("NUMBA_CACHE_DIR", None)
    return cache


def _load(cache: Path | None) -> None:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        # Uncompiled, kernels cannot even read the clock.
        sys.exit("NUMBA_DISABLE_JIT is set")
    # Dense and large problems share almost no kernel, so two processes compile at once.
    apart = None
    if cache is not None and not is_cache_warm(cache):
        apart = subprocess.Popen(build_process_command("compile_column_kernels"), stdin=subprocess.PIPE)
    # The compiler reads where its cache is when it is imported.
    from cruise.packer.warm_up import warm_up_column_kernels, warm_up_ejection_kernels

    warm_up_ejection_kernels()
    if apart is not None:
        apart.wait()
    # What the other process could not compile is compiled here.
    warm_up_column_kernels()
    if cache is not None:
        mark_cache_warm(cache)


def _warm_up(outbox: "_ReplySender") -> None:
    cache = _use_cache()
    outbox.send(WarmUpStatus(is_warm=False, compiling=not is_cache_warm(cache)))
    _load(cache)
    outbox.send(WarmUpStatus(is_warm=True))


def _solve(order: SolveRequest, outbox: "_ReplySender") -> None:
    from cruise.packer.budget import SolveBudget, ThreadPool
    from cruise.packer.pack import pack

    cores = count_usable_cores()
    try:
        with ThreadPoolExecutor(cores) as pool:
            budget = SolveBudget(order.deadline_seconds, order.work_units, order.seed, ThreadPool(cores, pool.map))
            packing = pack(
                order.problem, budget, lambda better: outbox.report(SolveReply(order.number, better, last=False))
            )
    except Exception as error:
        outbox.finish(SolveReply(order.number, None, error=_line(error), trace=traceback.format_exc()))
        return
    outbox.finish(SolveReply(order.number, packing))


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")


def _receive(receiving: BinaryIO, orders: "SimpleQueue[SolveRequest]") -> None:
    """Take orders until the other process has ended, however it did; then end this one wherever it is."""
    try:
        while True:
            orders.put(pickle.load(receiving))
    finally:
        os._exit(0)


def _give_way() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(_OOM_SCORE))
    except OSError:
        # Not Linux, or forbidden: then it is as likely to be killed as any other.
        return


class _ReplySender:
    """Sends messages; of packings that come in quick succession only the last, a little later."""

    def __init__(self, sending: BinaryIO) -> None:
        self._sending = sending
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._latest: SolveReply | None = None
        threading.Thread(target=self._send_latest, daemon=True).start()

    def send(self, message: WarmUpStatus | SolveReply) -> None:
        """Send at once."""
        body = pickle.dumps(message, PICKLE_PROTOCOL)
        try:
            with self._writing:
                self._sending.write(len(body).to_bytes(HEADER_BYTES, "big") + body)
                self._sending.flush()
        except OSError:
            # The reader is gone.
            os._exit(0)

    def report(self, message: SolveReply) -> None:
        """Send soon, unless a better one comes first; never waits for the reader."""
        with self._changed:
            self._latest = message
            self._changed.notify()

    def finish(self, message: SolveReply) -> None:
        """Send what ends an order."""
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
