"""`kubectl cruise`: the same commands as a plugin of kubectl, which choose a cluster as kubectl does."""

import io
import os
import shlex
import sys
from collections.abc import MutableMapping, Sequence
from contextlib import redirect_stdout

from cruise.cli.program import app
from cruise.cli.program import main as run
from cruise.cli.terminal import complain

PROGRAM = "kubectl cruise"
BAD_INPUT = 2
# kubectl's own options, and what they set here.
_OPTIONS = {"--context": "CRUISE_KUBE_CONTEXT", "--kubeconfig": "CRUISE_KUBECONFIG"}
# As kubectl reads the last line of completions: what was printed is all there is, or files may be meant.
_NO_FILES, _FILES = ":4", ":0"
_COMPLETE = "_CRUISE_COMPLETE"


def main() -> int:
    """Run one command as `kubectl cruise`."""
    try:
        arguments = choose_cluster(sys.argv[1:], os.environ)
    except ValueError as error:
        complain(str(error))
        return BAD_INPUT
    return run(arguments, PROGRAM)


def choose_cluster(arguments: Sequence[str], environment: MutableMapping[str, str]) -> list[str]:
    """Take kubectl's options out of the arguments, wherever they stand, and set what they say.

    Raises ValueError for one without a value.
    """
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        name, equals, value = argument.partition("=")
        if argument == "--":
            return [*rest, argument, *left]
        if name not in _OPTIONS:
            rest.append(argument)
            continue
        stated = value if equals else next(left, "")
        if not stated:
            raise ValueError(f"option '{name}' needs a value; see {PROGRAM} --help")
        environment[_OPTIONS[name]] = stated
    return rest


def complete() -> int:
    """Print what the last argument may become, as kubectl wants it of `kubectl_complete-cruise`."""
    lines = completions(sys.argv[1:])
    print("\n".join([*lines, _NO_FILES if lines else _FILES]))
    return 0


def completions(arguments: Sequence[str]) -> list[str]:
    """Return what may stand in place of the last argument, each with its help behind a tab."""
    try:
        *before, last = choose_cluster(arguments, {})
    except ValueError:
        return []
    words = shlex.join(["cruise", *before])
    os.environ |= {
        _COMPLETE: "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": f"{words} {shlex.quote(last) if last else ''}",
    }
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            app(args=[], prog_name="cruise", complete_var=_COMPLETE)
    except SystemExit:
        pass
    return [line for line in said.getvalue().splitlines() if line]
