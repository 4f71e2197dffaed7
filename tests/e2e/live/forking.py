"""Runs cruise in processes forked from one that has imported everything, one per test worker.

Scenes start some hundred of them, and each would import for a second and a half of a core. What differs from a process
of its own is its command line and that its modules were imported before; its environment, its directory, its streams,
its signals and its end are its own. `tests/e2e/test_serve_starting.py` and `tests/cli` start theirs as users do.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[3]
# What commands import when they are called.
IMPORTED = (
    "cruise.app.check",
    "cruise.app.revert",
    "cruise.app.serve.single_pass",
    "cruise.app.serve.serve",
    "cruise.app.webhook",
    "cruise.cli",
    "cruise.cli.inputs.live_cluster",
    "cruise.cli.inputs.usage",
    "cruise.cli.inputs.store",
    "cruise.decisions.explanation.pod_explanation",
    "cruise.decisions.preflight.preflight",
    "cruise.decisions.scan.findings",
    "uvloop",
)
_LONGEST_REQUEST = 1 << 20


class ForkedProcess:
    """A process that was forked; it is used as a `subprocess.Popen` is."""

    def __init__(self, status: socket.socket) -> None:
        self._status = status
        self.pid = _number(status)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, minus the signal that ended it, or None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = _number(self._status)
            self._status.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Raises TimeoutExpired."""
        if self.returncode is None and not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("cruise", timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as a crash would."""
        self.send_signal(signal.SIGKILL)


def fork_process(arguments: Sequence[str], environment: Mapping[str, str], out: IO[Any], err: IO[Any]) -> ForkedProcess:
    """Start `cruise` with arguments, in exactly this environment, without an input."""
    ours, theirs = socket.socketpair()
    request = json.dumps([list(arguments), dict(environment)]).encode()
    assert len(request) < _LONGEST_REQUEST
    with theirs:
        socket.send_fds(_origin(), [request], [out.fileno(), err.fileno(), theirs.fileno()])
    return ForkedProcess(ours)


@cache
def _origin() -> socket.socket:
    """Start the process that others are forked from; it ends when this one does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            env=kept,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    return ours


def _number(status: socket.socket) -> int:
    said = status.recv(16, socket.MSG_WAITALL)
    assert len(said) == 16, "the process that cruise is forked from has ended"
    return int(said)


def _serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request; return the arguments in a process that is to be cruise, and None at the end."""
    for name in IMPORTED:
        import_module(name)
    gc.freeze()
    # Who ends the tests by Ctrl-C ends each process of theirs, and then this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        request, files, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, 3)
        if not request:
            return None
        # Who has watched over a process to its end.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork() == 0:
            requests.close()
            return _watched(request, *files)
        for file in files:
            os.close(file)


def _watched(request: bytes, out: int, err: int, status: int) -> list[str]:
    """Fork, and report the process and its end; return its arguments in the process itself."""
    process = os.fork()
    if process == 0:
        os.close(status)
        return _become(request, out, err)
    # The waiting process may have been killed.
    with socket.socket(fileno=status) as teller, contextlib.suppress(OSError):
        teller.send(b"%16d" % process)
        teller.send(b"%16d" % os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    os._exit(0)


def _become(request: bytes, out: int, err: int) -> list[str]:
    arguments, environment = json.loads(request)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return list(arguments)


if __name__ == "__main__":
    wanted = _serve(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None:
        from cruise.cli import main

        sys.argv = ["cruise", *wanted]
        sys.exit(main())
