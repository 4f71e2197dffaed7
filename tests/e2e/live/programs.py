"""Runs cruise as users do: a separate process with a ServiceAccount's kubeconfig, and settings in the environment."""

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
# Like a kubelet's probes, without verification of the certificate.
_UNVERIFIED = ssl._create_unverified_context()


@dataclass(frozen=True, slots=True)
class EndedProgram:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Json:
        """Return the document on standard output; fails with standard error if there is none."""
        assert self.code == 0, f"ended with {self.code}: {self.err[-3000:]}"
        document: Json = json.loads(self.out)
        return document


class RunningProgram:
    """A running cruise; `log` is its output."""

    def __init__(self, process: "subprocess.Popen[bytes] | ForkedProcess", address: str, log: Path) -> None:
        self.process = process
        self.address = address
        self._log = log

    @property
    def log(self) -> str:
        """The output so far."""
        return self._log.read_text(errors="replace")

    def get(self, path: str) -> tuple[int, str]:
        """Send an HTTP request: return the status, 0 without an answer, and the body."""
        try:
            with urllib.request.urlopen(self.address + path, timeout=20, context=_UNVERIFIED) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ready(self) -> bool:
        """Return whether it reports ready."""
        assert self.process.poll() is None, f"it has ended:\n{self.log[-3000:]}"
        return self.get("/readyz")[0] == 200

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


def run(arguments: Sequence[str], settings: Mapping[str, str], directory: Path, seconds: float = 120) -> EndedProgram:
    """Run a command of cruise until it ends."""
    return run_in(environment(settings, directory), arguments, seconds)


def run_in(environment: Mapping[str, str], arguments: Sequence[str], seconds: float = 120) -> EndedProgram:
    """Run a command of cruise in an environment until it ends."""
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
    """Run `cruise serve` within the context, once it is ready; afterwards it must exit without an error."""
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
    """Run `cruise certificates` within the context; afterwards it must exit without an error."""
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
    """Return the environment of a process with these settings and nothing of this process's environment."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ", "XDG_CACHE_HOME") if name in os.environ}
    return {**kept, "HOME": str(directory), **{f"CRUISE_{name.upper()}": value for name, value in settings.items()}}
