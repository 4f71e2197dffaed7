"""`cruise demo`: the whole controller on a simulated cluster with replayed usage."""

from typing import Annotated

from cruise.cli.options import ConfigOption, FormatOption, OutputFormat, create_optional_option, resolve_settings
from cruise.cli.terminal import create_table_console, print_report, write_json


def demo(
    seconds: Annotated[
        float | None,
        create_optional_option(
            "--seconds", "S", "Stop after this time; default: until Ctrl-C.", envvar="DEMO_SECONDS", min=1
        ),
    ] = None,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Run the whole controller on a simulated cluster with real, replayed usage, 300 times as fast as real time.

    Nothing outside this machine is contacted. The database is an embedded
    Postgres in a directory for the demo.

    Examples:
      cruise demo                 until Ctrl-C, then the summary

      cruise demo --seconds 60    one minute, five simulated hours
    """
    import asyncio

    from rich.console import Console

    from cruise.app.demo import run_demo
    from cruise.cli.inputs.store import get_data_dir
    from cruise.interfaces.demo_screen import render_demo_summary, render_summary_json

    settings = resolve_settings(config)
    console = (
        create_table_console() if format is OutputFormat.TABLE else Console(stderr=True, highlight=False, markup=False)
    )
    last = asyncio.run(run_demo(settings, console, get_data_dir(settings), seconds))
    if format is OutputFormat.JSON:
        write_json([render_summary_json(last)])
    else:
        print_report([render_demo_summary(last)], console)
