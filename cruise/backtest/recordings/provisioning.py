"""The workloads and the requests of recorded containers, where a Prometheus alone recorded them.

What is known best comes first: the cluster as it is now, then what kube-state-metrics reported then, then what the
pod's name says. A pod that is gone has the workload of its name, and what containers of that workload request.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from cruise.adapters.prometheus.kube_state import KubeState
from cruise.backtest.recordings.recording import RecordedContainer
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import ContainerRole, Pod, Snapshot, WorkloadRef
from cruise.domain.original_resources import parse_original_resources
from cruise.domain.resources import Resources
from cruise.domain.usage import ContainerKey

# What Kubernetes draws the generated ends of names from: neither vowels nor what is easily mistaken for one.
_LETTER = "[bcdfghjklmnpqrstvwxz2456789]"
_REPLICA_SET = re.compile(rf"(.+)-{_LETTER}{{1,10}}")
_OF_DEPLOYMENT = re.compile(rf"(.+)-{_LETTER}{{6,10}}-{_LETTER}{{5}}")
_OF_CRON_JOB = re.compile(rf"(.+)-[0-9]{{8,}}-{_LETTER}{{5}}")
_OF_SET = re.compile(rf"(.+)-{_LETTER}{{5}}")
_OF_STATEFUL_SET = re.compile(r"(.+)-[0-9]+")

_WorkloadContainer = tuple[str, WorkloadRef, str]


@dataclass(slots=True)
class Provisioning:
    """What is known of pods and workloads."""

    state: KubeState
    workloads: dict[tuple[str, str], WorkloadRef] = field(default_factory=dict)
    requests: dict[ContainerKey, Resources] = field(default_factory=dict)
    known: set[tuple[str, WorkloadRef]] = field(default_factory=set)
    initial: set[ContainerKey] = field(default_factory=set)

    @staticmethod
    def of(snapshot: Snapshot | None, state: KubeState) -> "Provisioning":
        """Join a cluster as it is now, if there is one, and what kube-state-metrics reported."""
        found = Provisioning(state, requests=dict(state.requests))
        for pod in snapshot.pods if snapshot is not None else ():
            if pod.workload is not None:
                found.workloads[pod.namespace, pod.name] = pod.workload
                found.known.add((pod.namespace, pod.workload))
            for name, role, requested in _requests(pod):
                key = ContainerKey(pod.namespace, pod.name, name)
                found.requests[key] = requested
                if role is ContainerRole.INIT:
                    found.initial.add(key)
        return found

    def containers(self, keys: Sequence[ContainerKey]) -> list[RecordedContainer]:
        """Return those of the containers that requested something, in their order."""
        workloads = {pod: self._workload(*pod) for pod in {(key.namespace, key.pod) for key in keys}}
        largest: dict[_WorkloadContainer, Resources] = {}
        for key, requested in self.requests.items():
            workload = workloads.get((key.namespace, key.pod)) or self._workload(key.namespace, key.pod)
            if key not in self.initial:
                place = (key.namespace, workload, key.container)
                largest[place] = requested.at_least(largest.get(place, Resources()))
        found = []
        for key in keys:
            workload = workloads[key.namespace, key.pod]
            requested = self.requests.get(key) or largest.get((key.namespace, workload, key.container), Resources())
            if key not in self.initial and requested != Resources():
                found.append(RecordedContainer(*key, workload, requested))
        return found

    def _workload(self, namespace: str, pod: str) -> WorkloadRef:
        now = self.workloads.get((namespace, pod))
        if now is not None:
            return now
        owner = self.state.owner_of_pod.get((namespace, pod))
        if owner is None:
            candidates = _by_name(pod)
            return next((one for one in candidates if (namespace, one) in self.known), candidates[0])
        above = self.state.owner_of_controller.get((namespace, *owner))
        if above is not None:
            return WorkloadRef(*above)
        replica_set = _REPLICA_SET.fullmatch(owner[1]) if owner[0] == "ReplicaSet" else None
        return WorkloadRef("Deployment", replica_set[1]) if replica_set else WorkloadRef(*owner)


def _by_name(pod: str) -> list[WorkloadRef]:
    """Return the workloads that a pod's name may come from, the likeliest first."""
    found = []
    for pattern, kinds in (
        (_OF_CRON_JOB, ("CronJob",)),
        (_OF_DEPLOYMENT, ("Deployment", "Rollout")),
        (_OF_SET, ("DaemonSet", "Job", "ReplicaSet")),
        (_OF_STATEFUL_SET, ("StatefulSet",)),
    ):
        match = pattern.fullmatch(pod)
        if match:
            found += [WorkloadRef(kind, match[1]) for kind in kinds]
    return [*found, WorkloadRef("Pod", pod)]


def _requests(pod: Pod) -> Iterable[tuple[str, ContainerRole, Resources]]:
    """Return what each container requests; what it was written with, where admission has changed that."""
    annotation = pod.annotations.get(ORIGINAL_RESOURCES)
    try:
        originals = parse_original_resources(annotation) if annotation else {}
    except (ValueError, msgspec.MsgspecError):
        # Not written by cruise; what the pod requests now is the next best.
        originals = {}
    for container in pod.containers:
        requested = originals[container.name][0] if container.name in originals else container.requests
        yield container.name, container.role, requested.resources
