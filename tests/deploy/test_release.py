"""Chart releases by real Helm on a real API server: install, upgrade, rollback, uninstall."""

import json
from pathlib import Path

import pytest

from tests.controlplane.api import Api, Json, wait_until
from tests.controlplane.audit import AuditEvent
from tests.controlplane.binaries import NotAvailable
from tests.controlplane.control_plane import ADMIN
from tests.deploy.installing import (
    CERTIFICATES,
    CHART,
    MODES,
    NAMESPACE,
    remove,
    resource_of,
    token,
)
from tests.deploy.releases import CONFIGURATION, FOLLOWING, KEPT, Cluster
from tests.deploy.rendering import objects
from tests.registry.serving import run_registry

pytestmark = pytest.mark.server


def deleted_by_helm(cluster: Cluster, since: int) -> list[AuditEvent]:
    """What Helm deleted, in its order; the records of the release itself apart."""
    deletions = cluster.plane.audit.events(since, ADMIN.name, {"delete"})
    return [one for one in deletions if one.user_agent.startswith("Helm/") and "sh.helm.release" not in one.target]


@pytest.mark.usefixtures("away")
def test_a_release_can_be_upgraded_rolled_back_and_uninstalled_without_leftovers(cluster: Cluster):
    assert "nothing is written" in cluster.install("observe")
    cluster.holds("observe")
    assert cluster.webhooks() == []
    held = {resource_of(one) for one in objects({"mode": "full"})}
    begun = cluster.there(held)

    cluster.upgrade("full")
    cluster.holds("full")
    passwords = cluster.admin.read("secrets", NAMESPACE, "cruise-database")["data"]

    cluster.upgrade("observe")
    cluster.holds("observe")
    assert cluster.webhooks() == []
    # The database stays, with its passwords: a revert needs its rows.
    database = ("cruise-postgres", "secrets cruise-database", "cruise-migrate")
    more = cluster.there(held) - begun
    assert begun <= cluster.there(held)
    assert [one for one in more if not any(name in one for name in database)] == []
    assert cluster.admin.read("secrets", NAMESPACE, "cruise-database")["data"] == passwords

    cluster.helm("rollback", "cruise", "2")
    cluster.holds("full")
    assert len(cluster.webhooks()) == 1
    assert cluster.admin.read("secrets", NAMESPACE, "cruise-database")["data"] == passwords

    since = cluster.plane.audit.mark()
    cluster.helm("uninstall", "cruise")
    wait_until(lambda: cluster.there(held | set(FOLLOWING)) == KEPT, "nothing of cruise but the policies is left")
    assert deleted_by_helm(cluster, since)[0].resource == "mutatingwebhookconfigurations"


@pytest.mark.long
@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_installed_with_only_its_own_permissions(cluster: Cluster, mode: str):
    cluster.install(mode)
    cluster.holds(mode)
    assert bool(cluster.webhooks()) is (mode != "observe")


@pytest.mark.long
@pytest.mark.usefixtures("away")
def test_an_upgrade_leaves_what_cruise_has_written_itself(cluster: Cluster):
    cluster.install("full")
    cluster.holds("full")
    # As `cruise certificates` does, with the rights that the release gave it.
    keeper = cluster.plane.api(token=token(cluster.admin, CERTIFICATES))
    published = [{"name": "pods.cruise.io", "clientConfig": {"caBundle": "Q0E="}}]
    keeper.patch(CONFIGURATION, None, "cruise", {"webhooks": published})
    keeper.patch("secrets", NAMESPACE, "cruise-webhook-tls", {"data": {"tls.crt": "Q0E="}})
    cluster.upgrade("full")
    [webhook] = cluster.webhooks()
    assert webhook["webhooks"][0]["clientConfig"]["caBundle"] == "Q0E="
    assert cluster.admin.read("secrets", NAMESPACE, "cruise-webhook-tls")["data"] == {"tls.crt": "Q0E="}


@pytest.mark.long
@pytest.mark.usefixtures("away")
def test_what_kubectl_has_installed_is_taken_over(cluster: Cluster):
    plain = objects({"mode": "full", "database.existingSecret": "cruise-database", "forKubectl": "true"})
    for one in plain:
        cluster.admin.apply(one)
    database = ("--set", "mode=resize", "--set", "database.existingSecret=cruise-database")
    cluster.helm("install", "cruise", str(CHART), "--take-ownership", "--force-conflicts", *database)
    assert len(cluster.webhooks()) == 1
    cluster.helm("uninstall", "cruise")
    # Objects that mode resize does not have are left to other owners.
    left = cluster.there({resource_of(one) for one in plain})
    assert left == {
        "clusterroles.rbac.authorization.k8s.io cruise-full",
        "clusterrolebindings.rbac.authorization.k8s.io cruise-full",
        "jobs.batch cruise-migrate",
        "namespaces cruise",
        *KEPT,
    }
    for one in plain:
        if one["kind"] != "Namespace":
            remove(cluster.admin, one)


