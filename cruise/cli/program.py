"""The `cruise` program: its commands, and how each failure ends it."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from cruise import __version__
from cruise.cli.commands.backtest import backtest
from cruise.cli.commands.certificates import certificates
from cruise.cli.commands.check import check
from cruise.cli.commands.demo import demo
from cruise.cli.commands.explain import explain
from cruise.cli.commands.export import export
from cruise.cli.commands.migrate import migrate
from cruise.cli.commands.pack import pack
from cruise.cli.commands.pause import pause, resume
from cruise.cli.commands.plan import plan
from cruise.cli.commands.revert import revert
from cruise.cli.commands.scan import scan
from cruise.cli.commands.serve import serve
from cruise.cli.commands.webhook import webhook
from cruise.cli.several import SeveralValues
from cruise.cli.terminal import OutputClosed, abandon_output, complain, flush_output, flush_remarks
from cruise.errors import BadInput, CruiseError

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
    app.command(cls=SeveralValues if command is backtest else None)(command)


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
    flush_remarks(say=False)
    try:
        code = app(args=arguments, prog_name=program, standalone_mode=False)
        flush_output()
        flush_remarks(say=True)
    except OutputClosed:
        abandon_output()
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
                complain(_usage(error))
            return error.exit_code
        case CruiseError():
            complain(str(error))
            return BAD_INPUT if isinstance(error, BadInput) else FAILURE
        case OSError():
            abandon_output()
            complain(f"{error.filename or 'output'}: {error.strerror or error}")
        case _:
            complain("not enough memory")
    return FAILURE


def _usage(error: typer.TyperException) -> str:
    """Return a usage error in one line, with the place of the help."""
    message = error.format_message().replace("Value error, ", "").strip().rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else PROGRAM
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"


if __name__ == "__main__":
    sys.exit(main())
