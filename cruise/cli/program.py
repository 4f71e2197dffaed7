"""The `cruise` program and its kubectl plugin: commands, and exit codes of failures."""

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
from cruise.cli.commands.explain import explain
from cruise.cli.commands.export import export
from cruise.cli.commands.pack import pack
from cruise.cli.commands.pause import pause, resume, revert
from cruise.cli.commands.plan import plan
from cruise.cli.commands.scan import scan
from cruise.cli.commands.serve import demo, serve
from cruise.cli.terminal import OutputClosedError, discard_output, flush_output, print_error, print_notes
from cruise.errors import BadInputError, CruiseError

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.shell_completion import CompletionItem

_OPEN_OPTION = "cruise.multi-value-option"


class MultiValueCommand(TyperCommand):
    """Parses `--option a b` as `--option a --option b` for some options, and lists the policies in its help."""

    multi_value_options = ("--trace", "--policy", "--max-delta")

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Repeat the option before each of its values."""
        repeated, last = repeat_multi_value_options(args, self.multi_value_options)
        ctx.meta[_OPEN_OPTION] = last
        return super().parse_args(ctx, repeated)

    def get_help(self, ctx: "Context") -> str:
        """Add the names of the policies, whose import takes a third of a second."""
        from cruise.backtest.policies.policies import POLICIES

        for parameter in self.params:
            if isinstance(parameter, TyperOption) and parameter.name == "policy":
                parameter.help = f"{parameter.help}{', '.join(POLICIES)}."
        return super().get_help(ctx)

    def shell_complete(self, ctx: "Context", incomplete: str) -> "list[CompletionItem]":
        """Complete further values of an option like its first one."""
        last = ctx.meta.get(_OPEN_OPTION)
        if last is not None and not incomplete.startswith("-"):
            for parameter in self.params:
                if last in parameter.opts:
                    return parameter.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


def repeat_multi_value_options(
    arguments: Sequence[str], multi_value_options: Sequence[str]
) -> tuple[list[str], str | None]:
    """Return the arguments with the option before each of its values, and the option that is still open at the end."""
    found: list[str] = []
    current: str | None = None
    has_value = False
    for index, argument in enumerate(arguments):
        if argument == "--":
            return found + list(arguments[index:]), None
        if argument in multi_value_options:
            current, has_value = argument, False
        elif argument.startswith("-"):
            name = argument.partition("=")[0]
            current, has_value = (name, True) if name in multi_value_options and "=" in argument else (None, False)
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
    help="Continuous rightsizing of Kubernetes pods from their measured usage, with the reason for every number.",
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
    """Options of the program."""


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run one command; return 0, 1 for a failure, 2 for bad input, with one line on standard error."""
    print_notes(discard=True)
    try:
        code = app(args=arguments, prog_name=program, standalone_mode=False)
        flush_output()
        print_notes()
    except OutputClosedError:
        discard_output()
        return 0
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (typer.TyperException, CruiseError, OSError, MemoryError) as error:
        return _report_error(error)
    return code if isinstance(code, int) else 0


def _report_error(error: Exception) -> int:
    """Print an error and return its exit code."""
    match error:
        case typer.TyperException():
            # Without arguments the help was printed.
            if error.format_message():
                print_error(_format_usage_error(error))
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


def _format_usage_error(error: typer.TyperException) -> str:
    """Return a usage error in one line, with the command's help."""
    message = error.format_message().replace("Value error, ", "").replace("Input should be", "must be")
    message = message.partition(", unable to parse")[0].strip().rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else PROGRAM
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"


# `kubectl cruise`: the same commands as a kubectl plugin, with kubectl's options for the cluster.

PLUGIN_PROGRAM = "kubectl cruise"

# kubectl's options, and the environment variables that they set.
_OPTIONS = {"--context": "CRUISE_KUBE_CONTEXT", "--kubeconfig": "CRUISE_KUBECONFIG"}
# The last line of completions for kubectl: no file completion, or file completion.
_NO_FILES, _FILES = ":4", ":0"
_COMPLETE = "_CRUISE_COMPLETE"


def run_plugin() -> int:
    """Run one command as `kubectl cruise`."""
    try:
        arguments = apply_kubectl_options(sys.argv[1:], os.environ)
    except ValueError as error:
        print_error(str(error))
        return BAD_INPUT
    return main(arguments, PLUGIN_PROGRAM)


def apply_kubectl_options(arguments: Sequence[str], environment: MutableMapping[str, str]) -> list[str]:
    """Remove kubectl's options from the arguments, and set the environment accordingly.

    ValueError for an option without a value.
    """
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        if argument == "--":
            return [*rest, argument, *remaining]
        if name not in _OPTIONS:
            rest.append(argument)
            continue
        stated = value if equals else next(remaining, "")
        if not stated:
            raise ValueError(f"option '{name}' needs a value; see {PLUGIN_PROGRAM} --help")
        if name == "--context" and rest[:1] == ["scan"]:
            # It reads several.
            rest += [name, stated]
        else:
            environment[_OPTIONS[name]] = stated
    return rest


def print_completions() -> int:
    """Print the completions of the last argument, for `kubectl_complete-cruise`."""
    lines = list_completions(sys.argv[1:])
    print("\n".join([*lines, _NO_FILES if lines else _FILES]))
    return 0


def list_completions(arguments: Sequence[str]) -> list[str]:
    """Return the completions of the last argument, each with its help after a tab."""
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
    output = io.StringIO()
    try:
        with redirect_stdout(output):
            app(args=[], prog_name="cruise", complete_var=_COMPLETE)
    except SystemExit:
        pass
    return [line for line in output.getvalue().splitlines() if line]


if __name__ == "__main__":
    sys.exit(main())
