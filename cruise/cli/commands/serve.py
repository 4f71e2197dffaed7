"""`cruise serve`: the controller, continuously or for one pass; `cruise demo`: on a simulated cluster."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import (
    ConfigOption,
    FormatOption,
    OutputFormat,
    create_option_without_default,
    load_process_settings,
)
from cruise.cli.terminal import create_table_console, print_report, print_result, write_json
from cruise.errors import BadInputError

if TYPE_CHECKING:
    from cruise.interfaces.single_pass import SinglePassResult
    from cruise.settings import Settings

_INTERRUPTED = 130


def serve(
    once: Annotated[
        bool, typer.Option("--once", help="Read statistics, run one pass, print the result, and exit.")
    ] = False,
    format: FormatOption = OutputFormat.TABLE,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log more; CRUISE_LOG_LEVEL has all levels.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Run the controller: statistics, node passes, the reaction to OOM kills, API, health and metrics.

    Nothing is written to the cluster in mode observe, the default. From mode
    resize on, several replicas may run; a Lease elects the leader.
    prometheus_url is required, or the right to read the kubelets
    (usage_source); all other settings have defaults. Logs are written to
    standard error.

    --once leads for its single pass and does what the mode allows: it also
    writes VerticalPodAutoscalers (publish_vpas) and notifies of rejections
    (notify_url), but not of OOM kills or users' actions.

    Examples:
      CRUISE_PROMETHEUS_URL=http://prometheus:9090 cruise serve

      CRUISE_MODE=resize cruise serve --config cruise.toml

      cruise serve --once --config cruise.toml

      cruise serve --once --format json --config cruise.toml
    """
    import uvloop

    from cruise.app.process import configure_logging, run_as_service

    if format is OutputFormat.JSON and not once:
        raise BadInputError("--format json is for --once; without it there is no result to print")
    settings = load_process_settings(config)
    # The result of one pass is printed; its log is for --verbose.
    level = "warning" if once and settings.log_level == "info" else settings.log_level
    configure_logging(settings.log_format, "debug" if verbose else level)
    if not once:
        from cruise.app.serve.serve import run_serve

        uvloop.run(run_as_service(run_serve(settings)))
        return
    result = uvloop.run(_run_once(settings))
    if result is None:
        raise typer.Exit(_INTERRUPTED)
    _print(result, format)
    if result.failed:
        raise typer.Exit(1)


async def _run_once(settings: "Settings") -> "SinglePassResult | None":
    from cruise.app.process import exit_if_busy, run_until_signal
    from cruise.app.serve.single_pass import run_single_pass
    from cruise.cli.inputs.usage import show_usage_progress

    found: list[SinglePassResult] = []

    async def work() -> None:
        with show_usage_progress() as show:
            found.append(await run_single_pass(settings, show))

    if await run_until_signal(work()):
        exit_if_busy(_INTERRUPTED)
    return found[0] if found else None


def _print(result: "SinglePassResult", format: OutputFormat) -> None:
    from cruise.interfaces.single_pass import render_single_pass_json, render_single_pass_table

    print_result(
        format is OutputFormat.JSON,
        lambda: [render_single_pass_json(result)],
        partial(render_single_pass_table, result),
    )


def demo(
    seconds: Annotated[
        float | None,
        create_option_without_default(
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

    settings = load_process_settings(config)
    console = (
        create_table_console() if format is OutputFormat.TABLE else Console(stderr=True, highlight=False, markup=False)
    )
    last = asyncio.run(run_demo(settings, console, get_data_dir(settings), seconds))
    if format is OutputFormat.JSON:
        write_json([render_summary_json(last)])
    else:
        print_report([render_demo_summary(last)], console)
