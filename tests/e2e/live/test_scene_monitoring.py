"""The chart's dashboards on a real Prometheus that scrapes serve and webhook: every panel has data."""

import json
import urllib.request
from urllib.parse import urlencode, urlsplit

import pytest

from tests.controlplane.api import Json, wait_until
from tests.deploy.installing import CHART, documents, remove
from tests.e2e.live.custom_kinds import vertical_autoscalers
from tests.e2e.live.manifests import app
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse
from tests.prometheus_server import running_prometheus

BOARDS = sorted((CHART / "files" / "dashboards").glob("*.json"))
# Of what did not happen in the scene there is nothing to show.
NOT_HERE = {
    "cruise_cross_checked_containers_total": "no kubelet may be read",
    "cruise_cross_checked_nodes_total": "no kubelet may be read",
    "cruise_http_connections_rejected_total": "nobody was turned away",
    "cruise_packing_": "no pod waits",
    'result=~"skipped|refused|failed"': "nothing was in the way",
}


def config(serve: str, webhook: str) -> str:
    """Prometheus' configuration as the operator makes it of the chart's ServiceMonitors, but scraping each second."""
    jobs = "".join(
        f"- job_name: {job}\n  scheme: {urlsplit(address).scheme}\n  tls_config: {{insecure_skip_verify: true}}\n"
        f"  static_configs: [{{targets: ['{urlsplit(address).netloc}']}}]\n"
        for job, address in (("cruise-serve", serve), ("cruise-webhook", webhook))
    )
    return f"global:\n  scrape_interval: 1s\nscrape_configs:\n{jobs}"


def asked(prometheus: str, expression: str) -> list[Json]:
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{urlencode({'query': expression})}", timeout=10) as answer:
        found: list[Json] = json.load(answer)["data"]["result"]
    return [one for one in found if one["value"][1] != "NaN"]


def expressions() -> list[tuple[str, str]]:
    return [
        (f"{board.stem}: {panel['title']}", target["expr"])
        for board in BOARDS
        for panel in json.loads(board.read_text())["panels"]
        for target in panel["targets"]
        if not any(name in target["expr"] for name in NOT_HERE)
    ]


@pytest.mark.long
def test_every_panel_of_the_dashboards_has_data(stage: LiveStage):
    stage.node(cpu="4", memory="8Gi")
    stage.create(app("Deployment", stage.namespace, "web", "200m", "256Mi", replicas=2))
    stage.create(app("Deployment", stage.namespace, "short", "100m", "128Mi"))
    stage.running(3)
    stage.measure(
        {"web": ContainerUse(cores=0.1, mebibytes=100, peak_cores=0.2), "short": ContainerUse(cores=2.0, mebibytes=300)}
    )
    rights, left = documents("rbac/publish.yaml"), expressions()
    with vertical_autoscalers(stage.admin):
        for one in rights:
            stage.admin.apply(one)
        try:
            with (
                stage.reviewing("resize") as webhook,
                stage.serving("resize", pass_interval="4s", node_load_interval="2s", publish_vpas="off") as serve,
                running_prometheus(config=config(serve.address, webhook.address)) as prometheus,
            ):
                # A counter that is there from the first scrape on has grown by nothing.
                wait_until(
                    lambda: len(asked(prometheus, "cruise_webhook_duration_seconds_count")) == 1, "it is scraped"
                )
                stage.create(app("Deployment", stage.namespace, "late", "100m", "64Mi"))

                def all_answer() -> bool:
                    left[:] = [one for one in left if not asked(prometheus, one[1])]
                    return not left

                wait_until(all_answer, "every panel has data")
        except AssertionError:
            pytest.fail(f"no data: {left}")
        finally:
            for one in rights:
                remove(stage.admin, one)
