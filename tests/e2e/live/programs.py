"""cruise as its users run it: a process of its own, with a ServiceAccount's kubeconfig and settings by environment."""

import json
import os
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tests.controlplane.api import wait_until
from tests.e2e.live.forking import ForkedProcess, fork_process
from tests.prometheus_server import free_port

Json = dict[str, Any]
# As a kubelet's probes: whose certificate it is does not matter to them.
_UNVERIFIED = ssl._create_unverified_context()


@dataclass(frozen=True, slots=True)
class EndedProgram:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Json:
        """The document on standard output; fails with what the command complained of where there is none."""
        assert self.code == 0, f"ended with {self.code}: {self.err[-3000:]}"
        document: Json = json.loads(self.out)
        return document


class RunningProgram:
    """A cruise that serves; what it says is in `log`."""

    def __init__(self, process: "subprocess.Popen[bytes] | ForkedProcess", address: str, log: Path) -> None:
        self.process = process
        self.address = address
        self._log = log

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text(errors="replace")

    def get(self, path: str) -> tuple[int, str]:
        """Ask it for something over HTTP: the status, 0 where nobody answers, and the body."""
        try:
            with urllib.request.urlopen(self.address + path, timeout=5, context=_UNVERIFIED) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ready(self) -> bool:
        """Tell whether it says that it is ready."""
        assert self.process.poll() is None, f"it has ended:\n{self.log[-3000:]}"
        return self.get("/readyz")[0] == 200

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait()


def run(arguments: Sequence[str], settings: Mapping[str, str], directory: Path, seconds: float = 120) -> EndedProgram:
    """Run a command of cruise to its end."""
    return run_in(environment(settings, directory), arguments, seconds)


def run_in(environment: Mapping[str, str], arguments: Sequence[str], seconds: float = 120) -> EndedProgram:
    """Run a command of cruise in an environment to its end."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        process = fork_process(arguments, environment, out, err)
        try:
            process.wait(seconds)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return EndedProgram(process.wait(), out.read(), err.read())


@contextmanager
def run_serve(settings: Mapping[str, str], directory: Path, name: str = "serve") -> Iterator[RunningProgram]:
    """Run `cruise serve` until the `with` ends, once it is ready; then it has to end well by itself."""
    address = f"127.0.0.1:{free_port()}"
    scheme = "https" if settings.get("http_tls") == "on" else "http"
    told = {**settings, "http_address": address}
    with _running("serve", told, directory, name, f"{scheme}://{address}") as running:
        yield running


@contextmanager
def run_webhook(settings: Mapping[str, str], directory: Path, address: str) -> Iterator[RunningProgram]:
    """Run `cruise webhook` at an address in the same way."""
    told = {**settings, "webhook_address": address}
    with _running("webhook", told, directory, "webhook", f"https://{address}") as running:
        yield running


@contextmanager
def run_certificates(settings: Mapping[str, str], directory: Path) -> Iterator[None]:
    """Run `cruise certificates` until the `with` ends; then it has to end well by itself."""
    log = directory / "certificates.log"
    process = _started("certificates", settings, directory, log)
    try:
        yield
        assert process.poll() is None, log.read_text()[-3000:]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()[-3000:]
    finally:
        process.kill()
        process.wait()


@contextmanager
def _running(
    command: str, settings: Mapping[str, str], directory: Path, name: str, address: str
) -> Iterator[RunningProgram]:
    log = directory / f"{name}-{address.rpartition(':')[2]}.log"
    running = RunningProgram(_started(command, settings, directory, log), address, log)
    try:
        wait_until(running.ready, f"cruise {command} is ready")
        yield running
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(30) == 0, running.log[-3000:]
    finally:
        running.kill()


def _started(command: str, settings: Mapping[str, str], directory: Path, log: Path) -> ForkedProcess:
    with log.open("wb") as out:
        return fork_process([command], environment(settings, directory), out, out)


def environment(settings: Mapping[str, str], directory: Path) -> dict[str, str]:
    """The environment of a process that knows these settings and nothing of whoever starts it."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ", "XDG_CACHE_HOME") if name in os.environ}
    return {**kept, "HOME": str(directory), **{f"CRUISE_{name.upper()}": value for name, value in settings.items()}}
