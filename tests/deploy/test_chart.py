"""The Helm chart as Helm renders it: objects per mode, the files of deploy/, and rejected values."""

import json
import re
import subprocess
import tarfile
from itertools import product
from pathlib import Path

import pytest
import yaml

import cruise
from cruise.decisions.preflight.preflight import list_required_access
from cruise.domain.policy import Mode
from cruise.domain.preflight import RequiredAccess
from cruise.settings.loading import load_settings
from cruise.settings.settings import SETTING_TYPES
from tests.controlplane.api import Json
from tests.controlplane.binaries import NotAvailable
from tests.deploy.installing import CHART, DEPLOY, MANIFESTS, MODES, NAMESPACE, SERVE
from tests.deploy.rendering import VALUES, Refused, manifests, objects, rendered
from tests.helm.binary import helm

pytestmark = pytest.mark.server
BYTES = {"Mi": 1 << 20, "Gi": 1 << 30}


@pytest.fixture(scope="module", autouse=True)
def helm_is_there(request: pytest.FixtureRequest) -> None:
    """Skip what needs Helm where it was not built."""
    try:
        helm()
    except NotAvailable as missing:
        pytest.skip(f"no Helm on this machine: {missing}")


def kinds(found: list[Json]) -> set[str]:
    return {one["kind"] for one in found}


