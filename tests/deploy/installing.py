"""Installs the files of deploy/ for each mode into a control plane, with the accounts' tokens."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.api import Api, ApiError, wait_until

Json = dict[str, Any]
DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "chart"
# What kubectl applies: other folders hold templates, and files of other programs.
MANIFESTS = sorted(
    str(one.relative_to(DEPLOY)) for place in (".", "crds", "rbac") for one in DEPLOY.glob(f"{place}/*.yaml")
)
NAMESPACE = "cruise"
SERVE, WEBHOOK, CERTIFICATES = ACCOUNTS = ("cruise-serve", "cruise-webhook", "cruise-certificates")
MODES = ("observe", "initial", "resize", "full")
CONFIGURATIONS = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
# Permissions that each mode has and the one below it has not: whose is it, verb, group, resource, subresource, name.
MARKS: Mapping[str, Sequence[tuple[str, str, str, str, str, str]]] = {
    "observe": [(SERVE, "list", "", "pods", "", "")],
    "initial": [(WEBHOOK, "list", "", "nodes", "", ""), (CERTIFICATES, "patch", *CONFIGURATIONS, "", "cruise")],
    "resize": [(SERVE, "patch", "", "pods", "resize", "")],
    "full": [(SERVE, "create", "", "pods", "eviction", "")],
}


def documents(*files: str) -> list[Json]:
    """The objects of some files of deploy/, in their order."""
    # Every command of a scene reads them, and the loader in Python takes ten times as long.
    loaded = (yaml.load_all((DEPLOY / file).read_text(), yaml.CSafeLoader) for file in files)
    return [one for file in loaded for one in file if one]


def rbac_files(mode: str) -> list[str]:
    """The files of permissions that a mode needs: its own, and those of the modes below it."""
    return [f"rbac/{name}.yaml" for name in MODES[: MODES.index(mode) + 1]]


def permissions(mode: str) -> list[Json]:
    """The roles and bindings of a mode; the certificates' account has its own in the file of its Deployment."""
    more = documents("certificates.yaml") if mode != "observe" else []
    return documents(*rbac_files(mode)) + [one for one in more if one["apiVersion"].startswith("rbac")]


def accounts() -> list[Json]:
    """The namespace and the ServiceAccounts, and what they alone may fill."""
    kinds = ("Namespace", "ServiceAccount", "Secret", "ConfigMap")
    files = ("namespace.yaml", "settings.yaml", "webhook.yaml", "certificates.yaml")
    return [one for one in documents(*files) if one["kind"] in kinds]


def grant(admin: Api, mode: str) -> None:
    """Grant cruise's accounts exactly the rights of a mode's files, and wait until the server applies them."""
    for one in accounts():
        admin.apply(one)
    apply_policies(admin)
    wanted = permissions(mode)
    for one in wanted:
        admin.apply(one)
    for one in permissions("full"):
        if one not in wanted:
            remove(admin, one)
    held = MODES[: MODES.index(mode) + 1]
    wait_until(
        lambda: all(
            check_permission(admin, *mark) is (name in held) for name, marks in MARKS.items() for mark in marks
        ),
        f"cruise's accounts have what mode {mode} gives",
    )


def apply_policies(admin: Api) -> None:
    """Install what the API server itself holds cruise's accounts to, and wait until it does."""
    for one in documents("policies.yaml"):
        admin.apply(one)
    anybody = grant_permissions(admin, SERVE)

    def refused() -> bool:
        path = admin.path("configmaps", "default") + "?dryRun=All"
        try:
            anybody.request("POST", path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "any"}})
        except ApiError as error:
            return "ValidatingAdmissionPolicy" in error.message
        return False

    wait_until(refused, "the policies are in force")


def grant_permissions(admin: Api, account: str) -> Api:
    """A client as one of cruise's accounts to which every role was given: only policies stand in its way."""
    return admin.impersonating(f"system:serviceaccount:{NAMESPACE}:{account}", "system:masters")


def webhook_at(url: str, namespace: str) -> Json:
    """The configuration of the webhook as deploy/ has it, but for one namespace and a server that is in no cluster."""
    [configuration] = [one for one in documents("webhook.yaml") if one["kind"] == "MutatingWebhookConfiguration"]
    [webhook] = configuration["webhooks"]
    webhook["clientConfig"] = {"url": url}
    webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return configuration


def remove(admin: Api, one: Json) -> None:
    """Delete an object, if it is there."""
    try:
        admin.delete(resource_of(one), one["metadata"].get("namespace"), one["metadata"]["name"])
    except ApiError as error:
        if error.status != 404:
            raise


def resource_of(one: Json) -> str:
    """An object's resource, as kubectl names it."""
    plural = re.sub("ss$", "ses", re.sub("ys$", "ies", one["kind"].lower() + "s"))
    group = one["apiVersion"].rpartition("/")[0]
    return f"{plural}.{group}" if group else plural


def token(admin: Api, account: str) -> str:
    """A token of one of cruise's accounts."""
    return admin.service_account_token(NAMESPACE, account)


def check_permission(
    admin: Api,
    account: str,
    verb: str,
    group: str,
    resource: str,
    subresource: str = "",
    name: str = "",
    namespace: str = "",
) -> bool:
    """Return whether the server would let an account do something, everywhere or in one namespace."""
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {"name": ""},
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"],
            "resourceAttributes": {**attributes, "namespace": namespace},
        },
    }
    return bool(admin.create(review)["status"]["allowed"])


def rules(api: Api, namespace: str) -> set[tuple[str, str, str, str]]:
    """What the owner of a token may do in a namespace: (verb, group, resource with subresource, name or "")."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "metadata": {"name": ""},
        "spec": {"namespace": namespace},
    }
    status = api.create(review)["status"]
    assert not status["incomplete"]
    return {
        (verb, group, resource, name)
        for rule in status["resourceRules"]
        for verb, group, resource, name in _spelt_out(rule)
        # Rights of every account: to query its own rights.
        if not resource.startswith("self")
    }


def _spelt_out(rule: Json) -> Iterable[tuple[str, str, str, str]]:
    for verb in rule["verbs"]:
        for group in rule.get("apiGroups") or ("",):
            for resource in rule.get("resources") or ():
                for name in rule.get("resourceNames") or ("",):
                    yield verb, group, resource, name
