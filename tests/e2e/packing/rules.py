"""Constraints between pods, and on nodes' labels, taints and ports, as manifests state them."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.controlplane.api import Json

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class RuleDrawing:
    """Draws parts of pods' specs; the topology keys are the cluster's own, so that others have no part in them."""

    def __init__(self, source: random.Random, features: set[str], cluster: str, namespaces: Sequence[str]) -> None:
        self.source, self.features, self.namespaces = source, features, namespaces
        self.zone, self.host = f"{cluster}.example/zone", f"{cluster}.example/host"

    def draw(self, labels: Mapping[str, str], namespace: str) -> Json:
        """Return the constraints of a pod with these labels."""
        spec: Json = {}
        affinity = {
            **self._node_affinity(),
            **self._pod_affinity("affinity", "podAffinity", labels),
            **self._pod_affinity("anti-affinity", "podAntiAffinity", labels),
        }
        if affinity:
            spec["affinity"] = affinity
        if self._has("taints", 0.5):
            spec["tolerations"] = [self._toleration()]
        if self._has("spread", 0.5):
            keys = self.source.sample([self.zone, self.host], self.source.choice([1, 1, 2]))
            spec["topologySpreadConstraints"] = [self._spread(labels, key) for key in keys]
        return spec

    def draw_ports(self) -> Json:
        """Return a container's ports, if it has any."""
        if not self._has("ports", 0.4):
            return {}
        port: Json = {"containerPort": 80, "hostPort": self.source.choice([8080, 8081])}
        if self.source.random() < 0.3:
            port["protocol"] = "UDP"
        if self.source.random() < 0.3:
            port["hostIP"] = self.source.choice(["10.0.0.1", "10.0.0.2", "0.0.0.0"])
        return {"ports": [port]}

    def _has(self, feature: str, chance: float) -> bool:
        return feature in self.features and self.source.random() < chance

    def _node_affinity(self) -> Json:
        if not self._has("node affinity", 0.4):
            return {}
        expressions: list[Any] = [
            {"key": "disk", "operator": "In", "values": ["ssd"]},
            {"key": "disk", "operator": "NotIn", "values": ["ssd"]},
            {"key": "disk", "operator": "Exists"},
            {"key": "disk", "operator": "DoesNotExist"},
            {"key": "generation", "operator": "Gt", "values": ["1"]},
            {"key": "generation", "operator": "Lt", "values": ["3"]},
            {"key": self.zone, "operator": "In", "values": ["z1", "z3"]},
        ]
        terms = [
            {"matchExpressions": self.source.sample(expressions, self.source.choice([1, 1, 2]))}
            for _ in range(self.source.choice([1, 2]))
        ]
        return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}

    def _pod_affinity(self, feature: str, kind: str, labels: Mapping[str, str]) -> Json:
        if not self._has(feature, 0.35):
            return {}
        return {kind: {REQUIRED: [self._term(labels) for _ in range(self.source.choice([1, 1, 1, 2]))]}}

    def _term(self, labels: Mapping[str, str]) -> Json:
        term: Json = {
            "topologyKey": self.source.choice([self.zone, self.host]),
            "labelSelector": self._selector(labels),
        }
        choice = self.source.random()
        if choice < 0.15:
            term["namespaceSelector"] = {}
        elif choice < 0.3:
            term["namespaceSelector"] = {"matchLabels": {"team": self.source.choice(["red", "blue"])}}
        elif choice < 0.45:
            term["namespaces"] = [self.source.choice(self.namespaces)]
        if self.source.random() < 0.2:
            term[self.source.choice(["matchLabelKeys", "mismatchLabelKeys"])] = ["release"]
        return term

    def _selector(self, labels: Mapping[str, str]) -> Json:
        other = {"key": "app", "operator": "NotIn", "values": [labels["app"]]}
        choices: list[Json] = [
            {"matchLabels": {"app": labels["app"]}},
            {"matchLabels": {"app": labels["app"]}},
            {"matchLabels": {"tier": self.source.choice(["web", "db"])}},
            {"matchLabels": {"app": self.source.choice(["app0", "app1", "app2"])}},
            {"matchExpressions": [other], "matchLabels": {"tier": labels["tier"]}},
            {},
        ]
        return self.source.choice(choices)

    def _toleration(self) -> Json:
        choices: list[Json] = [
            {"operator": "Exists"},
            {"key": "dedicated", "operator": "Exists"},
            {"key": "dedicated", "operator": "Equal", "value": self.source.choice(["red", "blue"])},
            {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"},
        ]
        return self.source.choice(choices)

    def _spread(self, labels: Mapping[str, str], key: str) -> Json:
        constraint: Json = {
            "maxSkew": self.source.choice([1, 1, 2]),
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": self._selector(labels),
        }
        if self.source.random() < 0.2:
            constraint["minDomains"] = self.source.randint(1, 4)
        if self.source.random() < 0.2:
            constraint["matchLabelKeys"] = ["release"]
        if self.source.random() < 0.3:
            constraint["nodeAffinityPolicy"] = self.source.choice(["Honor", "Ignore"])
        if self.source.random() < 0.3:
            constraint["nodeTaintsPolicy"] = self.source.choice(["Honor", "Ignore"])
        return constraint