def named(found: list[Json], kind: str, name: str) -> Json:
    [one] = [one for one in found if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return one


def rights(found: list[Json], account: str) -> set[RequiredAccess]:
    """What the roles of a rendering that are bound to an account allow."""
    roles = {(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]): one for one in found}
    held = set()
    for binding in found:
        if account not in {subject["name"] for subject in binding.get("subjects", ())}:
            continue
        namespace = binding["metadata"].get("namespace")
        role = roles[binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]]
        for rule in role["rules"]:
            cells = product(rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", [""]))
            for group, resource, verb, name in cells:
                plural, _, subresource = resource.partition("/")
                held.add(RequiredAccess(verb, plural, group, subresource, namespace or "", name))
    return held


def test_the_files_of_deploy_are_what_the_chart_renders():
    assert set(VALUES) == set(MANIFESTS)
    outdated = [file for file, text in manifests() if (DEPLOY / file).read_text() != text]
    assert outdated == [], "run `make manifests`"


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_has_the_rights_that_the_code_needs_and_no_other(mode: str):
    found = objects({"mode": mode}, namespace="elsewhere")
    [needed] = [list_required_access(one, "elsewhere", reviews_callers=True) for one in Mode if one.label == mode]
    assert rights(found, SERVE) == set(needed)
    accounts = {one["metadata"]["name"] for one in found if one["kind"] == "ServiceAccount"}
    webhook = {"cruise-webhook", "cruise-certificates"} if mode != "observe" else set()
    assert accounts == {SERVE} | webhook
    assert ("MutatingWebhookConfiguration" in kinds(found)) is (mode != "observe")
    assert {one["metadata"].get("namespace", "elsewhere") for one in found} <= {"elsewhere", "kube-system"}


def test_observe_is_the_default_and_has_no_verb_that_writes():
    found = objects({})
    assert found == objects({"mode": "observe"})
    verbs = {
        (verb, *rule.get("resources", rule.get("nonResourceURLs")))
        for one in found
        for rule in one.get("rules") or ()
        for verb in rule["verbs"]
    }
    assert {one for one in verbs if one[0] not in ("get", "list", "watch")} == {
        ("create", "tokenreviews"),
        ("create", "subjectaccessreviews"),
    }
    assert kinds(found).isdisjoint({"MutatingWebhookConfiguration", "StatefulSet", "Job", "Secret"})


def test_the_webhook_selects_the_namespaces_that_are_sized():
    values = {"mode": "initial", "includedNamespaces": "{shop,bank}", "namespaceSelector.matchLabels.team": "web"}
    found = [one for one in yaml.load_all(rendered(values), yaml.CSafeLoader) if one]
    settings = named(found, "ConfigMap", "cruise")["data"]
    assert (settings["CRUISE_INCLUDED_NAMESPACES"], settings["CRUISE_NAMESPACE_SELECTOR"]) == ("shop,bank", "team=web")
    [webhook] = named(found, "MutatingWebhookConfiguration", "cruise")["webhooks"]
    selector = webhook["namespaceSelector"]
    assert selector["matchLabels"] == {"team": "web"}
    assert {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop", "bank"]} in (
        selector["matchExpressions"]
    )
    # A label selector has no patterns: then the webhook decides.
    with_pattern = rendered({"mode": "initial", "includedNamespaces": "{shop,team-*}"})
    found = [one for one in yaml.load_all(with_pattern, yaml.CSafeLoader) if one]
    [webhook] = named(found, "MutatingWebhookConfiguration", "cruise")["webhooks"]
    assert {one["operator"] for one in webhook["namespaceSelector"]["matchExpressions"]} == {"NotIn"}


def test_no_part_of_the_release_is_lost_in_another_namespace():
    text = rendered({"mode": "full", "excludedNamespaces": "{legacy}"}, namespace="elsewhere")
    assert "cruise.svc" not in text
    found = [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]
    policy = named(found, "ValidatingAdmissionPolicy", "cruise-accounts")
    assert "serviceaccount:elsewhere:cruise-" in json.dumps(policy)
    assert "'kube-node-lease', 'elsewhere', 'legacy']" in json.dumps(policy)
    [webhook] = named(found, "MutatingWebhookConfiguration", "cruise")["webhooks"]
    [excluded] = webhook["namespaceSelector"]["matchExpressions"]
    assert excluded["values"] == ["kube-system", "elsewhere", "legacy"]
    settings = named(found, "ConfigMap", "cruise")["data"]
    assert settings["CRUISE_EXCLUDED_NAMESPACES"] == "kube-system,elsewhere,legacy"
    assert "cruise-postgres.elsewhere.svc:5432" in named(found, "Secret", "cruise-database")["stringData"]["url"]


@pytest.mark.parametrize("mode", MODES)
def test_cruise_reads_every_variable_of_its_containers(mode: str):
    found = objects({"mode": mode})
    shared = named(found, "ConfigMap", "cruise")["data"]
    for one in found:
        if one["kind"] not in ("Deployment", "Job"):
            continue
        [container] = one["spec"]["template"]["spec"]["containers"]
        stated = dict(shared) if container.get("envFrom") else {}
        for variable in container.get("env", ()):
            stated[variable["name"]] = variable.get("value", "postgresql://cruise@db/cruise")
        assert load_settings(stated).mode.label == (mode if container.get("envFrom") else "observe")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"mode": "fulll"}, "at '/mode': value must be one of 'observe', 'initial', 'resize', 'full'"),
        ({"modes": "full"}, "additional properties 'modes' not allowed"),
        ({"settings.pass_intervall": "3m"}, "at '/settings': additional properties 'pass_intervall' not allowed"),
        ({"webhook.timeoutSeconds": "30"}, "at '/webhook/timeoutSeconds': maximum: got 30, want 10"),
        ({"prometheus.url": "prometheus:9090"}, "at '/prometheus/url': 'prometheus:9090' does not match"),
        ({"mode": "full", "postgres.enabled": "false"}, "mode full needs a database that serve and webhook share"),
        ({"postgres.enabled": "true", "database.url": "postgresql://db/c"}, "both set; keep one database"),
        ({"size": "20k"}, "at '/size': value must be one of '3k', '15k', '50k', '150k'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_wrong_values_get_one_clear_line(values: dict[str, str], said: str):
    with pytest.raises(Refused) as refused:
        rendered(values)
    [line] = [line for line in str(refused.value).splitlines() if said in line]
    assert line


def test_settings_arrive_as_cruise_reads_them():
    values = {
        "settings.prometheus_max_samples_per_query": "2000000",
        "settings.memory_risk": "0.0001",
        "settings.packing_enabled": "false",
        "settings.http_allowed_hosts": "{a.example,b.example}",
    }
    data = named(objects(values), "ConfigMap", "cruise")["data"]
    read = {
        key: SETTING_TYPES[key].read(data[f"CRUISE_{key.upper()}"]) for key in (one.split(".")[1] for one in values)
    }
    assert read == {
        "prometheus_max_samples_per_query": 2_000_000,
        "memory_risk": 0.0001,
        "packing_enabled": False,
        "http_allowed_hosts": frozenset({"a.example", "b.example"}),
    }


def test_a_size_covers_what_was_measured():
    """docs/performance.md: serve and webhook with 3,000 pods and with 150,000; between them in proportion."""
    text = (DEPLOY.parent / "docs" / "performance.md").read_text()
    few = re.search(r"With 3,000 pods serve takes (\d+) MiB and the webhook (\d+)", text)
    many = re.search(r"at most ([\d,]+) \|\n\| `cruise webhook`, whole process \| (\d+) MiB", text)
    assert few is not None
    assert many is not None
    sizes = yaml.safe_load((CHART / "files" / "sizes.yaml").read_text())
    for place, component in enumerate(("serve", "webhook"), start=1):
        least, most = int(few[place]), int(many[place].replace(",", ""))
        for size, resources in sizes[component].items():
            expected = least + (most - least) * (int(size[:-1]) - 3) / 147
            amounts = [resources[kind]["memory"] for kind in ("requests", "limits")]
            requested, limit = (int(one[:-2]) * BYTES[one[-2:]] / (1 << 20) for one in amounts)
            assert expected <= requested <= 2 * expected
            assert limit >= 2 * requested
    small, large = (
        named(objects({"size": size}), "Deployment", SERVE)["spec"]["template"]["spec"]["containers"][0]["resources"]
        for size in ("3k", "150k")
    )
    assert (small, large) == (sizes["serve"]["3k"], sizes["serve"]["150k"])


def test_labels_of_users_are_on_everything_and_in_no_selector():
    found = objects({"mode": "full", "commonLabels.team": "platform"})
    assert [one["kind"] for one in found if one["metadata"]["labels"].get("team") != "platform"] == []
    for one in found:
        selector = one.get("spec", {}).get("selector", {})
        assert "team" not in json.dumps(selector)


def test_what_watches_cruise_is_rendered_on_request():
    on = ("serviceMonitor", "prometheusRule", "grafanaDashboards")
    values = {f"{name}.enabled": "true" for name in on} | {"prometheusRule.docsUrl": "https://docs.example/cruise/"}
    found = objects({**values, "prometheus.serviceAccount": "prometheus-k8s"})
    assert kinds(found) >= {"ServiceMonitor", "PrometheusRule", "ConfigMap"}
    groups = named(found, "PrometheusRule", "cruise")["spec"]["groups"]
    assert [group["name"] for group in groups] == ["cruise"]
    links = {rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]}
    assert all(link.startswith("https://docs.example/cruise/runbooks.md#cruise") for link in links)
    assert "{{ $value }}" in json.dumps(groups)
    board = named(found, "ConfigMap", "cruise-dashboard-overview")
    assert json.loads(board["data"]["overview.json"])["uid"] == "cruise-overview"
    [subject] = named(found, "ClusterRoleBinding", "cruise-metrics")["subjects"]
    assert (subject["name"], subject["namespace"]) == ("prometheus-k8s", "monitoring")
    full = objects({**values, "mode": "full"})
    assert len(named(full, "PrometheusRule", "cruise")["spec"]["groups"]) == 2
    assert len([one for one in full if one["kind"] == "ServiceMonitor"]) == 2


