"""`cruise demo`: the whole controller on a simulated cluster with replayed usage."""

from typing import Annotated

from cruise.cli.options import ConfigOption, Format, FormatOption, optional, settings_of
from cruise.cli.terminal import print_parts, table_console, write_json


def demo(
    seconds: Annotated[
        float | None,
        optional("--seconds", "S", "Stop after this time; without it Ctrl-C stops it.", envvar="DEMO_SECONDS", min=1),
    ] = None,
    format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Show the whole controller at work: a simulated cluster with real, replayed usage, 300 times as fast as real time.

    Nothing outside this machine is contacted. The store is an embedded
    Postgres in a directory of the demo's own.

    Examples:
      cruise demo                 until Ctrl-C, then the summary

      cruise demo --seconds 60    one minute, five simulated hours
    """
    import asyncio

    from rich.console import Console

    from cruise.app.demo.running import run_demo
    from cruise.cli.inputs.store import data_dir_of
    from cruise.interfaces.demo_view import render_summary, summary_json

    settings = settings_of(config)
    console = table_console() if format is Format.TABLE else Console(stderr=True, highlight=False, markup=False)
    last = asyncio.run(run_demo(settings, console, data_dir_of(settings), seconds))
    if format is Format.JSON:
        write_json([summary_json(last)])
    else:
        print_parts([render_summary(last)], console)
