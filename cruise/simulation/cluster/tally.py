"""What a simulation counts, for reports."""

from dataclasses import dataclass, field

from cruise.domain.resources import Resources


@dataclass(slots=True)
class Tally:
    """Sums since the start of the simulation.

    Seconds are pod or container seconds. A container is starved while it gets less than 99 % of the CPU that it wants.
    `drained` are the evictions by the node autoscaler, which `evictions` does not have. `kills_of` counts kills by
    (namespace, workload, slot, container): a replacement shares its predecessor's slot, so two runs of one cluster can
    be compared.
    """

    kills: int = 0
    evictions: int = 0
    evictions_refused: int = 0
    resizes_asked: int = 0
    resizes_done: int = 0
    resizes_deferred: int = 0
    resizes_infeasible: int = 0
    resizes_refused: int = 0
    resize_errors: int = 0
    pods_created: int = 0
    creations_refused: int = 0
    pending_pod_seconds: int = 0
    container_seconds: int = 0
    starved_container_seconds: int = 0
    nodes_added: int = 0
    nodes_removed: int = 0
    drained: int = 0
    kills_of: dict[tuple[str, str, int, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeFigure:
    """One node at the last step: `requested` is what kube-scheduler counts, `load` its CPU demand over capacity."""

    node: str
    allocatable: Resources
    requested: Resources
    used: Resources
    pods: int
    load: float
