"""Runs many commands of one checkout's `python -m cruise` in one process.

The process executes this file alone; it reads arguments and writes results as lines of JSON.
"""

import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_COLUMNS = "100"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit code of a command, its standard output and its standard error."""

    exit_code: int
    output: str
    errors: str


class CheckoutProcess:
    """A process that runs commands of one checkout until `close`."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout.resolve()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, arguments: Sequence[str]) -> CommandResult:
        """Run one command. Raises RuntimeError if the checkout has no importable package."""
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            code, self._process = self._process.wait(), None
            return CommandResult(code, "", "the process ended")
        return CommandResult(**json.loads(answer))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()

    def _start(self) -> "subprocess.Popen[bytes]":
        # Settings of the environment must not matter. Hashes stay random.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CRUISE_", "PYTHON"))}
        fixed = {"PYTHONPATH": str(self._checkout), "COLUMNS": _COLUMNS, "NO_COLOR": "1", "TZ": "UTC"}
        process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self._checkout,
            env=inherited | fixed,
        )
        assert process.stdout is not None
        package = Path(json.loads(process.stdout.readline() or '""'))
        if not package.is_relative_to(self._checkout):
            process.communicate()
            raise RuntimeError(f"{self._checkout} has no package cruise that can be imported")
        return process


def serve() -> None:
    """Run the commands on standard input until it ends."""
    commands, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Processes that a command starts must neither read commands nor write results.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    import cruise

    _send(results, cruise.__file__)
    for command in commands:
        _send(results, _run(json.loads(command)))


def _send(results: io.BufferedWriter, message: object) -> None:
    results.write(json.dumps(message).encode() + b"\n")
    results.flush()


def _run(arguments: Sequence[str]) -> dict[str, object]:
    # Files, because commands use their descriptors.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output, tempfile.TemporaryFile("w+") as errors:
        sys.argv, sys.stdout, sys.stderr = ["cruise", *arguments], output, errors
        code = 0
        try:
            runpy.run_module("cruise", run_name="__main__", alter_sys=True)
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        return {"exit_code": code, "output": _read(output), "errors": _read(errors)}


def _read(file: io.TextIOWrapper) -> str:
    file.flush()
    file.seek(0)
    return file.read()


if __name__ == "__main__":
    serve()
