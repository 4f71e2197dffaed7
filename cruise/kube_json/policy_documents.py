"""Write policy objects and their status as Kubernetes JSON."""

from datetime import datetime
from typing import Any

from cruise.domain.annotations import BOUNDS, MANAGED_BY, Overrides
from cruise.domain.overrides import format_setting_value, iterate_settings
from cruise.domain.resources import MEBIBYTE, format_cpu_millicores, format_memory_bytes
from cruise.domain.rightsizing_policies import (
    CLUSTER_POLICY_KIND,
    POLICY_GROUP,
    POLICY_KIND,
    POLICY_VERSION,
    PolicyStatus,
    RightsizingPolicy,
    format_policy_field,
)
from cruise.domain.written_policies import OWN_MANAGER, PolicyScope

JsonObject = dict[str, Any]


def build_written_policy(scope: PolicyScope, overrides: Overrides) -> JsonObject:
    """Return the policy object that states overrides for a scope."""
    selected = scope.selector
    parts = {"kinds": selected.kinds, "names": selected.names, "namespaces": selected.namespaces}
    selector = {field: sorted(names) for field, names in parts.items() if names}
    settings = build_policy_settings(overrides)
    return {**_build_head(*scope.key), "spec": {"selector": selector, **settings} if selector else settings}


def add_written_policy_label(document: JsonObject) -> JsonObject:
    """Return a policy with the label of those that forms write."""
    return {**document, "metadata": {**document["metadata"], "labels": {MANAGED_BY: OWN_MANAGER}}}


def build_policy_settings(overrides: Overrides) -> JsonObject:
    """Return the settings of a policy's spec."""
    spec: JsonObject = {}
    containers: dict[str, JsonObject] = {}
    for setting, value in iterate_settings(overrides):
        name, _, container = setting.partition(".")
        fields = containers.setdefault(container, {"name": container}) if container else spec
        if name in _BOUND_FIELDS:
            bound, resource = _BOUND_FIELDS[name]
            fields.setdefault(bound, {})[resource] = format_setting_value(name, value)
        elif name == "resources":
            fields[name] = sorted(one.value for one in value)
        elif type(value) in (int, float):  # an IntEnum is written by its name
            fields[format_policy_field(name)] = value
        else:
            fields[format_policy_field(name)] = format_setting_value(name, value)
    return {**spec, "containers": list(containers.values())} if containers else spec


_BOUND_FIELDS = {
    one.setting: (f"{one.setting.partition('-')[2]}Allowed", one.setting.partition("-")[0]) for one in BOUNDS
}


def build_policy_status(policy: RightsizingPolicy, status: PolicyStatus, now: datetime) -> JsonObject:
    """Return a policy with its status only, for server-side apply; its uid is a precondition.

    A condition that says the same as before keeps its time.
    """
    head = _build_head(policy.namespace, policy.name)
    head["metadata"] |= {"uid": policy.uid} if policy.uid else {}
    return {
        **head,
        "status": {
            "observedGeneration": status.generation,
            "workloads": status.workloads,
            "sized": status.sized_pods,
            "skippedPods": sum(status.skipped.values()),
            "skipped": [{"reason": reason, "count": pods} for reason, pods in sorted(status.skipped.items())],
            "saved": {
                "cpu": format_cpu_millicores(status.saved.cpu_millicores),
                "memory": format_memory_bytes(round(status.saved.memory_bytes / MEBIBYTE) * MEBIBYTE),
            },
            "conflictCount": len(status.conflicts),
            "conflicts": [
                {
                    "policy": one.policy,
                    "winner": one.winner,
                    "settings": list(one.settings),
                    "workload": one.workload,
                }
                for one in status.conflicts[:_MAX_CONFLICTS]
            ],
            "conditions": _build_conditions(policy, status, now),
        },
    }


def _build_conditions(policy: RightsizingPolicy, status: PolicyStatus, now: datetime) -> list[JsonObject]:
    """Return whether the policy can be used, and whether it conflicts with others."""
    others = ", ".join(one.policy for one in status.conflicts[:_MAX_CONFLICTS])
    are_equal = any(not one.is_maximum for one in status.conflicts)
    conflict = "EquallySpecific" if are_equal else "AboveClusterMaximum" if others else "NoConflict"
    stated = (
        ("Accepted", not status.problem, "Unreadable" if status.problem else "Accepted", status.problem),
        ("Conflicted", bool(others), conflict, others),
    )
    conditions = []
    for kind, is_true, reason, message in stated:
        before = policy.conditions.get(kind)
        since = now if before is None or before.is_true != is_true else before.since
        conditions.append(
            {
                "type": kind,
                "status": "True" if is_true else "False",
                "observedGeneration": status.generation,
                "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "reason": reason,
                "message": message,
            }
        )
    return conditions


# One that contradicts many others is recognized by the first of them.
_MAX_CONFLICTS = 20


def _build_head(namespace: str, name: str) -> JsonObject:
    metadata = {"namespace": namespace, "name": name} if namespace else {"name": name}
    kind = POLICY_KIND if namespace else CLUSTER_POLICY_KIND
    return {"apiVersion": f"{POLICY_GROUP}/{POLICY_VERSION}", "kind": kind, "metadata": metadata}
