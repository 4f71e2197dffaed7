"""Descriptions of codes that cruise does not describe anywhere else."""

from collections.abc import Mapping

from cruise.app.http_connection import ConnectionRejection
from cruise.decisions.packing.node_masks import PlacementObstacle
from cruise.decisions.scan.risks import ContainerRiskKind
from cruise.domain.actions import ActionResult
from cruise.domain.packing_plan import PlanPhase
from cruise.packer.answer import PackingStatus

ACTION_RESULTS: Mapping[object, str] = {
    ActionResult.DONE: "it was done",
    ActionResult.OBSERVED: "not done, because of the mode or a pause",
    ActionResult.STARTED: "recorded before the request is sent; the result is not known yet",
    ActionResult.SKIPPED: "not done, because of a budget or a failed precondition",
    ActionResult.REFUSED: "rejected by the API server, a PodDisruptionBudget or a kubelet",
    ActionResult.FAILED: "the API server could not be reached",
}
WEBHOOK_ANSWERS: Mapping[tuple[str, str], str] = {
    ("mutated", "peak"): "the pod requests its workload's peaks",
    ("mutated", "planned"): "the pod requests what a node pass would give it",
    ("mutated", "stated"): "the pod of a new revision requests at least what its template states",
    ("mutated", "placement-hint"): "the pod replaces one that a packing plan moved",
    ("left", "not-a-new-pod"): "the review is not about the creation of a pod",
    ("left", "too-large"): "the review has more bytes or elements than cruise reads",
    ("left", "too-many-containers"): "more containers than `webhook_max_containers`",
    ("left", "too-many-annotations"): "more annotations and labels than `webhook_max_annotations`",
    ("left", "too-many-tolerations"): "more tolerations than `webhook_max_tolerations`",
    ("left", "too-many-affinity-terms"): "more affinity terms than `webhook_max_affinity_terms`",
    ("failed", "not-ready"): "the webhook has no recent statistics",
    ("failed", "unreadable"): "the review or its pod cannot be read",
    ("failed", "patch-differs"): "the patched pod would differ from the decision",
    ("failed", "mistake"): "an internal error; see the log",
    ("failed", "too-late"): "no decision within `webhook_time_budget`",
    ("refused", "unknown-caller"): "no client certificate of the API server",
}
RISKS: Mapping[object, str] = {
    ContainerRiskKind.OOM_KILLED: (
        "OOM-killed within seven days, or in the last run of a workload with pods that run to completion; "
        "init containers and finished pods count"
    ),
    ContainerRiskKind.MEMORY_LEAK_SUSPECTED: "its memory increases steadily and is near its limit",
    ContainerRiskKind.MEMORY_NEAR_LIMIT: "its peak is 90 % of its memory limit or more",
    ContainerRiskKind.HEAP_ABOVE_LIMIT: "a stated heap and its overhead exceed its memory limit",
    ContainerRiskKind.MEMORY_UNDER_REQUESTED: (
        "it uses more memory than it requests, on a node whose pods use more than they request together"
    ),
    ContainerRiskKind.CPU_THROTTLED: "its demand for CPU is above its limit",
    ContainerRiskKind.CPU_STARVED: (
        "it uses more CPU than it requests, on a node that is full and whose pods use more than they request together"
    ),
    ContainerRiskKind.NO_REQUESTS: "it requests nothing, so no capacity is reserved for it",
}
OBSTACLES: Mapping[object, str] = {
    PlacementObstacle.DISRUPTION_BUDGET: "a PodDisruptionBudget protects pods that must be evicted",
    PlacementObstacle.EVICTION_LIMIT: "more pods must be evicted than cruise's eviction budgets allow",
    PlacementObstacle.PREEMPTION_POLICY: "the pod has preemptionPolicy Never",
    PlacementObstacle.NOT_EVICTABLE: "pods that must be evicted may not be evicted",
    PlacementObstacle.ATTACH_LIMIT: "the node's attach limit is reached",
    PlacementObstacle.TOPOLOGY_SPREAD: "its topology spread constraints",
    PlacementObstacle.ANTI_AFFINITY: "an anti-affinity of the pod or of pods on the node",
    PlacementObstacle.HOST_PORTS: "a host port is in use",
    PlacementObstacle.AFFINITY: "the pods that its affinity requires run in other domains",
    PlacementObstacle.VOLUME: "its volume is in another topology",
    PlacementObstacle.CORDONED: "the node is cordoned",
    PlacementObstacle.NOT_READY: "the node is not ready",
    PlacementObstacle.TAINTS: "a taint that it does not tolerate",
    PlacementObstacle.NODE_SELECTOR: "its node selector",
    PlacementObstacle.NODE_AFFINITY: "its node affinity",
    PlacementObstacle.NO_NODES: "there are no nodes",
}
STATUSES: Mapping[object, str] = {
    PackingStatus.OPTIMAL: "proved: no plan is better, and it improves the present state",
    PackingStatus.ALREADY_OPTIMAL: "proved: no plan improves the present state",
    PackingStatus.FEASIBLE: "improves the present state; `bound` is the limit of any plan",
    PackingStatus.NO_IMPROVEMENT: "no improvement was found in time",
}
PHASES: Mapping[object, str] = {
    PlanPhase.ADVISORY: "not carried out, because of the mode or because there is nothing to do",
    PlanPhase.IN_PROGRESS: "its stages are being carried out",
    PlanPhase.FINISHED: "every planned pod is bound",
    PlanPhase.DROPPED: "the cluster changed, or the plan is too old",
}
CONNECTION_REJECTIONS: Mapping[object, str] = {
    ConnectionRejection.CONNECTIONS: (
        "more than `http_max_connections`; the connection with the longest wait was closed"
    ),
    ConnectionRejection.HANDSHAKE: "no TLS handshake in `http_handshake_timeout`",
    ConnectionRejection.HEADER_BYTES: "a header above `http_max_header_bytes`",
    ConnectionRejection.HEADERS: "more than `http_max_headers`",
    ConnectionRejection.HEADER_TIME: "no complete header in `http_header_timeout`",
    ConnectionRejection.BODY_TIME: "no complete body in `http_body_timeout`",
    ConnectionRejection.BODY_BYTES: "unfinished bodies above `http_max_body_bytes`; the largest was closed",
    ConnectionRejection.PIPELINE: "more than eight pipelined requests",
    ConnectionRejection.SLOW_READER: "the client read nothing for 10 s",
    ConnectionRejection.MALFORMED: "not HTTP",
}
