"""A server in its own process group, which ends with the process that started it."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class ServerProcess:
    """One server. It ends when the pipe on its standard input closes, so also when the starter is killed."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = Path(command[0]).name
        self.log = log
        self._command, self._environment = command, environment
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                env={**environment, "CONTROLPLANE_UNTIL_STDIN_CLOSES": "yes"},
                # Ctrl-C is for the starter, who takes its servers away in order.
                process_group=0,
            )
        self._waker: subprocess.Popen[bytes] | None = None

    def started_anew(self) -> "ServerProcess":
        """Start the same server once more, with the same log."""
        return ServerProcess(self._command, self.log, self._environment)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Return whether it has not ended."""
        return self._process.poll() is None

    def pause(self) -> None:
        """Stop it where it is: connections stay open and nothing is answered."""
        assert self._waker is None, f"{self.name} is paused already"
        self._process.send_signal(signal.SIGSTOP)
        # A signal is only asked for: on a busy machine its threads run on for a while.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)
        # A stopped server cannot see its pipe close, so another process wakes it when this one has ended.
        wake = f"read -r _; kill -CONT {self.pid}"
        self._waker = subprocess.Popen(["/bin/sh", "-c", wake], stdin=subprocess.PIPE, process_group=0)

    def resume(self) -> None:
        """Let it go on, if it is paused."""
        if self._waker is not None:
            self._waker.communicate()
            self._waker = None

    def kill(self) -> None:
        """End it at once, paused or not."""
        if self._waker is not None:
            self._waker.kill()
            self._waker.communicate()
            self._waker = None
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()
