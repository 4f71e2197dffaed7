"""The `cruise` program: its commands, and how each failure ends it."""

import io
import os
import shlex
import sys
from collections.abc import MutableMapping, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand, TyperOption

from cruise import __version__
from cruise.cli.commands.backtest import backtest
from cruise.cli.commands.check import certificates, check, migrate, webhook
from cruise.cli.commands.demo import demo
from cruise.cli.commands.explain import explain
from cruise.cli.commands.export import export
from cruise.cli.commands.pack import pack
from cruise.cli.commands.pause import pause, resume, revert
from cruise.cli.commands.plan import plan
from cruise.cli.commands.scan import scan
from cruise.cli.commands.serve import serve
from cruise.cli.terminal import OutputClosedError, discard_output, flush_output, print_error, print_remarks
from cruise.errors import BadInputError, CruiseError

# Commands whose repeatable options take several values at once: `--trace a b` is `--trace a --trace b`.

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.shell_completion import CompletionItem

_LAST = "cruise.several"


class MultiValueCommand(TyperCommand):
    """Reads `--option a b` as `--option a --option b` for some options, and lists the policies in its help."""

    multi_value_options = ("--trace", "--policy", "--max-delta")

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Repeat the option before each of its values."""
        repeated, last = repeat_multi_value_options(args, self.multi_value_options)
        ctx.meta[_LAST] = last
        return super().parse_args(ctx, repeated)

    def get_help(self, ctx: "Context") -> str:
        """Add the names of the policies, which are read only here: that takes a third of a second."""
        from cruise.backtest.policies.policies import POLICIES

        for parameter in self.params:
            if isinstance(parameter, TyperOption) and parameter.name == "policy":
                parameter.help = f"{parameter.help}{', '.join(POLICIES)}."
        return super().get_help(ctx)

    def shell_complete(self, ctx: "Context", incomplete: str) -> "list[CompletionItem]":
        """Complete a further value of an option as its first one."""
        last = ctx.meta.get(_LAST)
        if last is not None and not incomplete.startswith("-"):
            for parameter in self.params:
                if last in parameter.opts:
                    return parameter.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


def repeat_multi_value_options(arguments: Sequence[str], several: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the arguments with each option before each of its values, and the option still open at their end."""
    found: list[str] = []
    current: str | None = None
    has_value = False
    for at, argument in enumerate(arguments):
        if argument == "--":
            return found + list(arguments[at:]), None
        if argument in several:
            current, has_value = argument, False
        elif argument.startswith("-"):
            name = argument.partition("=")[0]
            current, has_value = (name, True) if name in several and "=" in argument else (None, False)
        elif current is not None:
            if has_value:
                found.append(current)
            has_value = True
        found.append(argument)
    return found, current


PROGRAM = "cruise"
FAILURE, BAD_INPUT, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name=PROGRAM,
    help="Continuous rightsizing of Kubernetes pods from their measured use, with the reason for every number.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    scan,
    check,
    serve,
    plan,
    pack,
    backtest,
    explain,
    export,
    pause,
    resume,
    revert,
    webhook,
    certificates,
    migrate,
    demo,
):
    app.command(cls=MultiValueCommand if command is backtest else None)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run one command; return 0, 1 for a failure, 2 for bad input, with one line on standard error."""
    print_remarks(say=False)
    try:
        code = app(args=arguments, prog_name=program, standalone_mode=False)
        flush_output()
        print_remarks(say=True)
    except OutputClosedError:
        discard_output()
        return 0
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (typer.TyperException, CruiseError, OSError, MemoryError) as error:
        return _refused(error)
    return code if isinstance(code, int) else 0


def _refused(error: Exception) -> int:
    """Say what the world refused, and return the exit code for it."""
    match error:
        case typer.TyperException():
            # Without any argument the help was shown, and there is nothing to add.
            if error.format_message():
                print_error(_usage(error))
            return error.exit_code
        case CruiseError():
            print_error(str(error))
            return BAD_INPUT if isinstance(error, BadInputError) else FAILURE
        case OSError():
            discard_output()
            print_error(f"{error.filename or 'output'}: {error.strerror or error}")
        case _:
            print_error("not enough memory")
    return FAILURE


def _usage(error: typer.TyperException) -> str:
    """Return a usage error in one line, with the place of the help."""
    message = error.format_message().replace("Value error, ", "").strip().rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else PROGRAM
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"


if __name__ == "__main__":
    sys.exit(main())

# `kubectl cruise`: the same commands as a plugin of kubectl, which choose a cluster as kubectl does.

PLUGIN_PROGRAM = "kubectl cruise"
BAD_INPUT_plugin = 2
# kubectl's own options, and what they set here.
_OPTIONS = {"--context": "CRUISE_KUBE_CONTEXT", "--kubeconfig": "CRUISE_KUBECONFIG"}
# As kubectl reads the last line of completions: what was printed is all there is, or files may be meant.
_NO_FILES, _FILES = ":4", ":0"
_COMPLETE = "_CRUISE_COMPLETE"


def run_plugin() -> int:
    """Run one command as `kubectl cruise`."""
    try:
        arguments = apply_kubectl_options(sys.argv[1:], os.environ)
    except ValueError as error:
        print_error(str(error))
        return BAD_INPUT_plugin
    return main(arguments, PLUGIN_PROGRAM)


def apply_kubectl_options(arguments: Sequence[str], environment: MutableMapping[str, str]) -> list[str]:
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
            raise ValueError(f"option '{name}' needs a value; see {PLUGIN_PROGRAM} --help")
        environment[_OPTIONS[name]] = stated
    return rest


def print_completions() -> int:
    """Print what the last argument may become, as kubectl wants it of `kubectl_complete-cruise`."""
    lines = list_completions(sys.argv[1:])
    print("\n".join([*lines, _NO_FILES if lines else _FILES]))
    return 0


def list_completions(arguments: Sequence[str]) -> list[str]:
    """Return what may stand in place of the last argument, each with its help behind a tab."""
    try:
        *before, last = apply_kubectl_options(arguments, {})
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
