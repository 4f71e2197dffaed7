"""`cruise serve`: the controller, for good or for one pass."""

from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import ConfigOption, Format, FormatOption, settings_of
from cruise.cli.terminal import print_parts, table_console, write_json
from cruise.errors import BadInput

if TYPE_CHECKING:
    from cruise.app.serve.one_pass import Once
    from cruise.settings import Settings

_INTERRUPTED = 130


def serve(
    once: Annotated[
        bool, typer.Option("--once", help="Fill the statistics, make one pass, print what was done, and exit.")
    ] = False,
    format: FormatOption = Format.TABLE,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more; CRUISE_LOG_LEVEL has the steps.")] = False,
    config: ConfigOption = None,
) -> None:
    """Run the controller: statistics, node passes, the reaction to kills, API, health and metrics.

    Nothing is written to the cluster in mode observe, the default. From mode
    resize on several may run, of which one leads by a Lease. prometheus_url is
    needed, or the right to read the kubelets (usage_source); everything else has
    a default. Logs go to standard error.

    --once leads for its one pass and does what the mode allows: it also writes
    VerticalPodAutoscalers (publish_vpas) and notifies of refusals (notify_url).
    Kills, and what people did meanwhile, only a serve that goes on tells of.

    Examples:
      CRUISE_PROMETHEUS_URL=http://prometheus:9090 cruise serve

      CRUISE_MODE=resize cruise serve --config cruise.toml

      cruise serve --once --config cruise.toml

      cruise serve --once --format json --config cruise.toml
    """
    import uvloop

    from cruise.app.log_lines import set_up_logs
    from cruise.app.signals import for_good

    if format is Format.JSON and not once:
        raise BadInput("--format json is for --once; without it there is no result to print")
    settings = settings_of(config)
    # What one pass does is printed; its log is for --verbose.
    usual = "warning" if once and settings.log_level == "info" else settings.log_level
    set_up_logs(settings.log_format, "debug" if verbose else usual)
    if not once:
        from cruise.app.serve.serving import serve as serving

        uvloop.run(for_good(serving(settings)))
        return
    done = uvloop.run(_once(settings))
    if done is None:
        raise typer.Exit(_INTERRUPTED)
    _print(done, format)
    if done.failed:
        raise typer.Exit(1)


async def _once(settings: "Settings") -> "Once | None":
    from cruise.app.serve.one_pass import serve_once
    from cruise.app.signals import leave_if_busy, until_signal
    from cruise.cli.inputs.prometheus_usage import usage_bar

    found: list[Once] = []

    async def work() -> None:
        with usage_bar() as show:
            found.append(await serve_once(settings, show))

    if await until_signal(work()):
        leave_if_busy(_INTERRUPTED)
    return found[0] if found else None


def _print(done: "Once", format: Format) -> None:
    if format is Format.JSON:
        from cruise.interfaces.once.document import once_json

        write_json([once_json(done.node_pass, done.mode, done.paused, done.packing, done.packed, done.told)])
        return
    from cruise.interfaces.once.table import once_table

    console = table_console()
    parts = once_table(done.node_pass, done.mode, done.paused, console, done.packing, done.packed, done.told)
    print_parts(parts, console)
