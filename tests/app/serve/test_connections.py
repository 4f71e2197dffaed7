"""How settings and the API server's version determine the policy."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web

from cruise.adapters.kube.client import KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.cluster import KubernetesCluster
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.app.serve.activity import NO_HOOKS
from cruise.app.serve.connections import (
    ServeConnections,
    build_policy_from_settings,
    create_event_hooks,
    limit_mode_to_server,
)
from cruise.app.usage_source import OpenedUsageSource, get_usage_reading_settings
from cruise.domain.policy import Mode, Policy
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.settings import load_settings
from cruise.simulation.store import InMemoryStore


def test_cruises_own_namespace_and_system_namespaces_are_always_skipped():
    own = build_policy_from_settings(load_settings({"CRUISE_NAMESPACE": "sizing"}))
    assert own.excluded_namespaces == {"kube-system", "cruise", "sizing"}
    stated = build_policy_from_settings(
        load_settings({"CRUISE_NAMESPACE": "sizing", "CRUISE_EXCLUDED_NAMESPACES": "openshift-*"})
    )
    assert all(map(stated.excludes_namespace, ("kube-system", "cruise", "sizing", "openshift-dns")))
    assert not stated.excludes_namespace("shop")


def test_usage_is_read_as_the_settings_say():
    reading = get_usage_reading_settings(
        load_settings({"CRUISE_PROMETHEUS_STEP": "30s", "CRUISE_PROMETHEUS_CONCURRENCY": "2"})
    )
    assert (reading.step_seconds, reading.partitions_at_once) == (30, 2)
    assert (reading.scrape_delay_seconds, reading.measures_scrape_delay) == (30, True)
    stated = get_usage_reading_settings(load_settings({"CRUISE_PROMETHEUS_SCRAPE_DELAY": "2m"}))
    assert (stated.scrape_delay_seconds, stated.measures_scrape_delay) == (120, False)
    assert not get_usage_reading_settings(load_settings({"CRUISE_RULES": "seeds"})).measures_scrape_delay


@asynccontextmanager
async def connected(directory: Path, answer: Callable[[str], object]) -> AsyncIterator[ServeConnections]:
    """Connections to an API server that answers every GET with what `answer` says of its path."""

    async def respond(request: web.Request) -> web.Response:
        return web.json_response(cast(dict[str, object], answer(request.path)))

    app = web.Application()
    app.router.add_get("/{path:.*}", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    kubeconfig = directory / "config"
    cluster = {"name": "here", "cluster": {"server": address}}
    context = {"name": "here", "context": {"cluster": "here", "user": "me"}}
    user = {"name": "me", "user": {"token": "secret"}}
    document = {"current-context": "here", "contexts": [context], "clusters": [cluster], "users": [user]}
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **document}))
    source = PrometheusUsageSource(PrometheusSettings("http://127.0.0.1:9"))
    try:
        async with connect_to_kubernetes(KubernetesSettings(kubeconfig)) as client:
            yield ServeConnections(
                client,
                KubernetesCluster(client),
                OpenedUsageSource(source, UsageReadingSettings()),
                InMemoryStore(),
                None,
            )
    finally:
        source.close()
        await runner.cleanup()


def server(*resources: str) -> Callable[[str], object]:
    def answer(path: str) -> object:
        if path == "/version":
            return {"major": "1", "minor": "32", "gitVersion": "v1.32.9"}
        return {"resources": [{"name": name, "verbs": ["patch"]} for name in resources], "items": []}

    return answer


@pytest.mark.parametrize(
    ("resources", "mode", "expected"),
    [
        (("pods", "pods/resize"), Mode.FULL, Mode.FULL),
        (("pods",), Mode.FULL, Mode.INITIAL),
        (("pods",), Mode.RESIZE, Mode.INITIAL),
        (("pods",), Mode.OBSERVE, Mode.OBSERVE),
    ],
)
async def test_on_a_server_without_resizes_only_new_pods_are_sized(
    tmp_path: Path, resources: tuple[str, ...], mode: Mode, expected: Mode
):
    async with connected(tmp_path, server(*resources)) as found:
        assert (await limit_mode_to_server(found, Policy(mode=mode))).mode is expected


async def test_where_nothing_is_written_nothing_is_announced(tmp_path: Path):
    async with connected(tmp_path, server()) as found:
        assert create_event_hooks(found) is NO_HOOKS
