"""scan and explain on a real cluster with read-only access."""

import pytest

from tests.controlplane.api import PATCH_TYPES
from tests.e2e.live.behind_the_api_server import on_address, own_address, serve_by_service
from tests.e2e.live.measured import MeasuredStage, list_refused, measure
from tests.e2e.live.stage import LiveStage


@pytest.fixture
def own_stage(stage: LiveStage) -> MeasuredStage:
    """A stage for a test that changes something."""
    return measure(stage)


def test_a_scan_needs_no_more_than_to_list_and_a_prometheus(measured: MeasuredStage):
    report = measured.command("scan", "--history", "1h", "--format", "json").json
    waste = {one["workload"]: one for one in measured.own(report["waste"]["workloads"])}
    assert set(waste) == {"Deployment/web", "StatefulSet/db"}
    assert waste["Deployment/web"]["requested"]["cpuMillicores"] == 1400
    assert waste["Deployment/web"]["recommended"]["cpuMillicores"] < 600
    assert measured.stage.writes() == []
    # Kinds that are not installed are queried anyway: those of autoscalers, and the status of one.
    assert {(one.verb, one.code) for one in measured.stage.events()} == {("list", 200), ("list", 404), ("get", 404)}


@pytest.mark.parametrize("width", [80, 160])
def test_a_scan_s_table_fits_the_terminal(measured: MeasuredStage, width: int):
    ended = measured.on_terminal(width, "scan", "--history", "1h")
    assert ended.code == 0, ended.err
    assert "Deployment/web" in ended.out
    assert max(len(line) for line in ended.out.splitlines()) <= width


def test_an_exported_patch_gives_a_template_exactly_what_was_decided(measured: MeasuredStage):
    stage = measured.stage
    report = measured.command("export", "-n", stage.namespace, "--history", "1h", "--format", "json").json
    assert [one["workload"] for one in report["workloads"]] == ["Deployment/web", "StatefulSet/db"]
    for one in report["workloads"]:
        kind, _, name = one["workload"].partition("/")
        path = stage.admin.path(f"{kind.lower()}s.apps", stage.namespace, name)
        kept = stage.admin.request("PATCH", f"{path}?dryRun=All", one["patch"], PATCH_TYPES["strategic"])
        [container] = kept["spec"]["template"]["spec"]["containers"]
        after = one["containers"][0]["after"]
        # The API server drops a map without entries: limits, where the template has none.
        assert container["resources"] == {name: amounts for name, amounts in after.items() if amounts}
        assert one["containers"][0]["evidence"]["cpuPeakMillicores"] in range(190, 240)
    assert stage.writes() == []


def test_prometheus_is_found_by_its_service_and_queried_through_the_api_server(own_stage: MeasuredStage):
    address, stage = own_address(), own_stage.stage
    with on_address(address, own_stage.prometheus) as port:
        serve_by_service(stage.admin, stage.namespace, port, address)
        found = {"prometheus_url": "", "kubeconfig": str(stage.plane.kubeconfig())}
        said = list_refused(own_stage.command("scan", **found))
        report = own_stage.command(
            "scan", "--history", "1h", "--format", "json", prometheus_namespaces=stage.namespace, **found
        ).json
    assert (
        f"Service {stage.namespace}/prometheus-server is labelled as Prometheus, but its namespace is not trusted"
        in said
    )
    assert own_stage.own(report["waste"]["workloads"])
    assert f"/namespaces/{stage.namespace}/services/http:prometheus-server:80/proxy" in report["statisticsSource"]


def test_a_missing_right_to_list_services_is_reported_with_the_fix(measured: MeasuredStage):
    said = list_refused(measured.command("scan", prometheus_url=""))
    assert "no right to list Services, so Prometheus cannot be found: give --prometheus-url URL" in said


def test_missing_read_permissions_are_listed(measured: MeasuredStage):
    stage = measured.stage
    account = {"namespace": stage.namespace, "name": "nobody"}
    stage.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    token = stage.admin.service_account_token(stage.namespace, "nobody")
    said = list_refused(measured.command("scan", kubeconfig=str(stage.plane.kubeconfig("nobody", token))))
    assert "cannot be listed" in said
    assert "deploy/rbac/observe.yaml grants all permissions that are needed" in said


def test_a_pod_without_stored_statistics_is_explained_from_prometheus(measured: MeasuredStage, tmp_path):
    name = f"{measured.stage.namespace}/{measured.stage.pod('db')['metadata']['name']}"
    nowhere = {"database_url": "", "data_dir": str(tmp_path / "nothing")}
    explained = measured.command("explain", name, "--format", "json", **nowhere).json
    assert (explained["outcome"], explained["history"]) == ("resized", None)
    assert explained["containers"][0]["statistic"]["cpuBaseMillicores"] in range(95, 125)
    assert not (tmp_path / "nothing").exists()


def test_a_pod_is_explained_by_what_the_store_remembers(own_stage: MeasuredStage):
    name = f"{own_stage.stage.namespace}/{own_stage.stage.pod('db')['metadata']['name']}"
    before = own_stage.command("explain", name, "--format", "json").json
    assert (before["outcome"], before["history"]["outcomes"]) == ("resized", [])
    own_stage.stage.once("resize")
    after = own_stage.command("explain", name, "--format", "json").json
    assert [one["result"] for one in after["history"]["outcomes"]] == ["done"]


def test_without_the_cluster_the_store_still_answers(own_stage: MeasuredStage):
    db = own_stage.stage.pod("db")["metadata"]["name"]
    own_stage.stage.once("resize")
    gone = own_stage.stage.plane.directory / "gone.kubeconfig"
    gone.write_text(own_stage.stage.plane.kubeconfig().read_text().replace("https://127.0.0.1", "https://127.0.0.2"))
    ended = own_stage.command("explain", f"{own_stage.stage.namespace}/{db}", kubeconfig=str(gone))
    assert ended.code == 0
    assert "without the cluster, from the database: " in ended.err
    assert "resize  done" in ended.out


def test_a_pod_that_is_not_there_is_refused_with_those_that_are_like_it(measured: MeasuredStage):
    said = list_refused(measured.command("explain", f"{measured.stage.namespace}/db-1"))
    assert f"the cluster has no pod {measured.stage.namespace}/db-1; did you mean db-0?" in said