@pytest.mark.parametrize(("access", "resource"), [("direct", "metrics"), ("node-proxy", "proxy")])
def test_kubelets_take_the_place_of_prometheus(access: str, resource: str):
    found = objects({"kubelets.enabled": "true", "kubelets.access": access})
    more = rights(found, SERVE) - rights(objects({}), SERVE)
    assert more == {RequiredAccess("get", "nodes", "", resource)}
    settings = named(found, "ConfigMap", "cruise")["data"]
    assert (settings["CRUISE_USAGE_SOURCE"], settings["CRUISE_KUBELET_ACCESS"]) == ("kubelets", access)
    assert "CRUISE_PROMETHEUS_URL" not in settings
    policies = {one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "NetworkPolicy"}
    assert not policies[SERVE].get("egress")
    assert ("cruise-kubelets" in policies) is (access == "direct")


def test_kubelets_are_compared_with_prometheus_by_the_same_right_and_are_no_source():
    found = objects({"kubelets.crossCheck": "true"})
    assert rights(found, SERVE) - rights(objects({}), SERVE) == {RequiredAccess("get", "nodes", "", "metrics")}
    settings = named(found, "ConfigMap", "cruise")["data"]
    assert "CRUISE_PROMETHEUS_URL" in settings
    assert "CRUISE_USAGE_SOURCE" not in settings
    assert named(found, "NetworkPolicy", "cruise-kubelets")
    assert named(found, "NetworkPolicy", SERVE)["spec"]["egress"]


