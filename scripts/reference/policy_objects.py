"""The definitions of RightsizingPolicy and ClusterRightsizingPolicy, made from the table of overrides."""

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from cruise.domain.annotations import LARGEST_FACTOR, OVERRIDES, PREFIX
from cruise.domain.policy import (
    LARGEST_MACHINE,
    MINIMUM_REQUEST,
)
from cruise.domain.resources import ResourceName, format_cpu_millicores, format_memory_bytes
from cruise.domain.rightsizing_policies import (
    ALL_CONTAINERS,
    CLUSTER_POLICY_KIND,
    POLICY_GROUP,
    POLICY_KIND,
    POLICY_VERSION,
)
from cruise.domain.startup_cpu import LARGEST_STARTUP_FACTOR
from scripts.reference.annotations import OVERRIDE_WORDS

Schema = dict[str, Any]

PLURALS: Mapping[str, str] = {
    POLICY_KIND: "rightsizingpolicies",
    CLUSTER_POLICY_KIND: "clusterrightsizingpolicies",
}
DEFINITIONS = Path(__file__).resolve().parents[2] / "deploy" / "chart" / "files" / "crds"
_MOST_CONTAINERS = 32
_MOST_SELECTED = 256
_SIZES = {
    ResourceName.CPU: (format_cpu_millicores(MINIMUM_REQUEST.cpu_millicores), "2048", "500m"),
    ResourceName.MEMORY: (format_memory_bytes(MINIMUM_REQUEST.memory_bytes), "64Ti", "512Mi"),
}
_INTRODUCTION = (
    "Overrides cruise's settings for the selected pods, as annotations {}* do. Annotations of the pod, its workload "
    "and its namespace come before it. {}"
)
_OF_NAMESPACE = "Of several policies, the most specific one that states a setting applies; of modes, the lowest."
_OF_CLUSTER = f"Every {POLICY_KIND} comes before it, of modes the lowest, but none exceeds its maxAllowed."


def write_definitions() -> None:
    """Write the definitions into the chart."""
    DEFINITIONS.mkdir(exist_ok=True)
    for file, text in format_definitions().items():
        (DEFINITIONS / file).write_text(text, encoding="utf-8")


def format_definitions() -> Mapping[str, str]:
    """Return the text of each file of `DEFINITIONS`."""
    header = "# Generated from cruise/domain/annotations.py by `make docs-reference`.\n"
    return {
        f"{one['spec']['names']['plural']}.yaml": header + yaml.safe_dump(one, sort_keys=False, width=120)
        for one in build_definitions()
    }


def build_definitions() -> Sequence[Schema]:
    """Return both CustomResourceDefinitions. ValueError if their limits and the code's differ."""
    if LARGEST_MACHINE.cpu_millicores != 2_048_000 or LARGEST_MACHINE.memory_bytes != 64 << 40:
        raise ValueError("policy_objects.py: _SIZES and LARGEST_MACHINE differ")
    return [_build_definition(POLICY_KIND), _build_definition(CLUSTER_POLICY_KIND)]


def _build_definition(kind: str) -> Schema:
    plural = PLURALS[kind]
    short = "rsp" if kind == POLICY_KIND else "crsp"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{POLICY_GROUP}"},
        "spec": {
            "group": POLICY_GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
            },
            "scope": "Namespaced" if kind == POLICY_KIND else "Cluster",
            "versions": [
                {
                    "name": POLICY_VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _COLUMNS,
                    "schema": {"openAPIV3Schema": _build_schema(kind)},
                }
            ],
        },
    }


