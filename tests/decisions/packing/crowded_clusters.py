"""Tiny clusters as manifests with few pods, most of which are related by rules.

Beside them, all that kube-scheduler could bind, one pod after the other and without any eviction.
"""

import json
import random
from collections import Counter
from typing import Any

from cruise.decisions.packing.resources import NominatedPods
from cruise.decisions.scheduling.filters import explain_unsupported_constraints
from cruise.decisions.scheduling.placements import PodPlacements, get_pod_key, is_waiting_for_scheduling
from cruise.decisions.scheduling.pod_affinity import SchedulerFilters
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.builders import Json, make_list_json
from tests.storage_builders import make_claim_json, make_drivers_json, make_storage_class_json, make_volume_json

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_PRIORITIES = (-5, 0, 0, 5)


def make_contended_cluster(seed: int) -> ClusterSnapshot:
    """The cluster of a seed: two to four nodes, three to eight pods."""
    return read_snapshot([json.dumps(make_list_json(*_Drawing(random.Random(seed)).items())).encode()], f"{seed}")


class _Drawing:
    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.nodes = [f"n{number}" for number in range(source.randint(2, 4))]
        self.share = source.choice((0.15, 0.35))

    def some(self, chance: float = 1.0) -> bool:
        return self.source.random() < self.share * chance

    def items(self) -> list[Json]:
        source = self.source
        found = [self.node(name) for name in self.nodes]
        found += [_named("Namespace", name, labels={"team": team}) for name, team in (("shop", "a"), ("bank", "b"))]
        if self.some(2):
            found += [make_drivers_json(name, ebs_csi_aws_com=source.randint(1, 2)) for name in self.nodes]
            found += self.claims()
        for number in range(source.randint(3, 8)):
            found.append(self.pod(f"p{number}"))
        for app in ("web", "db"):
            if self.some(1.5):
                found.append(self.budget(app))
        return found

    def node(self, name: str) -> Json:
        source = self.source
        labels = {HOST: name, ZONE: source.choice("ab")}
        if self.some(0.5):
            del labels[source.choice(list(labels))]
        effect = source.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
        taints = [{"key": "dedicated", "value": "x", "effect": effect}] if self.some() else []
        room = {"cpu": f"{source.randint(2, 5)}", "memory": "64Gi", "pods": str(source.choice((2, 3, 110)))}
        node = _named("Node", name, labels=labels)
        del node["metadata"]["namespace"]
        ready = {"type": "Ready", "status": "False" if self.some(0.3) else "True"}
        return node | {
            "spec": {"taints": taints, "unschedulable": self.some(0.4)},
            "status": {"allocatable": room, "capacity": room, "conditions": [ready]},
        }

    def claims(self) -> list[Json]:
        found = [make_storage_class_json()]
        for name, mode in (("one", "ReadWriteOnce"), ("many", "ReadWriteMany"), ("lone", "ReadWriteOncePod")):
            zone = {"key": ZONE, "operator": "In", "values": [self.source.choice("ab")]}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
            volume: Json = {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": name}}
            if self.some():
                volume["nodeAffinity"] = {"required": terms}
            found += [make_claim_json(name, f"pv-{name}", spec={"accessModes": [mode]})]
            found += [make_volume_json(f"pv-{name}", **volume)]
        return [*found, make_claim_json("late", storage="fast")]

    def pod(self, name: str) -> Json:
        source = self.source
        app, namespace = source.choice(("web", "web", "db")), source.choice(("shop", "shop", "shop", "bank"))
        labels = {"app": app, "hash": source.choice("12")}
        spec: Json = {"priority": source.choice(_PRIORITIES), "containers": [{"name": "c", **self.container()}]}
        spec |= self.rules()
        status: Json = {"phase": "Pending"}
        if self.some():
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        if self.some(0.5):
            spec["nodeSelector"] = {ZONE: source.choice("ab")}
        if self.some(0.6):
            spec["preemptionPolicy"] = "Never"
        if namespace == "shop" and self.some():
            claim = source.choice(("one", "many", "many", "lone", "late"))
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        if source.random() < 0.4:
            spec["nodeName"] = source.choice(self.nodes)
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": source.choice(("True", "False"))}]}
        elif self.some(0.2):
            status["nominatedNodeName"] = source.choice(self.nodes)
        elif self.some(0.2):
            spec["schedulingGates"] = [{"name": "wait"}]
        pod = _named("Pod", name, namespace, labels)
        if source.random() < 0.8:
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-{labels['hash']}", "uid": app}
            pod["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        return pod | {"spec": spec, "status": status}

    def container(self) -> Json:
        asked = {"cpu": f"{self.source.choice((1, 1, 2, 3))}", "memory": "1Mi"}
        ports = [{"containerPort": 80, "hostPort": self.source.choice((80, 81))}] if self.some(0.7) else []
        return {"resources": {"requests": asked}, "ports": ports}

    def rules(self) -> Json:
        found: Json = {}
        affinity: Json = {}
        for kind in ("podAffinity", "podAntiAffinity"):
            if self.some():
                affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": [self.term()]}
        if affinity:
            found["affinity"] = affinity
        if self.some(1.5):
            found["topologySpreadConstraints"] = [self.spread()]
        return found

    def term(self) -> Json:
        term: Json = {"topologyKey": self.source.choice((ZONE, HOST)), "labelSelector": self.selector()}
        if self.some():
            term["namespaceSelector"] = self.source.choice(({}, {"matchLabels": {"team": "b"}}))
        if self.some():
            term["matchLabelKeys"] = ["hash"]
        return term

    def spread(self) -> Json:
        source = self.source
        spread: Json = {
            "maxSkew": source.choice((1, 1, 2)),
            "topologyKey": source.choice((ZONE, HOST)),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": self.selector(),
            "nodeTaintsPolicy": source.choice(("Honor", "Ignore")),
            "nodeAffinityPolicy": source.choice(("Honor", "Ignore")),
        }
        if self.some():
            spread["minDomains"] = source.randint(1, 3)
        if self.some():
            spread["matchLabelKeys"] = ["hash"]
        return spread

    def selector(self) -> Json:
        return {"matchLabels": {"app": self.source.choice(("web", "web", "db"))}}

    def budget(self, app: str) -> Json:
        allowed = self.source.randint(0, 2)
        policy = self.source.choice(("IfHealthyBudget", "AlwaysAllow"))
        status = {"disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 3 - allowed, "expectedPods": 3}
        spec = {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1, "unhealthyPodEvictionPolicy": policy}
        return _named("PodDisruptionBudget", app) | {"spec": spec, "status": status}


def _named(kind: str, name: str, namespace: str = "shop", labels: Json | None = None) -> Json:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": labels or {}, "uid": f"{kind}-{name}"}
    if kind == "Namespace":
        del metadata["namespace"]
    return {"kind": kind, "apiVersion": "v1", "metadata": metadata}


def count_most_placed(snapshot: ClusterSnapshot) -> Counter[int]:
    """The best of what kube-scheduler can bind, in some order, without an eviction: pods by priority."""
    kept = NominatedPods(snapshot)
    waiting = [
        pod
        for pod in snapshot.pods
        if is_waiting_for_scheduling(pod)
        and not pod.nominated_node
        and explain_unsupported_constraints(snapshot.storage_and_namespaces, pod) is None
        and kept.explain_unsupported(pod) is None
    ]
    board = PodPlacements(snapshot)
    scheduler, tiers = SchedulerFilters(board), sorted(set(_PRIORITIES), reverse=True)
    best: list[tuple[int, ...]] = [(0,) * len(tiers)]
    seen: set[frozenset[tuple[str, str]]] = set()

    def descend(left: list[Pod], came: frozenset[tuple[str, str]], counts: Counter[int]) -> None:
        if came in seen:
            return
        seen.add(came)
        best[0] = max(best[0], tuple(counts[tier] for tier in tiers))
        for pod in left:
            for name, node in board.nodes.items():
                if next(scheduler.check(pod, node), None) is None:
                    board.add(pod, name)
                    rest = [other for other in left if other is not pod]
                    descend(rest, came | {(pod.name, name)}, counts + Counter([pod.priority]))
                    board.remove(get_pod_key(pod))

    descend(waiting, frozenset(), Counter())
    return Counter(dict(zip(tiers, best[0], strict=True)))
