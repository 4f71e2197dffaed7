"""`cruise check` on a real cluster, as cruise's account and as an admin, with and without problems."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from cruise.adapters.webhook_tls.certificates import make_key_pair
from tests.controlplane.api import Api, Json
from tests.deploy.installing import NAMESPACE, grant, remove
from tests.e2e.live.custom_kinds import create_vertical, vertical_autoscalers
from tests.e2e.live.manifests import autoscaler
from tests.e2e.live.measured import MeasuredStage, list_refused, measure
from tests.e2e.live.programs import EndedProgram
from tests.e2e.live.stage import LiveStage

NAMES = ("cruise-webhook.cruise.svc",)


@pytest.fixture
def own_stage(stage: LiveStage) -> MeasuredStage:
    """A stage for a test that changes something."""
    return measure(stage)


def items(ended: EndedProgram) -> dict[str, Json]:
    return {f"{one['area']}: {one['name']}": one for one in json.loads(ended.out)["items"]}


def levels(ended: EndedProgram) -> dict[str, str]:
    return {place: one["level"] for place, one in items(ended).items()}


def test_cruise_s_own_account_may_look_and_changes_nothing(measured: MeasuredStage):
    ended = measured.command("check", "--format", "json", mode="resize")
    assert ended.code == 0, ended.out
    found = levels(ended)
    well = ("cluster: resize", "rights: RBAC", "metrics: cpu series", "metrics: pressure", "database: postgres")
    assert {place: found[place] for place in well} == dict.fromkeys(well, "ok")
    assert "system:serviceaccount:cruise:cruise-serve may do all" in items(ended)["rights: RBAC"]["finding"]
    assert (found["metrics: history"], found["webhook: registration"]) == ("warn", "warn")
    # Asking who one is is a POST, and changes nothing.
    assert {resource for _, resource, _, _ in measured.stage.writes()} <= {"selfsubjectreviews"}


def test_what_the_next_mode_would_need_is_reported_before_it_is_set(measured: MeasuredStage):
    ended = measured.command("check", "--mode", "full", "--format", "json", mode="resize")
    assert ended.code == 1
    rights = items(ended)["rights: RBAC"]
    assert rights["level"] == "red"
    assert rights["finding"].endswith("may not create pods/eviction, patch nodes")
    assert "-f deploy/rbac/full.yaml" in rights["fix"]


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_fits_and_has_a_fix_for_each_shortcoming(measured: MeasuredStage, width: int):
    ended = measured.on_terminal(width, "check", "--mode", "full", mode="resize")
    assert ended.code == 1
    lines = ended.out.splitlines()
    assert max(len(line) for line in lines) <= width
    assert any(line.startswith("red ") and "RBAC" in line for line in lines)
    assert "kubectl apply -f deploy/rbac/observe.yaml" in " ".join(ended.out.split())
    assert "cruise cannot run in mode full: " in " ".join(ended.out.split())


def test_a_prometheus_that_is_gone_or_knows_other_pods_is_red(measured: MeasuredStage):
    gone = measured.command("check", "--format", "json", prometheus_url="http://127.0.0.1:1")
    assert (gone.code, levels(gone)["metrics: prometheus"]) == (1, "red")
    other = measured.command("check", "--format", "json", prometheus_pod_label="pod_name")
    cpu = items(other)["metrics: cpu series"]
    assert (other.code, cpu["level"]) == (1, "red")
    assert "other series have the labels " in cpu["finding"]
    assert "pod" in cpu["finding"]
    assert "prometheus_pod_label" in cpu["fix"]


def test_an_unreachable_database_is_red_and_the_other_checks_still_run(measured: MeasuredStage):
    ended = measured.command("check", "--format", "json", database_url="postgresql://x:s3cret@127.0.0.1:1/x")
    assert (ended.code, levels(ended)["database: postgres"]) == (1, "red")
    assert "s3cret" not in ended.out
    assert levels(ended)["metrics: cpu series"] == "ok"


def test_an_unreachable_api_server_is_red_and_no_cluster_is_bad_input(measured: MeasuredStage, tmp_path):
    kubeconfig = tmp_path / "gone"
    kubeconfig.write_text(
        measured.stage.plane.kubeconfig().read_text().replace("https://127.0.0.1", "https://127.0.0.2")
    )
    ended = measured.command("check", "--format", "json", kubeconfig=str(kubeconfig))
    assert (ended.code, levels(ended)["cluster: API server"]) == (1, "red")
    said = list_refused(measured.command("check", kubeconfig=str(tmp_path / "nowhere")))
    assert "nowhere does not exist" in said
    assert "is not" in list_refused(measured.command("check", "--mode", "fast"))


def configuration(bundle: bytes, failure_policy: str = "Ignore") -> Json:
    """A registration that concerns no pod at all."""
    webhook = {
        "name": "pods.cruise.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": failure_policy,
        "clientConfig": {
            "service": {"name": "cruise-webhook", "namespace": NAMESPACE},
            "caBundle": base64.b64encode(bundle).decode(),
        },
        "objectSelector": {"matchLabels": {"cruise.io/nobody": "true"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "cruise-checked"},
        "webhooks": [webhook],
    }


def test_a_webhook_is_looked_at_with_its_certificate(measured: MeasuredStage):
    stage = measured.stage
    grant(stage.admin, "observe")
    now = datetime.now(UTC)  # noqa: TID251 - certificates are of the real time
    pair, authority = make_key_pair(NAMES, now, timedelta(days=30))
    _, other = make_key_pair(NAMES, now, timedelta(days=30))
    secret: Json = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": NAMESPACE, "name": "checked-tls"},
        "data": {
            "tls.crt": base64.b64encode(pair.certificate).decode(),
            "tls.key": base64.b64encode(pair.key).decode(),
        },
    }
    admin = {"kubeconfig": str(stage.plane.kubeconfig()), "webhook_configuration": "cruise-checked"}
    admin["webhook_service"] = "checked"
    try:
        stage.admin.apply(secret)
        seen = []
        for one in (None, configuration(authority), configuration(other), configuration(authority, "Fail")):
            if one is not None:
                stage.admin.apply(one)
            ended = measured.command("check", "--mode", "resize", "--format", "json", **admin)
            seen.append({place: level for place, level in levels(ended).items() if place.startswith("webhook")})
    finally:
        remove(stage.admin, configuration(b""))
        remove(stage.admin, secret)
    well = {"webhook: registration": "ok", "webhook: certificate": "ok", "webhook: callers": "ok"}
    assert seen == [
        {"webhook: registration": "red"},
        well,
        {**well, "webhook: certificate": "red"},
        {**well, "webhook: fails open": "red"},
    ]


@pytest.fixture
def vertical(admin: Api) -> Iterator[None]:
    with vertical_autoscalers(admin):
        yield


def test_objects_in_the_way_are_named(own_stage: MeasuredStage, vertical: None):
    stage = own_stage.stage
    create_vertical(stage.admin, stage.namespace, "web")
    limits = {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "100m"}}
    place = {"namespace": stage.namespace, "name": "fixed"}
    stage.create(
        autoscaler(stage.namespace, "web"),
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": place, "spec": {"limits": [limits]}},
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": place,
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
        },
    )
    kubeconfig = str(stage.plane.kubeconfig())
    ended = own_stage.command("check", "--mode", "full", "--format", "json", kubeconfig=kubeconfig)
    found = items(ended)
    assert found["objects: VPAs"]["level"] == "warn"
    assert f"{stage.namespace}/web" in found["objects: VPAs"]["finding"]
    assert found["objects: limit ranges"]["level"] == "warn"
    assert stage.namespace in found["objects: limit ranges"]["finding"]
    assert found["objects: strict PDBs"]["level"] == "warn"
    assert f"{stage.namespace}/web (cpu of Deployment/web)" in found["objects: HPAs"]["finding"]