@pytest.mark.long
@pytest.mark.usefixtures("away")
def test_the_chart_is_pushed_to_a_registry_and_installed_from_there(cluster: Cluster, tmp_path: Path):
    try:
        with run_registry(tmp_path) as address:
            cluster.helm("package", str(CHART), "--destination", str(tmp_path))
            [packed] = tmp_path.glob("cruise-*.tgz")
            cluster.helm("push", str(packed), f"oci://{address}/charts", "--plain-http")
            packed.unlink()
            chart = f"oci://{address}/charts/cruise"
            cluster.helm("install", "cruise", chart, "--plain-http", "--create-namespace")
            cluster.holds("observe")
            cluster.helm(
                "upgrade", "cruise", chart, "--plain-http", "--reset-then-reuse-values", "--set", "mode=resize"
            )
            cluster.holds("resize")
    except NotAvailable as missing:
        pytest.skip(f"no registry on this machine: {missing}")


MUCH = """
mode: full
size: 150k
image: {digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
imagePullSecrets: [{name: registry}]
excludedNamespaces: [legacy]
commonLabels: {team: platform}
commonAnnotations: {contact: platform@example.com}
settings: {pass_interval: 10m, memory_risk: 0.001}
prometheus: {serviceAccount: prometheus-k8s}
kubelets: {enabled: true, crossCheck: true}
notifications: {existingSecret: hooks}
postgres: {storageClassName: fast, keepVolume: true, nodeSelector: {disk: ssd}}
networkPolicy:
  apiServer: [{ipBlock: {cidr: 10.0.0.0/8}}]
  nodes: [{ipBlock: {cidr: 10.1.0.0/16}}]
  notifications: [{ipBlock: {cidr: 10.2.0.0/16}}]
  fromApi: [{namespaceSelector: {matchLabels: {team: platform}}}]
serve: &more
  priorityClassName: system-cluster-critical
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{key: infra, operator: Exists}]
  affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}
  topologySpreadConstraints: []
  podAnnotations: {example.com/scrape: "false"}
  podLabels: {mesh: "off"}
  extraEnv: [{name: CRUISE_LOG_LEVEL, value: debug}]
  extraVolumes: [{name: ca, configMap: {name: ca}}]
  extraVolumeMounts: [{name: ca, mountPath: /etc/ca, readOnly: true}]
webhook:
  <<: *more
  timeoutSeconds: 5
  namespaceSelector: {matchExpressions: [{key: env, operator: In, values: [prod]}]}
  objectSelector: {matchLabels: {cruise: "yes"}}
grafanaDashboards: {enabled: true}
"""


def test_the_api_server_takes_all_that_values_can_say(cluster: Cluster, tmp_path: Path):
    (tmp_path / "much.yaml").write_text(MUCH)
    found = objects({"forKubectl": "true"}, "--values", str(tmp_path / "much.yaml"))
    cluster.admin.apply(next(one for one in found if one["kind"] == "Namespace"))
    templates = 0
    for one in found:
        strictly(cluster.admin, one)
        template = one.get("spec", {}).get("template")
        if template is not None:
            # The namespace enforces the restricted standard, on pods alone.
            metadata = {**template["metadata"], "name": "one", "namespace": NAMESPACE}
            spec = {**template["spec"], "serviceAccountName": "default"}
            if one["kind"] == "StatefulSet":
                spec["volumes"] = [*spec["volumes"], {"name": "data", "emptyDir": {}}]
            strictly(cluster.admin, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
            templates += 1
    assert templates == 5


OPTIONS: tuple[dict[str, str], ...] = (
    {},
    {"kubelets.enabled": "true"},
    {"kubelets.enabled": "true", "kubelets.access": "node-proxy"},
    {"kubelets.crossCheck": "true"},
    {"webhook.certificates": "cert-manager"},
    {"publishVpas": "initial"},
    {"database.url": "postgresql://cruise:x@db/cruise"},
    {"database.existingSecret": "mine"},
    {"database.existingSecret": "mine", "migrate.enabled": "false"},
    {"postgres.enabled": "true", "postgres.keepVolume": "true"},
    {"policies.enabled": "false", "flowControl.enabled": "false", "networkPolicy.enabled": "false"},
    {"rbac.create": "false"},
    {"serviceMonitor.enabled": "true", "prometheusRule.enabled": "true", "grafanaDashboards.enabled": "true"},
    {"notifications.existingSecret": "hooks"},
    {"serve.existingClaim": "data", "size": "3k"},
)
# Of operators that are not there.
FOREIGN = ("monitoring.coreos.com/", "cert-manager.io/")


def test_the_api_server_takes_each_mode_with_each_option(cluster: Cluster):
    known: set[str] = set()
    for mode in MODES:
        for option in OPTIONS:
            for one in objects({"mode": mode, **option, "forKubectl": "true"}):
                text = json.dumps(one, sort_keys=True)
                if text in known or one["apiVersion"].startswith(FOREIGN):
                    continue
                if one["kind"] == "Namespace":
                    cluster.admin.apply(one)
                strictly(cluster.admin, one)
                known.add(text)
    assert len(known) > 60


def strictly(admin: Api, one: Json) -> None:
    """Let the server judge an object, without keeping it; unknown fields are errors."""
    path = admin.path(resource_of(one), one["metadata"].get("namespace"), one["metadata"]["name"])
    query = "?dryRun=All&fieldManager=test&force=true&fieldValidation=Strict"
    admin.request("PATCH", path + query, one, "application/apply-patch+yaml")
