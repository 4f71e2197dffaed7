"""What Karpenter may order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from cruise.domain.resources import NOTHING_STATED, ResourceName, StatedResources
from cruise.domain.scheduling import LabelRequirement, Taint

# What ResourceQuotas still grant.


@dataclass(frozen=True, slots=True)
class QuotaScope:
    """One condition on the pods that a ResourceQuota counts: a scope by name, or a requirement on a PriorityClass."""

    name: str
    operator: str = "Exists"
    values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """What a ResourceQuota still grants to new pods, never negative; None for what it does not count.

    It counts the pods for which all of its scopes hold.
    """

    requests_left: StatedResources = NOTHING_STATED
    limits_left: StatedResources = NOTHING_STATED
    scopes: tuple[QuotaScope, ...] = ()


# What VerticalPodAutoscalers state for containers.


@dataclass(frozen=True, slots=True)
class VpaContainerPolicy:
    """What a VerticalPodAutoscaler states for one container, or for all others where `container` is empty.

    `controlled` is None where nothing is stated, `off` where the container is to be left as it is.
    """

    container: str = ""
    off: bool = False
    controlled: frozenset[ResourceName] | None = None
    minimum: StatedResources = NOTHING_STATED
    maximum: StatedResources = NOTHING_STATED


@dataclass(frozen=True, slots=True)
class NodePool:
    """What Karpenter may order: how the nodes of a NodePool are labelled and tainted, and how many more there may be.

    `node_class` names the provider's settings of the machines. `limits` and `used` are by resource: millicores of cpu,
    bytes of memory, numbers of all else, `nodes` among them. Taints that go by themselves are left out. `closed` is
    the detail for which nothing is ordered from it, empty where something may be.
    """

    name: str
    node_class: str = ""
    requirements: tuple[LabelRequirement, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    weight: int = 0
    unusable_reason: str = ""


# API groups: which are Kubernetes' own, and which may have kinds of the same names.


def get_foreign_group(api_version: str) -> str:
    """Return the group of an API version, empty where it is Kubernetes' own or not stated."""
    group = api_version.rpartition("/")[0]
    return group if "." in group and not group.endswith(".k8s.io") else ""


# Which controllers create pods that have work to finish, whatever restart policy the pods state.

# Operators restart the containers of these pods in place (Always), and what a pod has calculated is lost with it.
_KINDS = frozenset(
    {
        "RayCluster",  # KubeRay: heads and workers
        "SparkApplication",
        "SparkCluster",
        "Pod",  # a Spark driver owns its executors
        "DaskCluster",
        "DaskWorkerGroup",
        "FlinkDeployment",
        "Workflow",
        "TaskRun",
        "PipelineRun",
        "CustomRun",
    }
)


@lru_cache(maxsize=1024)
def runs_to_completion(kind: str) -> bool:
    """Tell whether pods of a controller of this kind run to completion: Jobs of any API group, and alike.

    Kubeflow's and KubeRay's kinds end with `Job`, such as MPIJob, PyTorchJob and RayJob.
    """
    name = kind.partition(".")[0]
    return name.endswith("Job") or name in _KINDS