_COLUMNS: Sequence[Schema] = [
    {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
    {"name": "Workloads", "type": "integer", "jsonPath": ".status.workloads"},
    {"name": "Sized", "type": "integer", "jsonPath": ".status.sized"},
    {"name": "Skipped", "type": "integer", "jsonPath": ".status.skippedPods"},
    {"name": "Saved CPU", "type": "string", "jsonPath": ".status.saved.cpu"},
    {"name": "Saved memory", "type": "string", "jsonPath": ".status.saved.memory"},
    {"name": "Conflicts", "type": "integer", "jsonPath": ".status.conflictCount"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def _build_schema(kind: str) -> Schema:
    ending = _OF_NAMESPACE if kind == POLICY_KIND else _OF_CLUSTER
    return {
        "type": "object",
        "description": _INTRODUCTION.format(PREFIX, ending),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _build_spec(kind),
            "status": _STATUS,
        },
    }


def _build_spec(kind: str) -> Schema:
    properties = {
        "selector": _build_selector(kind),
        **({} if kind == POLICY_KIND else {"namespaceSelector": _build_label_selector("Labels of namespaces.")}),
        **_build_container_settings(),
        "evictionRanking": _choice("eviction-ranking"),
        "guaranteed": _choice("guaranteed"),
        "bestEffort": _choice("best-effort"),
        "hpa": _choice("hpa"),
        "containers": _CONTAINERS,
        "freeze": _FREEZE,
    }
    return {
        "type": "object",
        "description": "What applies to the selected pods. A setting that is not stated is left to the next source.",
        "properties": properties,
        "x-kubernetes-validations": [
            *_ORDERED_BOUNDS,
            *(_require_ordered_containers(one, which) for one in ResourceName for which in ("min", "max")),
            *(_require_one_statement(one) for one in _build_container_settings() if one != "mode"),
        ],
    }


def _describe(setting: str) -> str:
    return OVERRIDE_WORDS[f"{PREFIX}{setting}"][1]


def _choice(setting: str, more: str = "") -> Schema:
    choices = list(OVERRIDES[setting].choices)
    return {"type": "string", "description": f"{_describe(setting)}{more}", "enum": choices}


def _values(choices: type[Enum]) -> list[str]:
    return [one.value for one in choices]


def _build_container_settings() -> Schema:
    return {
        "mode": _choice("mode", ' Write "off" in quotes: without them YAML reads a boolean.'),
        "resources": {
            "type": "array",
            "description": _describe("resources"),
            "items": {"type": "string", "enum": _values(ResourceName)},
            "minItems": 1,
            "maxItems": 2,
            "x-kubernetes-list-type": "set",
        },
        "headroomFactor": {
            "type": "number",
            "description": _describe("headroom-factor"),
            "minimum": 0,
            "maximum": LARGEST_FACTOR,
        },
        "memoryLimits": _choice("memory-limits"),
        "cpuLimits": _choice("cpu-limits"),
        "direction": _choice("direction"),
        "startupCpu": _build_startup_cpu(),
        "minAllowed": _build_bounds("min", "The minimum of the requests; 0 is no minimum.", may_be_zero=True),
        "maxAllowed": _build_bounds("max", "The maximum of the requests.", may_be_zero=False),
    }


def _build_startup_cpu() -> Schema:
    least, most, example = _SIZES[ResourceName.CPU]
    is_factor = "string(self).matches('^[0-9]+([.][0-9]+)?x$')"
    is_word = "string(self) in ['learn', 'off']"
    factor = "double(string(self).substring(0, size(string(self)) - 1))"
    quantity = "quantity(string(self))"
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "maxLength": 32,
        "description": _describe("startup-cpu"),
        "x-kubernetes-validations": [
            {
                "rule": f"{is_factor} || {is_word} || isQuantity(string(self))",
                "messageExpression": f"'\"' + string(self) + '\" is neither a factor nor a quantity; "
                f"write e.g. 2x, {example}, learn or off'",
            },
            {
                "rule": f"!{is_factor} || ({factor} >= 1.0 && {factor} <= {LARGEST_STARTUP_FACTOR}.0)",
                "message": f"write a factor from 1x to {LARGEST_STARTUP_FACTOR}x",
            },
            {
                "rule": f"{is_factor} || !isQuantity(string(self)) || (!{quantity}.isLessThan(quantity('{least}')) && "
                f"!{quantity}.isGreaterThan(quantity('{most}')))",
                "message": f"write an amount from {least} to {most}",
            },
        ],
    }


def _build_bounds(which: str, description: str, *, may_be_zero: bool) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": {
            one.value: _build_quantity(one, _describe(f"{one.value}-{which}"), may_be_zero=may_be_zero)
            for one in ResourceName
        },
    }


