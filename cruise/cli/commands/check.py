"""`cruise check`, `cruise migrate`, `cruise certificates` and `cruise webhook`."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import (
    ConfigOption,
    FormatOption,
    ModeName,
    OutputFormat,
    create_option_without_default,
    load_process_settings,
)
from cruise.cli.terminal import print_result, show_spinner, suppress_logs
from cruise.errors import BadInputError

if TYPE_CHECKING:
    from datetime import datetime

    from cruise.domain.preflight import PreflightFacts
    from cruise.settings import Settings


def check(
    mode: Annotated[
        ModeName | None,
        create_option_without_default("--mode", None, "Check for this mode; by default that of the settings."),
    ] = None,
    prometheus_url: Annotated[
        str | None, create_option_without_default("--prometheus-url", "URL", "Check this server.")
    ] = None,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Check what cruise depends on: API server, permissions, Prometheus, database, webhook, and conflicts with others.

    Nothing is changed. The exit code is 1 if any item is red: it prevents
    cruise from working in its mode.

    Examples:
      cruise check

      cruise check --mode full --format json

      kubectl -n cruise exec deploy/cruise-serve -- cruise check
    """
    from dataclasses import replace

    from cruise.app.process import get_current_time
    from cruise.decisions.preflight.preflight import check_coverage, decide_preflight
    from cruise.decisions.prices import estimate_prices
    from cruise.decisions.sizing.headroom import HEADROOM_MODELS
    from cruise.domain.policy import Mode
    from cruise.domain.preflight import CheckLevel
    from cruise.interfaces.check_report import render_check_json, render_check_table
    from cruise.runtime.headroom import RiskHistory
    from cruise.settings.value_types import UsageSourceChoice

    settings = load_process_settings(config)
    if mode is not None:
        settings = replace(settings, mode=Mode[mode.name])
    if prometheus_url is not None:
        settings = replace(settings, usage_source=UsageSourceChoice.PROMETHEUS)
    now = get_current_time()
    with suppress_logs(), show_spinner("checking cluster, Prometheus and database"):
        facts = asyncio.run(_collect_facts(settings, prometheus_url, now))
    policy = settings.to_policy()
    history = RiskHistory(facts.store.risk_days if facts.store is not None else ())
    risks = (
        history.get_observed(int(now.timestamp()), policy.get_risk)
        if HEADROOM_MODELS[policy.headroom].learns_level
        else {}
    )
    items = decide_preflight(facts, settings.mode, now, risks)
    if facts.snapshot is not None:
        statistics = facts.store.statistics if facts.store is not None else None
        prices = estimate_prices(facts.snapshot.nodes, settings.to_price_settings())
        items = [*check_coverage(facts.snapshot, policy, now, statistics, prices), *items]
    print_result(
        format is OutputFormat.JSON,
        lambda: [render_check_json(items, settings.mode, now)],
        lambda console: render_check_table(items, settings.mode, console),
    )
    if any(item.level is CheckLevel.RED for item in items):
        raise typer.Exit(1)


async def _collect_facts(settings: "Settings", prometheus_url: str | None, now: "datetime") -> "PreflightFacts":
    from cruise.adapters.kube.client import KubernetesClient
    from cruise.adapters.prometheus.settings import PrometheusSettings
    from cruise.app.check import collect_preflight_facts
    from cruise.cli.inputs.live_cluster import find_prometheus_settings

    async def find(client: KubernetesClient) -> PrometheusSettings:
        return await find_prometheus_settings(client, settings, prometheus_url)

    return await collect_preflight_facts(settings, settings.to_kubernetes_settings(), find, now)


# `cruise migrate`.

if TYPE_CHECKING:
    from cruise.settings import Settings


def migrate(format: FormatOption = OutputFormat.TABLE, config: ConfigOption = None) -> None:
    """Update the schema of database_url, with a database role that may change it, and exit.

    If the roles of `cruise serve` and `cruise webhook` may not change the
    schema, they wait for this. Otherwise serve updates it when it starts.

    Examples:
      CRUISE_DATABASE_URL=postgresql://cruise_owner@db/cruise cruise migrate

      cruise migrate --format json
    """
    import msgspec

    settings = load_process_settings(config)
    if settings.database_url is None:
        raise BadInputError("no database_url is set; `cruise serve` updates the embedded database")
    with suppress_logs(), show_spinner("updating the schema"):
        before, after = asyncio.run(_migrate(settings))
    text = f"schema {after}" + (": nothing to do" if before == after else f", before {before or 'none'}")
    print_result(
        format is OutputFormat.JSON,
        lambda: [msgspec.json.encode({"before": before, "after": after})],
        lambda console: [text],
    )


async def _migrate(settings: "Settings") -> tuple[str | None, str | None]:
    """Return the schema's revision before and after."""
    from cruise.adapters.store.postgres import probe_store
    from cruise.cli.inputs.store import get_data_dir, open_existing_store

    before = await probe_store(settings.database_url, get_data_dir(settings))
    async with open_existing_store(settings):
        pass
    after = await probe_store(settings.database_url, get_data_dir(settings))
    return before.revision, after.revision


# `cruise certificates`.


def certificates(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    config: ConfigOption = None,
) -> None:
    """Create, renew and publish the certificate of `cruise webhook`, without listening.

    It is stored in the Secret cruise-webhook-tls, or outside a cluster in
    tls_dir, and its CA is written to the MutatingWebhookConfiguration. The
    webhook reads it from its tls_dir, and needs no right to write. Logs are
    written to standard error.

    Examples:
      cruise certificates

      CRUISE_TLS_DIR=/etc/cruise/tls cruise certificates --config cruise.toml
    """
    import uvloop

    from cruise.app.certificates import run_certificate_keeper
    from cruise.app.process import configure_logging, run_as_service

    settings = load_process_settings(config)
    configure_logging(settings.log_format, "debug" if verbose else settings.log_level)
    uvloop.run(run_as_service(run_certificate_keeper(settings)))


# `cruise webhook`.


def webhook(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    config: ConfigOption = None,
) -> None:
    """Answer the API server's reviews of new pods over HTTPS, and size pods from their workload's usage.

    Every pod is allowed; if uncertain, unchanged. In mode observe, the
    default, no pod is patched. tls_dir has tls.crt and tls.key, which are
    read again when they change; without it a certificate is created,
    published and renewed. Logs are written to standard error.

    Examples:
      CRUISE_MODE=initial cruise webhook

      CRUISE_DATABASE_URL=postgresql://cruise@db/cruise cruise webhook

      CRUISE_TLS_DIR=/etc/cruise/tls cruise webhook --config cruise.toml
    """
    import uvloop

    from cruise.app.process import configure_logging, run_as_service
    from cruise.app.webhook import run_webhook

    settings = load_process_settings(config)
    configure_logging(settings.log_format, "debug" if verbose else settings.log_level)
    uvloop.run(run_as_service(run_webhook(settings)))
