"""What stands in deploy/, as a test puts it into a control plane: the files of each mode, and the accounts' tokens."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.api import Api, ApiError, until

Json = dict[str, Any]
DEPLOY = Path(__file__).parents[2] / "deploy"
NAMESPACE = "cruise"
SERVE, WEBHOOK = "cruise-serve", "cruise-webhook"
MODES = ("observe", "initial", "resize", "full")
# One permission that each mode has and the one below it has not: whose is it, verb, group, resource, subresource, name.
MARKS: Mapping[str, tuple[str, str, str, str, str, str]] = {
    "observe": (SERVE, "list", "", "pods", "", ""),
    "initial": (WEBHOOK, "patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "cruise"),
    "resize": (SERVE, "patch", "", "pods", "resize", ""),
    "full": (SERVE, "create", "", "pods", "eviction", ""),
}


def documents(*files: str) -> list[Json]:
    """The objects of some files of deploy/, in their order."""
    return [one for file in files for one in yaml.safe_load_all((DEPLOY / file).read_text()) if one]


def rbac_files(mode: str) -> list[str]:
    """The files of permissions that a mode needs: its own, and those of the modes below it."""
    return [f"rbac/{name}.yaml" for name in MODES[: MODES.index(mode) + 1]]


def accounts() -> list[Json]:
    """The namespace and the ServiceAccounts, and what they alone may fill."""
    kinds = ("Namespace", "ServiceAccount", "Secret", "ConfigMap")
    return [one for one in documents("namespace.yaml", "settings.yaml", "webhook.yaml") if one["kind"] in kinds]


def grant(admin: Api, mode: str) -> None:
    """Give cruise's accounts exactly what a mode's files say, and wait until the server goes by it."""
    for one in accounts():
        admin.apply(one)
    wanted = documents(*rbac_files(mode))
    for one in wanted:
        admin.apply(one)
    for one in documents(*rbac_files("full")):
        if one not in wanted:
            remove(admin, one)
    held = MODES[: MODES.index(mode) + 1]
    until(
        lambda: {name for name, mark in MARKS.items() if may(admin, *mark)} == set(held),
        f"cruise's accounts have what mode {mode} gives",
    )


def webhook_at(url: str, namespace: str) -> Json:
    """The configuration of the webhook as deploy/ has it, but for one namespace and a server that is in no cluster."""
    [configuration] = [one for one in documents("webhook.yaml") if one["kind"] == "MutatingWebhookConfiguration"]
    [webhook] = configuration["webhooks"]
    webhook["clientConfig"] = {"url": url}
    webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return configuration


def remove(admin: Api, one: Json) -> None:
    """Delete an object, if it is there."""
    plural = f"{one['kind'].lower()}s.{one['apiVersion'].partition('/')[0]}"
    try:
        admin.delete(plural, one["metadata"].get("namespace"), one["metadata"]["name"])
    except ApiError as error:
        if error.status != 404:
            raise


def token(admin: Api, account: str) -> str:
    """A token of one of cruise's accounts."""
    return admin.service_account_token(NAMESPACE, account)


def may(
    admin: Api,
    account: str,
    verb: str,
    group: str,
    resource: str,
    subresource: str = "",
    name: str = "",
    namespace: str = "",
) -> bool:
    """Tell whether the server would let an account do something, everywhere or in one namespace."""
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
        # What everybody may: ask about oneself.
        if group not in ("authorization.k8s.io", "authentication.k8s.io")
    }


def _spelt_out(rule: Json) -> Iterable[tuple[str, str, str, str]]:
    for verb in rule["verbs"]:
        for group in rule.get("apiGroups") or ("",):
            for resource in rule.get("resources") or ():
                for name in rule.get("resourceNames") or ("",):
                    yield verb, group, resource, name
