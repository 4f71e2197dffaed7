"""The behavior of a test kubelet: its nodes, and how it treats each pod."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = dict[str, Any]
# The features that a 1.36 kubelet declares. The API server refuses resizes that need an undeclared feature.
DECLARED_FEATURES = ("InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers")


class ResizeBehaviour(StrEnum):
    """The result of a resize."""

    JUDGE = "Judge"  # taken up where the node has room, else Deferred or Infeasible
    TAKE_UP = "TakeUp"
    DEFER = "Deferred"
    INFEASIBLE = "Infeasible"
    STATIC_CPU_MANAGER = "StaticCpuManager"  # as JUDGE, but no CPU of a Guaranteed pod
    ERROR = "Error"  # allocated, never in force: PodResizeInProgress with reason Error


@dataclass(frozen=True, slots=True)
class KubeletBehaviour:
    """How pods are treated; the seconds are delays until the status shows a change.

    A pod runs until deleted, or succeeds after `run_seconds`. A terminating pod ends after `termination_seconds`, or
    its grace period if that is shorter.
    """

    resizing: ResizeBehaviour = ResizeBehaviour.JUDGE
    start_seconds: float = 0
    actuation_seconds: float = 0
    termination_seconds: float = 0
    run_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class BehaviourRule:
    """A behaviour for one pod by name, or for all pods with the labels."""

    behaviour: KubeletBehaviour
    namespace: str
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def covers(self, pod: Json) -> bool:
        """Return whether the rule applies to a pod."""
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        return (
            metadata["namespace"] == self.namespace
            and self.name in (None, metadata["name"])
            and all(labels.get(key) == value for key, value in self.labels.items())
        )


@dataclass(frozen=True, slots=True)
class SimulatedNodeSpec:
    """A node to register; its whole capacity is allocatable."""

    name: str
    cpu: str = "4"
    memory: str = "8Gi"
    pods: int = 110
    extended: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    kubelet_version: str = "v1.36.3"
    declared_features: Sequence[str] = DECLARED_FEATURES
    address: str = ""
    port: int = 0

    def manifest(self, now: str) -> Json:
        """Return the Node object that its kubelet registers."""
        amounts = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods), **self.extended}
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            **self.labels,
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"taints": [dict(taint) for taint in self.taints]},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [node_ready(True, now)],
                "declaredFeatures": list(self.declared_features),
                "addresses": [
                    {"type": "Hostname", "address": self.name},
                    *([{"type": "InternalIP", "address": self.address}] if self.address else ()),
                ],
                **({"daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}}} if self.port else {}),
                "nodeInfo": {
                    "kubeletVersion": self.kubelet_version,
                    "kubeProxyVersion": "",
                    "containerRuntimeVersion": "containerd://2.2.0",
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                    "osImage": "",
                    "kernelVersion": "",
                    "machineID": "",
                    "systemUUID": "",
                    "bootID": "",
                },
            },
        }


def node_ready(ready: bool, now: str) -> Json:
    """Return a Ready condition."""
    return {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "message": "",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
