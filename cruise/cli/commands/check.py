"""`cruise check`: whether cruise can work here, each red item with its fix."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import ConfigOption, Format, FormatOption, ModeName, optional, settings_of
from cruise.cli.terminal import busy, print_result, quiet_logs

if TYPE_CHECKING:
    from datetime import datetime

    from cruise.domain.preflight import Surroundings
    from cruise.settings import Settings


def check(
    mode: Annotated[ModeName | None, optional("--mode", None, "Check for this mode; by default the one set.")] = None,
    prometheus_url: Annotated[str | None, optional("--prometheus-url", "URL", "Check this server.")] = None,
    format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Check what cruise depends on: API server, permissions, Prometheus, database, webhook, and conflicts with others.

    Nothing is changed. The exit code is 1 if anything is red, that is,
    keeps cruise from working in its mode.

    Examples:
      cruise check

      cruise check --mode full --format json

      kubectl -n cruise exec deploy/cruise-serve -- cruise check
    """
    from dataclasses import replace

    from cruise.app.clock import wall_clock
    from cruise.decisions.preflight.items import Level
    from cruise.decisions.preflight.preflight import decide_preflight
    from cruise.decisions.sizing.headroom.choosing import MODELS
    from cruise.domain.policy import Mode
    from cruise.interfaces.check_report import check_json, check_table
    from cruise.runtime.sizing.risk_history import RiskHistory
    from cruise.settings.choices import UsageFrom

    settings = settings_of(config)
    if mode is not None:
        settings = replace(settings, mode=Mode[mode.name])
    if prometheus_url is not None:
        settings = replace(settings, usage_source=UsageFrom.PROMETHEUS)
    now = wall_clock()
    with quiet_logs(), busy("looking at cluster, Prometheus and database"):
        found = asyncio.run(_look(settings, prometheus_url, now))
    policy = settings.policy()
    history = RiskHistory(found.store.risk_days if found.store is not None else ())
    risks = history.kept(int(now.timestamp()), policy.risk_of) if MODELS[policy.headroom].learns else {}
    items = decide_preflight(found, settings.mode, now, risks)
    print_result(
        format is Format.JSON,
        lambda: [check_json(items, settings.mode, now)],
        lambda console: check_table(items, settings.mode, console),
    )
    if any(item.level is Level.RED for item in items):
        raise typer.Exit(1)


async def _look(settings: "Settings", prometheus_url: str | None, now: "datetime") -> "Surroundings":
    from cruise.adapters.kube.http.client import KubeClient
    from cruise.adapters.prometheus.settings import PrometheusSettings
    from cruise.app.checking import surroundings
    from cruise.cli.inputs.live_cluster import prometheus_of

    async def find(client: KubeClient) -> PrometheusSettings:
        return await prometheus_of(client, settings, prometheus_url)

    return await surroundings(settings, settings.kube(), find, now)
