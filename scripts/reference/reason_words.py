"""Words for codes that nothing of cruise shows in words."""

from collections.abc import Mapping

from cruise.app.http_bounds import TurnedAway
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.decisions.scan.risks import RiskKind
from cruise.domain.actions import Verdict
from cruise.domain.packing import Phase
from cruise.packer.answer import Status

VERDICTS: Mapping[object, str] = {
    Verdict.DONE: "it was done",
    Verdict.OBSERVED: "it would have been done: the mode or a pause forbade it",
    Verdict.BEGUN: "recorded before it is sent: how it ended is not known yet",
    Verdict.HELD: "a budget, a guard or a second look kept it back",
    Verdict.REFUSED: "the API server, a PodDisruptionBudget or a kubelet said no",
    Verdict.FAILED: "what it was sent to could not be reached",
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
    RiskKind.OOM_KILLED: (
        "killed for lack of memory within seven days, or in the last run of a workload whose pods run to completion; "
        "init containers and pods that ended count"
    ),
    RiskKind.MEMORY_GROWS: "its memory only grows, and is near its limit",
    RiskKind.MEMORY_NEAR_LIMIT: "its peak is 90 % of its memory limit or more",
    RiskKind.MEMORY_UNDER_REQUESTED: (
        "it uses more memory than it requests, on a node whose pods use more than they request together"
    ),
    RiskKind.CPU_THROTTLED: "it wants more CPU than its limit",
    RiskKind.CPU_STARVED: (
        "it uses more CPU than it requests, on a node that is full and whose pods use more than they request together"
    ),
    RiskKind.NO_REQUESTS: "it requests nothing, so nothing is kept for it",
}
OBSTACLES: Mapping[object, str] = {
    Obstacle.DISRUPTION_BUDGET: "a PodDisruptionBudget protects pods that would have to go",
    Obstacle.EVICTION_LIMIT: "more pods would have to go than cruise's own budgets allow",
    Obstacle.PREEMPTION_POLICY: "the pod preempts nobody",
    Obstacle.UNMOVABLE: "pods that would have to go may not be moved",
    Obstacle.ATTACH_LIMIT: "the node attaches no more volumes",
    Obstacle.TOPOLOGY_SPREAD: "its topology spread constraints",
    Obstacle.ANTI_AFFINITY: "an anti-affinity, its own or of pods there",
    Obstacle.HOST_PORTS: "a host port is taken",
    Obstacle.AFFINITY: "the pods that it wants to run beside are elsewhere",
    Obstacle.VOLUME: "its volume is elsewhere",
    Obstacle.CORDONED: "the node is cordoned",
    Obstacle.NOT_READY: "the node is not ready",
    Obstacle.TAINTS: "a taint that it does not tolerate",
    Obstacle.NODE_SELECTOR: "its node selector",
    Obstacle.NODE_AFFINITY: "its node affinity",
    Obstacle.NO_NODES: "there are no nodes",
}
STATUSES: Mapping[object, str] = {
    Status.OPTIMAL: "proved: no plan is better, and it is better than what is now",
    Status.ALREADY_OPTIMAL: "proved: nothing is to be gained",
    Status.FEASIBLE: "better than what is now; `bound` says how far from the best it may be",
    Status.NO_IMPROVEMENT: "none was found in the time",
}
PHASES: Mapping[object, str] = {
    Phase.SHOWN: "the mode goes no further, or there is nothing to do",
    Phase.UNDER_WAY: "its stages are being carried out",
    Phase.FINISHED: "every pod that it places was bound",
    Phase.DROPPED: "the cluster contradicted it, or it grew too old",
}
TURNED_AWAY: Mapping[object, str] = {
    TurnedAway.CONNECTIONS: "more than `http_max_connections`; the one that kept cruise waiting longest went",
    TurnedAway.HANDSHAKE: "no TLS handshake in `http_handshake_timeout`",
    TurnedAway.HEADER_BYTES: "a head above `http_max_header_bytes`",
    TurnedAway.HEADERS: "more than `http_max_headers`",
    TurnedAway.HEADER_TIME: "no whole head in `http_header_timeout`",
    TurnedAway.BODY_TIME: "no whole body in `http_body_timeout`",
    TurnedAway.BODY_BYTES: "unfinished bodies above `http_max_body_bytes`; the largest went",
    TurnedAway.PIPELINE: "more than eight requests before an answer",
    TurnedAway.SLOW_READER: "no answer taken for 10 s",
    TurnedAway.MALFORMED: "no HTTP",
}