def _build_quantity(resource: ResourceName, description: str, *, may_be_zero: bool) -> Schema:
    least, most, example = _SIZES[resource]
    quantity = "quantity(string(self))"
    zero = f"{quantity}.compareTo(quantity('0')) == 0 || " if may_be_zero else ""
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "maxLength": 32,
        "description": description,
        "x-kubernetes-validations": [
            {
                "rule": "isQuantity(string(self))",
                "messageExpression": f"'\"' + string(self) + '\" is not a quantity; write e.g. {example}'",
            },
            {
                "rule": f"!isQuantity(string(self)) || {zero}!{quantity}.isLessThan(quantity('{least}'))",
                "messageExpression": f"'\"' + string(self) + '\" is below {least}, the smallest request; "
                f"write e.g. {example}'",
            },
            {
                "rule": f"!isQuantity(string(self)) || !{quantity}.isGreaterThan(quantity('{most}'))",
                "messageExpression": f"'\"' + string(self) + '\" is more than any node has (at most {most}); "
                f"write e.g. {example}'",
            },
        ],
    }


def _require_one_statement(field: str) -> Schema:
    """Return a rule: spec does not state what its item for all containers states."""
    of_all = f"self.containers.exists(one, one.name == '{ALL_CONTAINERS}' && has(one.{field}))"
    return {
        "rule": f"!has(self.containers) || !has(self.{field}) || !{of_all}",
        "message": f"containers[{ALL_CONTAINERS}].{field}: spec states it as well; write it once",
    }


def _require_order(low: str, high: str) -> str:
    """Return a rule: two optional quantities, if both are stated and readable, are in order."""
    absent = [f"!has({path.rpartition('.')[0]}) || !has({path})" for path in (low, high)]
    unreadable = [f"!isQuantity(string({path}))" for path in (low, high)]
    ordered = f"!quantity(string({low})).isGreaterThan(quantity(string({high})))"
    return " || ".join([*absent, *unreadable, ordered])


_ORDERED_BOUNDS = [
    {
        "rule": _require_order(f"self.minAllowed.{one.value}", f"self.maxAllowed.{one.value}"),
        "message": f"minAllowed.{one.value} is above maxAllowed.{one.value}",
    }
    for one in ResourceName
]


def _require_ordered_containers(resource: ResourceName, which: str) -> Schema:
    """Return a rule: a container's bound is in order with the one for all containers, unless it states both."""
    path = f"{which}Allowed.{resource.value}"
    other = f"{'max' if which == 'min' else 'min'}Allowed.{resource.value}"
    low, high = (f"one.{path}", f"self.{other}") if which == "min" else (f"self.{other}", f"one.{path}")
    states_both = f"(has(one.{other.split('.')[0]}) && has(one.{other}))"
    return {
        "rule": f"!has(self.containers) || self.containers.all(one, {states_both} || {_require_order(low, high)})",
        "message": f"containers: {path} of a container and {other} of all containers: the minimum is above the maximum",
    }


_CONTAINER_NAME = {
    "type": "string",
    "description": f"The name of the container; {ALL_CONTAINERS} for all containers that have no item.",
    "minLength": 1,
    "maxLength": 63,
    "pattern": "^([*]|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$",
}
_CONTAINERS: Schema = {
    "type": "array",
    "description": "Settings for single containers, which come before those for all containers of the pod.",
    "maxItems": _MOST_CONTAINERS,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": _CONTAINER_NAME, **_build_container_settings()},
        "x-kubernetes-validations": _ORDERED_BOUNDS,
    },
}
_FREEZE: Schema = {
    "type": "array",
    "description": "Times without changes. Stored only: this version of cruise does not use it.",
    "maxItems": 16,
    "x-kubernetes-list-type": "atomic",
    "items": {
        "type": "object",
        "required": ["schedule", "duration"],
        "properties": {
            "schedule": {
                "type": "string",
                "description": "The begin, in the format of a CronJob's schedule, such as 0 18 * * 5.",
                "maxLength": 100,
                "pattern": r"^\S+( \S+){4}$",
            },
            "duration": {
                "type": "string",
                "description": "The length, such as 62h or 90m.",
                "maxLength": 20,
                "pattern": "^([0-9]+h)?([0-9]+m)?$",
                "minLength": 2,
            },
            "timeZone": {
                "type": "string",
                "description": "The time zone, such as Europe/Berlin; UTC if not stated.",
                "maxLength": 64,
            },
        },
    },
}


