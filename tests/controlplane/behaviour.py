"""What a test kubelet is told to do: its nodes, and how it treats each pod."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = dict[str, Any]
# What a kubelet of 1.36 says by default. The API server refuses resizes of a kind that the pod's node does not name.
DECLARED_FEATURES = ("InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers")


class ResizeBehaviour(StrEnum):
    """What becomes of a resize."""

    JUDGE = "Judge"  # taken up where the node has room, else Deferred or Infeasible
    TAKE_UP = "TakeUp"
    DEFER = "Deferred"
    INFEASIBLE = "Infeasible"
    ERROR = "Error"  # allocated, never in force: PodResizeInProgress with reason Error


@dataclass(frozen=True, slots=True)
class KubeletBehaviour:
    """How a pod is treated; seconds pass between being told and the status that shows it.

    A pod runs for good, or for `run_seconds`, after which it has succeeded. A terminating pod goes after
    `termination_seconds`, or its own grace period where that is shorter.
    """

    resizing: ResizeBehaviour = ResizeBehaviour.JUDGE
    start_seconds: float = 0
    actuation_seconds: float = 0
    termination_seconds: float = 0
    run_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class BehaviourRule:
    """A behaviour and the pods that it is for: one of that name, or all that have the labels."""

    behaviour: KubeletBehaviour
    namespace: str
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def covers(self, pod: Json) -> bool:
        """Tell whether it is for this pod."""
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        return (
            metadata["namespace"] == self.namespace
            and self.name in (None, metadata["name"])
            and all(labels.get(key) == value for key, value in self.labels.items())
        )


@dataclass(frozen=True, slots=True)
class SimulatedNodeSpec:
    """A node to register; everything that it has may be allocated."""

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
        """The Node as its kubelet registers it."""
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
    """A node's Ready condition."""
    return {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "message": "",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
