"""A real API server accepts the manifests."""

import json
import re
import subprocess

import pytest

from cruise.settings.settings import SETTING_TYPES
from tests.controlplane.api import Api, ApiError, Json, wait_until
from tests.controlplane.binaries import programs
from tests.controlplane.control_plane import ControlPlane
from tests.deploy import installing
from tests.deploy.installing import DEPLOY, MANIFESTS, documents, resource_of

WORKLOADS = [one for file in MANIFESTS for one in documents(file) if one["kind"] in ("Deployment", "Job")]
NAMES = [one["metadata"]["name"] for one in WORKLOADS]


@pytest.fixture(autouse=True)
def namespace_exists(request: pytest.FixtureRequest) -> None:
    if "admin" in request.fixturenames:
        request.getfixturevalue("admin").apply(documents("namespace.yaml")[0])


def dry_run(admin: Api, one: Json) -> Json:
    path = admin.path(resource_of(one), one["metadata"].get("namespace"), one["metadata"]["name"])
    query = "?dryRun=All&fieldManager=test&force=true&fieldValidation=Strict"
    answer: Json = admin.request("PATCH", path + query, one, "application/apply-patch+yaml")
    return answer


@pytest.mark.parametrize("file", MANIFESTS)
def test_the_api_server_accepts_every_object_unchanged(admin: Api, file: str):
    for one in documents(file):
        if one["kind"] == "Deployment":
            one["spec"]["template"]["spec"]["serviceAccountName"] = "default"
        answer = dry_run(admin, one)
        assert answer["metadata"]["name"] == one["metadata"]["name"]


@pytest.mark.parametrize("workload", WORKLOADS, ids=NAMES)
def test_pods_keep_to_the_restricted_standard_which_the_namespace_enforces(admin: Api, workload: Json):
    template = workload["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**template["metadata"], "name": "one", "namespace": installing.NAMESPACE}
    assert dry_run(admin, pod)["metadata"]["name"] == "one"
    [container] = pod["spec"]["containers"]
    loose = {**pod, "spec": {**pod["spec"], "containers": [{**container, "securityContext": {}}]}}
    with pytest.raises(ApiError, match="violates PodSecurity"):
        dry_run(admin, loose)


@pytest.mark.parametrize("workload", WORKLOADS, ids=NAMES)
def test_a_container_writes_only_into_its_volumes_and_has_probes(workload: Json):
    spec = workload["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    mounted = container.get("volumeMounts", [])
    assert {one["mountPath"] for one in mounted if not one.get("readOnly")} <= {"/data", "/tmp"}
    assert {one["name"] for one in spec.get("volumes", [])} == {one["name"] for one in mounted}
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    if "ports" in container:
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_selectors_find_the_pods_that_they_are_for():
    labels = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in WORKLOADS}
    services = {"cruise": "cruise-serve", "cruise-webhook": "cruise-webhook"}
    for one in documents("serve.yaml", "webhook.yaml"):
        if one["kind"] == "Service":
            assert one["spec"]["selector"] == labels[services[one["metadata"]["name"]]]
        if one["kind"] == "PodDisruptionBudget":
            assert one["spec"]["selector"]["matchLabels"] == labels[one["metadata"]["name"]]
            # A budget that allows nothing would hold up every drain of a node.
            assert one["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("workload", WORKLOADS, ids=NAMES)
def test_every_setting_in_the_manifests_is_one_that_cruise_has(workload: Json):
    [container] = workload["spec"]["template"]["spec"]["containers"]
    [settings] = documents("settings.yaml")
    named = [*settings["data"], *(one["name"] for one in container.get("env", []))]
    unknown = [name for name in named if name.removeprefix("CRUISE_").lower() not in SETTING_TYPES]
    assert unknown == []
    assert settings["data"]["CRUISE_MODE"] == "observe"


def webhook() -> Json:
    [configuration] = [one for one in documents("webhook.yaml") if one["kind"] == "MutatingWebhookConfiguration"]
    only: Json
    [only] = configuration["webhooks"]
    return only


def test_the_webhook_cannot_delay_pods():
    only = webhook()
    assert (only["failurePolicy"], only["timeoutSeconds"], only["sideEffects"]) == ("Ignore", 2, "None")
    assert only["reinvocationPolicy"] == "IfNeeded"
    [excluded] = only["namespaceSelector"]["matchExpressions"]
    assert (excluded["operator"], set(excluded["values"])) == ("NotIn", {"kube-system", "cruise"})
    assert [(rule["operations"], rule["resources"]) for rule in only["rules"]] == [(["CREATE"], ["pods"])]


@pytest.mark.parametrize("verb", ["apply", "delete"])
def test_kubectl_takes_the_files_together(control_plane: ControlPlane, admin: Api, verb: str):
    """As the README has it: all files at once, to install and to remove."""
    files = [argument for file in MANIFESTS for argument in ("-f", str(DEPLOY / file))]
    command = [str(programs() / "kubectl"), f"--kubeconfig={control_plane.kubeconfig()}", verb, "--dry-run=server"]
    more = ["--validate=strict"] if verb == "apply" else ["--ignore-not-found"]
    done = subprocess.run([*command, *more, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if verb == "apply":
        assert len(done.stdout.splitlines()) == len(documents(*MANIFESTS))


OWNED = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}]}


@pytest.mark.parametrize(
    ("metadata", "asked"),
    [
        ({}, False),
        (OWNED, False),
        ({"ownerReferences": [{**OWNED["ownerReferences"][0], "controller": True}]}, True),
        ({"ownerReferences": [{**OWNED["ownerReferences"][0], "controller": True, "kind": "Node"}]}, False),
        (
            {
                "ownerReferences": [{**OWNED["ownerReferences"][0], "controller": True}],
                "annotations": {"cruise.io/mode": "off"},
            },
            False,
        ),
        (
            {
                "ownerReferences": [{**OWNED["ownerReferences"][0], "controller": True}],
                "annotations": {"cruise.io/mode": "full"},
            },
            True,
        ),
    ],
    ids=["bare", "owned without a controller", "controlled", "mirror", "switched off", "mode full"],
)
def test_pods_that_would_be_skipped_are_not_sent_to_the_webhook(
    admin: Api, namespace: str, metadata: Json, asked: bool
):
    """The same conditions stand on a webhook that nobody serves and that fails closed: a refusal tells of a call."""
    name = f"conditions-{namespace}"
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                **webhook(),
                "clientConfig": {"url": "https://127.0.0.1:1/mutate"},
                "failurePolicy": "Fail",
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            }
        ],
    }
    calls_of = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
    admin.create(configuration)
    container = {"name": "app", "image": "example.com/app:1"}

    def called(more: Json) -> bool:
        pod = {"metadata": {"name": "p", "namespace": namespace, **more}, "spec": {"containers": [container]}}
        path = admin.path("pods", namespace) + "?dryRun=All"
        try:
            admin.request("POST", path, {"apiVersion": "v1", "kind": "Pod", **pod})
        except ApiError as error:
            assert "failed calling webhook" in error.message
            return True
        return False

    controlled = {"ownerReferences": [{**OWNED["ownerReferences"][0], "controller": True}]}
    try:
        wait_until(lambda: called(controlled), "the server has read the configuration")
        assert called(metadata) is asked
    finally:
        admin.delete(calls_of, None, name)


def test_the_readme_names_the_files_that_are_there():
    text = (DEPLOY / "README.md").read_text()
    named = set(re.findall(r"deploy/((?!chart/)[\w/]+\.yaml)", text))
    assert named == set(MANIFESTS), json.dumps(sorted(named ^ set(MANIFESTS)))
