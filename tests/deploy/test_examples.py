"""The example values files: rendered, validated by a real API server, installed, upgraded, uninstalled."""

import base64
import gzip
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cruise.settings.loading import load_settings
from tests.controlplane.api import ApiError, wait_until
from tests.controlplane.binaries import NotAvailable
from tests.deploy.installing import CHART, resource_of
from tests.deploy.releases import FOLLOWING, KEPT, Cluster
from tests.deploy.rendering import Refused, objects, rendered
from tests.e2e.live.custom_kinds import defined, foreign_kinds
from tests.helm.binary import helm

pytestmark = pytest.mark.server
EXAMPLES = sorted(path for path in (CHART / "examples").glob("*.yaml") if path.stem != "cloudnative-pg")
CLOUDNATIVE_PG = Path(__file__).with_name("cloudnative_pg_clusters.json.gz")
# Kinds of programs that are not there, by group.
FOREIGN = {
    "gateway.networking.k8s.io": ("HTTPRoute", "BackendTLSPolicy"),
    "cert-manager.io": ("Certificate", "Issuer"),
}


@pytest.fixture(scope="module", autouse=True)
def helm_is_there() -> None:
    """Skip what needs Helm where it was not built."""
    try:
        helm()
    except NotAvailable as missing:
        pytest.skip(f"no Helm on this machine: {missing}")


@pytest.fixture(scope="module")
def equipped(cluster: Cluster) -> Iterator[Cluster]:
    """The control plane with the kinds of FOREIGN, whose definitions take a while to be deleted."""
    with foreign_kinds(cluster.admin, FOREIGN):
        yield cluster


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_installed_upgraded_and_leaves_nothing(equipped: Cluster, example: Path):
    values = ("--values", str(example))
    held = {resource_of(one) for one in objects({}, *values, "--set", "mode=full")}
    equipped.helm("install", "cruise", str(CHART), "--create-namespace", *values)
    try:
        begun = {one for one in equipped.there(held) if not one.startswith("jobs.batch")}
        equipped.helm("upgrade", "cruise", str(CHART), *values, "--set", "mode=full")
        assert begun <= equipped.there(held)
        assert "clusterroles.rbac.authorization.k8s.io cruise-full" in equipped.there(held)
    finally:
        equipped.helm("uninstall", "cruise")
    wait_until(lambda: equipped.there(held | set(FOLLOWING)) == KEPT, "nothing of cruise but the policies is left")


def test_the_database_of_cloudnative_pg_is_one_that_its_definition_takes(cluster: Cluster):
    """The definition is that of release 1.30.0 (Apache-2.0) without descriptions."""
    [database] = yaml.safe_load_all((CHART / "examples" / "cloudnative-pg.yaml").read_text())
    with defined(cluster.admin, json.loads(gzip.decompress(CLOUDNATIVE_PG.read_bytes()))):
        path = f"/apis/{database['apiVersion']}/namespaces/default/clusters?dryRun=All&fieldValidation=Strict"
        taken = cluster.admin.request("POST", path, database)
        assert [one["name"] for one in taken["spec"]["managed"]["roles"]] == [
            one["name"] for one in database["spec"]["managed"]["roles"]
        ]
        misspelt = {**database, "spec": {**database["spec"], "instance": 2}}
        with pytest.raises(ApiError, match=r"spec\.instance"):
            cluster.admin.request("POST", path, misspelt)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_cruise_reads_the_settings_of_an_example(example: Path):
    [settings] = [
        one["data"]
        for one in objects({}, "--values", str(example))
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "cruise"
    ]
    hosts = yaml.safe_load(example.read_text()).get("ingress", {}).get("hosts", [])
    assert load_settings(settings).http_allowed_hosts >= set(hosts)


def test_passwords_are_never_rendered_anew():
    with pytest.raises(Refused, match=r"passwords would be new each time; set postgres\.existingSecret"):
        rendered({"mode": "initial", "postgres.newPasswords": "false"})
    values = {"mode": "initial", "postgres.newPasswords": "false", "postgres.existingSecret": "mine"}
    text = rendered(values)
    assert text == rendered(values)
    found = [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]
    assert [one for one in found if one["kind"] == "Secret" and "database" in one["metadata"]["name"]] == []
    [postgres] = [one for one in found if one["kind"] == "StatefulSet"]
    [container] = postgres["spec"]["template"]["spec"]["containers"]
    names = {one["valueFrom"]["secretKeyRef"]["name"] for one in container["env"] if "valueFrom" in one}
    assert names == {"mine"}