@pytest.mark.parametrize("form", ["generic", "slack"])
def test_notifications_are_configured_by_a_secret_and_have_egress(form: str):
    assert "cruise-notifications" not in {one["metadata"]["name"] for one in objects({})}
    values = {"notifications.existingSecret": "hooks", "notifications.format": form, "notifications.port": "8443"}
    found = objects({**values, "networkPolicy.notifications[0].ipBlock.cidr": "10.2.0.0/16"})
    spec = named(found, "Deployment", SERVE)["spec"]["template"]["spec"]
    [container] = spec["containers"]
    stated = {one["name"]: one["value"] for one in container["env"] if "NOTIFY" in one["name"]}
    assert load_settings(stated).notify_format.value == form
    assert ("CRUISE_NOTIFY_SECRET_FILE" in stated) is (form == "generic")
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "notifications"]
    assert all(Path(file).parent == Path(mount["mountPath"]) for name, file in stated.items() if "FILE" in name)
    assert {"name": "notifications", "secret": {"secretName": "hooks"}} in spec["volumes"]
    [out] = named(found, "NetworkPolicy", "cruise-notifications")["spec"]["egress"]
    assert out == {"ports": [{"port": 8443}], "to": [{"ipBlock": {"cidr": "10.2.0.0/16"}}]}


def test_cert_manager_takes_the_place_of_cruises_own_account():
    found = objects({"mode": "initial", "webhook.certificates": "cert-manager"})
    assert "cruise-certificates" not in {one["metadata"]["name"] for one in found}
    certificate = named(found, "Certificate", "cruise-webhook")
    assert certificate["spec"]["dnsNames"] == [f"cruise-webhook.{NAMESPACE}.svc"]
    assert named(found, "Issuer", certificate["spec"]["issuerRef"]["name"])
    webhook = named(found, "MutatingWebhookConfiguration", "cruise")
    assert webhook["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/cruise-webhook"}


