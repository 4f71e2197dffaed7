"""Words for codes that nothing of cruise shows in words."""

from collections.abc import Mapping

from cruise.app.http_connection import ConnectionRejection
from cruise.decisions.packing.node_masks import PlacementObstacle
from cruise.decisions.scan.risks import ContainerRiskKind
from cruise.domain.actions import ActionResult
from cruise.domain.packing_plan import PlanPhase
from cruise.packer.answer import PackingStatus

VERDICTS: Mapping[object, str] = {
    ActionResult.DONE: "it was done",
    ActionResult.OBSERVED: "it would have been done: the mode or a pause forbade it",
    ActionResult.STARTED: "recorded before it is sent: how it ended is not known yet",
    ActionResult.SKIPPED: "a budget, a guard or a second look kept it back",
    ActionResult.REFUSED: "the API server, a PodDisruptionBudget or a kubelet said no",
    ActionResult.FAILED: "what it was sent to could not be reached",
}
ANSWERS: Mapping[tuple[str, str], str] = {
    ("mutated", "peak"): "the pod requests its workload's peaks",
    ("mutated", "planned"): "the pod requests what a node pass would give it",
    ("mutated", "stated"): "the pod of a new revision requests no less than its template states",
    ("mutated", "steered"): "the pod takes the place of one that a packing plan moved",
    ("left", "not-a-new-pod"): "the review is of something else than a pod that is created",
    ("left", "too-large"): "the review has more bytes or elements than are read",
    ("left", "too-many-containers"): "more containers than `webhook_max_containers`",
    ("left", "too-many-annotations"): "more annotations and labels than `webhook_max_annotations`",
    ("left", "too-many-tolerations"): "more tolerations than `webhook_max_tolerations`",
    ("left", "too-many-affinity-terms"): "more affinity terms than `webhook_max_affinity_terms`",
    ("failed", "not-ready"): "the webhook has no statistics, or none that are young enough",
    ("failed", "unreadable"): "the review or its pod cannot be read",
    ("failed", "patch-in-doubt"): "the patch would not make the pod what was decided",
    ("failed", "mistake"): "an error of cruise's own; its log has more",
    ("failed", "too-late"): "not decided within `webhook_time_budget`",
    ("refused", "unknown-caller"): "no client certificate of the API server",
}
RISKS: Mapping[object, str] = {
    ContainerRiskKind.OOM_KILLED: (
        "killed for lack of memory within seven days, or in the last run of a workload whose pods run to completion; "
        "init containers and pods that ended count"
    ),
    ContainerRiskKind.MEMORY_LEAK_SUSPECTED: "its memory only grows, and is near its limit",
    ContainerRiskKind.MEMORY_NEAR_LIMIT: "its peak is 90 % of its memory limit or more",
    ContainerRiskKind.MEMORY_UNDER_REQUESTED: (
        "it uses more memory than it requests, on a node whose pods use more than they request together"
    ),
    ContainerRiskKind.CPU_THROTTLED: "it wants more CPU than its limit",
    ContainerRiskKind.CPU_STARVED: (
        "it uses more CPU than it requests, on a node that is full and whose pods use more than they request together"
    ),
    ContainerRiskKind.NO_REQUESTS: "it requests nothing, so nothing is kept for it",
}
OBSTACLES: Mapping[object, str] = {
    PlacementObstacle.DISRUPTION_BUDGET: "a PodDisruptionBudget protects pods that would have to go",
    PlacementObstacle.EVICTION_LIMIT: "more pods would have to go than cruise's own budgets allow",
    PlacementObstacle.PREEMPTION_POLICY: "the pod preempts nobody",
    PlacementObstacle.NOT_EVICTABLE: "pods that would have to go may not be moved",
    PlacementObstacle.ATTACH_LIMIT: "the node attaches no more volumes",
    PlacementObstacle.TOPOLOGY_SPREAD: "its topology spread constraints",
    PlacementObstacle.ANTI_AFFINITY: "an anti-affinity, its own or of pods there",
    PlacementObstacle.HOST_PORTS: "a host port is taken",
    PlacementObstacle.AFFINITY: "the pods that it wants to run beside are elsewhere",
    PlacementObstacle.VOLUME: "its volume is elsewhere",
    PlacementObstacle.CORDONED: "the node is cordoned",
    PlacementObstacle.NOT_READY: "the node is not ready",
    PlacementObstacle.TAINTS: "a taint that it does not tolerate",
    PlacementObstacle.NODE_SELECTOR: "its node selector",
    PlacementObstacle.NODE_AFFINITY: "its node affinity",
    PlacementObstacle.NO_NODES: "there are no nodes",
}
STATUSES: Mapping[object, str] = {
    PackingStatus.OPTIMAL: "proved: no plan is better, and it is better than what is now",
    PackingStatus.ALREADY_OPTIMAL: "proved: nothing is to be gained",
    PackingStatus.FEASIBLE: "better than what is now; `bound` says how far from the best it may be",
    PackingStatus.NO_IMPROVEMENT: "none was found in the time",
}
PHASES: Mapping[object, str] = {
    PlanPhase.ADVISORY: "the mode goes no further, or there is nothing to do",
    PlanPhase.IN_PROGRESS: "its stages are being carried out",
    PlanPhase.FINISHED: "every pod that it places was bound",
    PlanPhase.DROPPED: "the cluster contradicted it, or it grew too old",
}
TURNED_AWAY: Mapping[object, str] = {
    ConnectionRejection.CONNECTIONS: "more than `http_max_connections`; the one that kept cruise waiting longest went",
    ConnectionRejection.HANDSHAKE: "no TLS handshake in `http_handshake_timeout`",
    ConnectionRejection.HEADER_BYTES: "a head above `http_max_header_bytes`",
    ConnectionRejection.HEADERS: "more than `http_max_headers`",
    ConnectionRejection.HEADER_TIME: "no whole head in `http_header_timeout`",
    ConnectionRejection.BODY_TIME: "no whole body in `http_body_timeout`",
    ConnectionRejection.BODY_BYTES: "unfinished bodies above `http_max_body_bytes`; the largest went",
    ConnectionRejection.PIPELINE: "more than eight requests before an answer",
    ConnectionRejection.SLOW_READER: "no answer taken for 10 s",
    ConnectionRejection.MALFORMED: "no HTTP",
}