def test_the_secrets_have_every_key_that_the_chart_and_the_database_name():
    script = CHART / "examples" / "database-secrets.sh"
    texts = [
        subprocess.run([script, "db.example", "cruise"], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert texts[0] != texts[1]
    secrets = {one["metadata"]["name"]: one["stringData"] for one in yaml.safe_load_all(texts[0])}
    rendered_text = rendered({"mode": "initial", "postgres.existingSecret": "cruise-database"})
    found = [one for one in yaml.load_all(rendered_text, yaml.CSafeLoader) if one]
    wanted = {
        reference["key"]
        for one in found
        for reference in find_secret_references(one)
        if reference["name"] == "cruise-database"
    }
    assert wanted
    assert wanted <= set(secrets["cruise-database"])
    [cluster] = yaml.safe_load_all((CHART / "examples" / "cloudnative-pg.yaml").read_text())
    for role in cluster["spec"]["managed"]["roles"]:
        assert secrets[role["passwordSecret"]["name"]]["username"] == role["name"]
        assert role["name"] in (CHART / "files" / "database.sql").read_text()
        password = secrets[role["passwordSecret"]["name"]]["password"]
        assert any(f"{role['name']}:{password}@db.example" in url for url in secrets["cruise-database"].values())


def find_secret_references(value: object) -> list[dict[str, str]]:
    """Every secretKeyRef below a value."""
    if isinstance(value, list):
        return [found for one in value for found in find_secret_references(one)]
    if not isinstance(value, dict):
        return []
    own = [value["secretKeyRef"]] if "secretKeyRef" in value else []
    return own + [found for one in value.values() for found in find_secret_references(one)]


def test_another_name_is_everywhere_and_the_accounts_are_those_that_the_policies_name():
    values = {
        "mode": "full",
        "fullnameOverride": "rightsizer",
        "nameOverride": "rightsizing",
        "serviceAccount.serve.name": "platform-resizer",
        "policies.leader": "true",
    }
    found = objects(values, namespace="platform")
    names = {(one["kind"], one["metadata"]["name"]) for one in found}
    # The API server names a definition by its group.
    assert {name for kind, name in names if "cruise" in name and kind != "CustomResourceDefinition"} == set()
    assert {one["metadata"]["labels"]["app.kubernetes.io/name"] for one in found} == {"rightsizing"}
    accounts = {name for kind, name in names if kind == "ServiceAccount"}
    assert accounts == {"platform-resizer", "rightsizer-webhook", "rightsizer-certificates"}
    subjects = {subject["name"] for one in found for subject in one.get("subjects", ())}
    assert subjects == accounts
    pods = [one["spec"]["template"]["spec"] for one in found if one["kind"] == "Deployment"]
    assert {pod["serviceAccountName"] for pod in pods} == accounts
    [policy] = [
        one
        for one in found
        if one["kind"] == "ValidatingAdmissionPolicy" and one["metadata"]["name"].endswith("accounts")
    ]
    [condition] = policy["spec"]["matchConditions"]
    assert "system:serviceaccount:platform:platform-resizer" in condition["expression"]
    [settings] = [one["data"] for one in found if (one["kind"], one["metadata"]["name"]) == ("ConfigMap", "rightsizer")]
    loaded = load_settings(settings)
    assert (loaded.webhook_service, loaded.webhook_configuration) == ("rightsizer-webhook", "rightsizer")
    assert "rightsizer.platform.svc" in loaded.http_allowed_hosts
    references = {name for one in found for name in find_names_of_objects(one)}
    assert references <= {name for _, name in names} | {"cluster-admin"}


def find_names_of_objects(value: object) -> list[str]:
    """The names of ConfigMaps and Secrets, policies and roles that an object refers to."""
    if isinstance(value, list):
        return [found for one in value for found in find_names_of_objects(one)]
    if not isinstance(value, dict):
        return []
    own = [value[key]["name"] for key in ("secretKeyRef", "configMapRef", "configMap", "roleRef") if value.get(key)]
    own += [value[key] for key in ("secretName", "policyName") if key in value]
    return own + [found for one in value.values() for found in find_names_of_objects(one)]


def test_openshift_assigns_the_ids_itself():
    for one in objects({}, "--values", str(CHART / "examples" / "openshift.yaml")):
        text = json.dumps(one)
        assert "runAsUser" not in text
        assert "fsGroup" not in text


def test_a_webhook_in_the_network_of_its_node_listens_where_its_service_points():
    found = objects({}, "--values", str(CHART / "examples" / "eks.yaml"))
    [pod] = [
        one["spec"]["template"]["spec"]
        for one in found
        if (one["kind"], one["metadata"]["name"]) == ("Deployment", "cruise-webhook")
    ]
    [container] = pod["containers"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert container["ports"] == [{"name": "https", "containerPort": 9443}]
    assert {"name": "CRUISE_WEBHOOK_ADDRESS", "value": "0.0.0.0:9443"} in container["env"]


def test_the_icon_is_the_dashboards():
    icon = yaml.safe_load((CHART / "Chart.yaml").read_text())["icon"]
    shown = CHART.parents[1] / "cruise" / "interfaces" / "dashboard" / "static" / "icon.svg"
    assert base64.b64decode(icon.partition("base64,")[2]) == shown.read_bytes()
    done = subprocess.run([helm(), "lint", str(CHART)], capture_output=True, text=True, check=False)
    assert (done.returncode, "icon" in done.stdout) == (0, False), done.stdout


def test_the_service_says_how_it_is_reached():
    values = {
        "serve.service.type": "LoadBalancer",
        "serve.service.nodePort": "30443",
        "serve.service.loadBalancerClass": "example.com/internal",
        "serve.service.loadBalancerSourceRanges": "{10.0.0.0/8}",
        "serve.certificate": "dashboard-tls",
        "serve.strategy.type": "Recreate",
    }
    found = objects(values)
    [service] = [one["spec"] for one in found if (one["kind"], one["metadata"]["name"]) == ("Service", "cruise")]
    assert (service["type"], service["loadBalancerClass"]) == ("LoadBalancer", "example.com/internal")
    assert service["ports"] == [
        {"name": "https", "port": 8080, "targetPort": "https", "appProtocol": "https", "nodePort": 30443}
    ]
    [serve] = [one["spec"] for one in found if one["kind"] == "Deployment"]
    assert serve["strategy"] == {"type": "Recreate"}
    [container] = serve["template"]["spec"]["containers"]
    assert {"name": "CRUISE_HTTP_TLS_DIR", "value": "/etc/cruise/certificate"} in container["env"]