@pytest.mark.parametrize(
    ("url", "namespace", "port"),
    [
        ("http://prometheus.metrics.svc:9090", "metrics", 9090),
        ("https://thanos-query.metrics.svc.cluster.local:10902/path", "metrics", 10902),
        ("http://prometheus.metrics", "metrics", 80),
        ("https://prometheus.example.com", None, 443),
        ("http://10.1.2.3:9090", None, 9090),
    ],
)
def test_the_network_is_open_to_where_prometheus_is(url: str, namespace: str | None, port: int):
    policy = named(objects({"prometheus.url": url}), "NetworkPolicy", SERVE)
    [out] = policy["spec"]["egress"]
    assert out["ports"] == [{"port": port}]
    peers = [one["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for one in out.get("to", ())]
    assert peers == ([namespace] if namespace else [])


def test_a_database_is_the_charts_own_only_where_none_is_named():
    own = objects({"mode": "resize"})
    assert named(own, "StatefulSet", "cruise-postgres")
    for values in ({"database.existingSecret": "mine"}, {"database.url": "postgresql://cruise:x@db/cruise"}):
        found = objects({"mode": "resize", **values})
        assert "StatefulSet" not in kinds(found)
        environment = named(found, "Deployment", "cruise-webhook")["spec"]["template"]["spec"]["containers"][0]["env"]
        [reference] = [one["valueFrom"]["secretKeyRef"] for one in environment if "valueFrom" in one]
        assert reference["name"] == values.get("database.existingSecret", "cruise-database")
        assert ("Job" in kinds(found)) is ("database.existingSecret" in values)


def test_a_new_image_is_another_job_since_a_job_cannot_be_changed():
    one, same, other = (
        next(found["metadata"]["name"] for found in objects({"mode": "full", **more}) if found["kind"] == "Job")
        for more in ({}, {"size": "3k"}, {"image.tag": "v2"})
    )
    assert one == same != other


def test_helm_has_no_complaint_and_packs_what_is_rendered_from(tmp_path: Path):
    lint = subprocess.run([helm(), "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert lint.returncode == 0, lint.stdout + lint.stderr
    subprocess.run([helm(), "package", CHART, "--destination", tmp_path], capture_output=True, check=True)
    with tarfile.open(next(tmp_path.glob("cruise-*.tgz"))) as archive:
        packed = {name.removeprefix("cruise/") for name in archive.getnames()}
    assert packed == {str(file.relative_to(CHART)) for file in CHART.rglob("*") if file.is_file()}


def test_the_chart_is_of_the_version_that_it_installs():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == cruise.__version__
    [serve] = named(objects({}), "Deployment", SERVE)["spec"]["template"]["spec"]["containers"]
    assert serve["image"] == f"cruise:{cruise.__version__}"
    digest = "sha256:" + "0" * 64
    [serve] = named(objects({"image.digest": digest}), "Deployment", SERVE)["spec"]["template"]["spec"]["containers"]
    assert serve["image"] == f"cruise@{digest}"


def test_a_provider_to_sign_in_by_has_its_secret_its_authority_and_a_way_out():
    assert "cruise-oidc" not in {one["metadata"]["name"] for one in objects({})}
    address = {"oidc.issuerUrl": "https://idp.example.com", "oidc.redirectUrl": "https://cruise.example.com/signed-in"}
    found = objects({**address, "oidc.clientId": "cruise", "oidc.clientSecret": "client", "oidc.ca": "idp-ca"})
    spec = named(found, "Deployment", SERVE)["spec"]["template"]["spec"]
    [container] = spec["containers"]
    environment = {one["name"]: one["value"] for one in container["env"] if one["name"].startswith("CRUISE_OIDC_")}
    assert environment == {
        "CRUISE_OIDC_ISSUER_URL": "https://idp.example.com",
        "CRUISE_OIDC_CLIENT_ID": "cruise",
        "CRUISE_OIDC_REDIRECT_URL": "https://cruise.example.com/signed-in",
        "CRUISE_OIDC_CLIENT_SECRET_FILE": "/etc/cruise/oidc/client-secret",
        "CRUISE_OIDC_CA_FILE": "/etc/cruise/oidc-ca/ca.crt",
    }
    assert load_settings({"CRUISE_API_AUTHENTICATION": "kubernetes", **environment}).to_oidc_settings() is not None
    assert {"name": "oidc", "secret": {"secretName": "client"}} in spec["volumes"]
    assert {"name": "oidc-ca", "configMap": {"name": "idp-ca"}} in spec["volumes"]
    [out] = named(found, "NetworkPolicy", "cruise-oidc")["spec"]["egress"]
    assert out == {"ports": [{"port": 443}]}