def _build_patterns(description: str, pattern: str) -> Schema:
    return {
        "type": "array",
        "description": description,
        "minItems": 1,
        "maxItems": _MOST_SELECTED,
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": pattern},
    }


def _build_label_selector(description: str) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": {
            "matchLabels": {
                "type": "object",
                "description": "Labels and their values.",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "matchExpressions": {
                "type": "array",
                "description": "Requirements on labels.",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "minLength": 1, "maxLength": 317},
                        "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": {
                            "type": "array",
                            "maxItems": 64,
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string", "maxLength": 63},
                        },
                    },
                    "x-kubernetes-validations": [
                        {
                            "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                            "message": "In and NotIn need values; Exists and DoesNotExist have none",
                        }
                    ],
                },
            },
        },
    }


def _build_selector(kind: str) -> Schema:
    properties = {
        "kinds": _build_patterns("Kinds of workloads, such as Deployment.", "^[A-Z][A-Za-z0-9]*$"),
        "names": _build_patterns(
            "Names of workloads; patterns may have *, ? and [a-c].", r"^[-A-Za-z0-9_.*?\[\]:][-A-Za-z0-9_.*?\[\]!:]*$"
        ),
        **_build_label_selector("Labels of pods, as the pod template has them.")["properties"],
    }
    if kind == CLUSTER_POLICY_KIND:
        properties |= {
            "namespaces": _build_patterns(
                "Names of namespaces; patterns may have *, ? and [a-c].", r"^[-a-z0-9*?\[\]][-a-z0-9*?\[\]!]*$"
            ),
        }
    where = "the namespace" if kind == POLICY_KIND else "the cluster"
    return {
        "type": "object",
        "description": f"The pods that the policy applies to: those that meet every stated part; without any, all of "
        f"{where}.",
        "properties": properties,
    }


_COUNT = {"type": "integer", "format": "int32"}
_STATUS: Schema = {
    "type": "object",
    "description": "What the policy did in the last node pass. Written by cruise.",
    "properties": {
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The generation of the policy that this status describes.",
        },
        "workloads": {**_COUNT, "description": "The workloads that the policy selects."},
        "sized": {**_COUNT, "description": "The selected pods that are sized."},
        "skippedPods": {**_COUNT, "description": "The selected pods that are skipped."},
        "skipped": {
            "type": "array",
            "description": "The skipped pods by reason.",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["reason"],
            "items": {
                "type": "object",
                "required": ["reason", "count"],
                "properties": {
                    "reason": {"type": "string", "description": "The code of the reason."},
                    "count": {**_COUNT, "description": "The pods that are skipped for it."},
                },
            },
        },
        "saved": {
            "type": "object",
            "description": "What the sized pods' templates request and the pods no longer do; negative if they request "
            "more.",
            "properties": {"cpu": {"type": "string"}, "memory": {"type": "string"}},
        },
        "conflictCount": {**_COUNT, "description": "The policies that this one conflicts with."},
        "conflicts": {
            "type": "array",
            "description": "Policies that state other values for the same workloads: equally specific ones, and "
            "ClusterRightsizingPolicies whose maxAllowed this one exceeds.",
            "x-kubernetes-list-type": "atomic",
            "items": {
                "type": "object",
                "required": ["policy", "settings", "winner", "workload"],
                "properties": {
                    "policy": {"type": "string", "description": "The other policy."},
                    "settings": {
                        "type": "array",
                        "description": "The settings that differ.",
                        "x-kubernetes-list-type": "atomic",
                        "items": {"type": "string"},
                    },
                    "winner": {"type": "string", "description": "The policy whose values apply."},
                    "workload": {"type": "string", "description": "One of the workloads that both select."},
                },
            },
        },
        "conditions": {
            "type": "array",
            "description": "Accepted: whether the policy can be used; if not, its pods are skipped. Conflicted: "
            "whether another policy that is as specific, or limits it, states other values.",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type", "status", "lastTransitionTime", "reason", "message"],
                "properties": {
                    "type": {"type": "string"},
                    "status": {"type": "string", "enum": ["True", "False"]},
                    "observedGeneration": {"type": "integer", "format": "int64"},
                    "lastTransitionTime": {"type": "string", "format": "date-time"},
                    "reason": {"type": "string"},
                    "message": {"type": "string"},
                },
            },
        },
    },
}
