"""Why a pod stays pending, as values."""

from dataclasses import dataclass
from enum import StrEnum

from cruise.domain.actions import PodItem
from cruise.domain.scheduling import NodeSelectorTerm, PodAffinityTerm, Taint

# Details of reasons: codes, each with the name or figure it is about; `interfaces` has the words.


class ReasonDetail(StrEnum):
    """What lies behind a reason that has several causes."""

    # why a pod may not be evicted
    NO_CONTROLLER = "no-controller"
    DAEMON_SET = "daemon-set"
    PROTECTED = "protected"
    SEVERAL_BUDGETS = "several-budgets"
    BUDGET_EXHAUSTED = "budget-exhausted"
    EVICTIONS_SPENT = "evictions-spent"
    RANKING_NEVER = "ranking-never"
    MODE_WITHOUT_EVICTIONS = "mode-without-evictions"
    NAMESPACE_EXCLUDED = "namespace-excluded"
    ANNOTATIONS_UNREADABLE = "annotations-unreadable"
    BEING_DELETED = "being-deleted"
    NODE_NOT_READY = "node-not-ready"
    NODE_BEING_DELETED = "node-being-deleted"
    LIMIT_RANGE_REFUSES = "limit-range-refuses"
    QUOTA_REFUSES = "quota-refuses"
    VOLUME_UNKNOWN = "volume-unknown"
    VOLUME_SHARED = "volume-shared"
    NOT_EVALUATED = "not-judged"
    NOT_MANAGED = "not-managed"
    JOB = "job"
    POD_GROUP = "pod-group"
    REPLICA_NOT_READY = "replica-not-ready"
    REFUSED_BEFORE = "refused-before"
    NO_NODE_FOR_REPLACEMENT = "no-node-for-replacement"
    LOWER_PRIORITY_STAYS = "lower-priority-stays"
    EVICTION_NOT_NEEDED = "eviction-not-needed"
    # why an OOM kill has no other consequence
    NO_EVICTIONS = "no-evictions"
    NODE_UNKNOWN = "node-unknown"
    OOM_KILL_TOO_OLD = "oom-kill-too-old"
    NOTHING_GROWS = "nothing-grows"
    LIMIT_AT_CEILING = "limit-at-ceiling"
    NODE_OUT_OF_MEMORY = "node-out-of-memory"
    INIT_CONTAINER = "init-container"
    # why a NodePool offers no node
    POOL_FIXED = "pool-fixed"
    POOL_NOT_READY = "pool-not-ready"
    POOL_UNREADABLE = "pool-unreadable"
    POOL_LIMITS_USED = "pool-limits-used"
    INSTANCE_TYPE_UNKNOWN = "instance-type-unknown"
    # other reasons
    UTILISATION_TARGETED = "utilisation-targeted"
    UTILISATION_MAY_BE_TARGETED = "utilisation-may-be-targeted"
    SCALE_NOT_READ = "scale-not-read"
    SCALE_UNREADABLE = "scale-unreadable"
    NAMESPACE_NOT_SEEN = "namespace-not-seen"
    OWNER_NOT_SEEN = "owner-not-seen"
    SIZED_BY_VPA = "sized-by-vpa"
    MAY_BE_SIZED_BY_VPA = "may-be-sized-by-vpa"
    GROWTH_PENDING = "growth-pending"
    CPU_NEEDS_RESTART = "cpu-needs-restart"
    MEMORY_NEEDS_RESTART = "memory-needs-restart"
    CPU_REQUEST_STAYS = "cpu-request-stays"
    MEMORY_REQUEST_STAYS = "memory-request-stays"
    CPU_LIMIT_STAYS = "cpu-limit-stays"
    MEMORY_LIMIT_STAYS = "memory-limit-stays"
    CPU_LIMIT_TOO_LOW = "cpu-limit-too-low"
    MEMORY_LIMIT_TOO_LOW = "memory-limit-too-low"
    CPU_LIMIT_FIXED = "cpu-limit-fixed"
    MEMORY_LIMIT_FIXED = "memory-limit-fixed"

    def create(self, subject: object) -> str:
        """Return the code with what it is about."""
        return f"{self.value}: {subject}"


_CODES = {detail.value: detail for detail in ReasonDetail}


def parse_detail_code(text: str) -> ReasonDetail | None:
    """Return the code of a detail, None for one that is a name, a figure or a server's message alone."""
    return _CODES.get(text.partition(": ")[0])


# Why a pass comes to no plan, or why a plan waits, is only shown or was dropped, as values.


class PlanStatusReason(StrEnum):
    """What a halt says of its subject; `interfaces` has the words."""

    API_ERROR = "api-error"  # `detail` is the error
    FAILED = "failed"
    MODE = "mode"
    PAUSED = "paused"
    # why a pass comes to no plan
    NO_PENDING_PODS = "no-pending-pods"
    OTHER_PLAN_ACTIVE = "other-plan-active"
    NO_STATISTICS = "no-statistics"
    STALE_STATISTICS = "stale-statistics"
    NO_MOVE_ORDER = "no-move-order"
    NODE_TOO_SMALL = "node-too-small"
    VERIFICATION_FAILED = "verification-failed"
    # why a plan is only shown
    NOTHING_TO_DO = "nothing-to-do"
    NOT_PROVED = "not-proved"
    SWITCHED_OFF = "switched-off"
    NO_EVICTIONS = "no-evictions"
    # why nothing is begun of a plan for fewer nodes
    PENDING_PODS_FIRST = "pending-pods-first"
    NO_NODE_REMOVABLE = "no-node-removable"
    NO_POD_MOVED = "no-pod-moved"
    # what a plan waits for
    PLACEMENT_HINT = "placement-hint"
    RECREATION = "recreation"
    RESIZE = "resize"
    DISRUPTION_BUDGET = "disruption-budget"
    POD_BINDING = "pod-binding"
    EVICTION_IN_PROGRESS = "eviction-in-progress"
    SKIPPED = "skipped"
    # why a plan was dropped
    TOO_OLD = "too-old"
    POD_NOT_FOUND = "pod-not-found"
    NODE_NOT_FOUND = "node-not-found"
    NODE_UNSCHEDULABLE = "node-unschedulable"
    NODE_FULL = "node-full"
    SCHEDULED_WITHOUT_PLAN = "scheduled-without-plan"
    PLAN_INVALID = "plan-invalid"
    CANNOT_RESIZE = "cannot-resize"
    NO_NODE_FOR_POD = "no-node-for-pod"
    EVICTION_REFUSED = "eviction-refused"
    RESIZE_REFUSED = "resize-refused"


@dataclass(frozen=True, slots=True)
class PlanCondition:
    """A code with the name or figure that it is about, what others said of it, and how many more there are like it."""

    code: PlanStatusReason
    subject: str = ""
    detail: str = ""
    similar_count: int = 0

    def __str__(self) -> str:
        """Return it in one line, for logs."""
        return ": ".join(filter(None, (self.code.value, self.subject, self.detail)))


class UnschedulableCode(StrEnum):
    """What a finding says with its values."""

    NOT_EVALUATED = "not-judged"  # by a rule that cruise does not know
    CLAIM_UNKNOWN = "claim-unknown"
    CLAIM_UNBOUND = "claim-unbound"
    CLAIM_OF_ANOTHER = "claim-of-another"
    CLAIM_OUT_OF_REACH = "claim-out-of-reach"
    NO_NODES = "no-nodes"
    SCHEDULABLE = "schedulable"  # a node would take it, which no plan found in the time has used
    NO_MATCHING_NODE = "no-matching-node"  # its one obstacle holds on every node
    AFFINITY_UNLABELLED = "affinity-unlabelled"
    AFFINITY_CONTRADICTED = "affinity-contradicted"
    AFFINITY_WITHOUT_PODS = "affinity-without-pods"
    AFFINITY_NOWHERE = "affinity-nowhere"
    ONLY_FIRST_POD_OF_GROUP = (
        "only-first-pod-of-group"  # its anti-affinity keeps it away from just the pods that its affinity names
    )
    TOO_LARGE = "too-large"
    NODES_FULL = "nodes-full"
    NODES_UNSCHEDULABLE = "nodes-unschedulable"  # the obstacles close the nodes that are otherwise open to it


class BlockingPods(StrEnum):
    """The pods that fill nodes, by what they have in common."""

    ANY = ""
    HIGHER = "higher"
    EQUAL_OR_HIGHER = "equal or higher"
    STAYING = "staying"


@dataclass(frozen=True, slots=True)
class UnschedulableReason:
    """What keeps a pod pending, beside the obstacles: how many nodes that is about, and what they lack.

    `unjudged` is what no rule here can judge, and `preemptible` tells that kube-scheduler may preempt for it what stays
    in every plan.
    `node` names the only one of the `nodes`, `nearest` the one that lacks least; `of_all` tells that there are no
    others. `narrowed_by` are the label obstacles that leave others out, `narrowed_further` that more obstacles do.
    Amounts are by resource: `lacking` on the nearest node, `size` what the pod requests of the same. The rest is what
    the pod asks for, and the taints that it does not tolerate, as far as the obstacles are about it.
    """

    code: UnschedulableCode
    claim: str = ""
    unsupported: str = ""
    preemptible: bool = False
    nodes: int = 0
    node: str = ""
    nearest: str = ""
    covers_all_nodes: bool = False
    narrowed_by: tuple[str, ...] = ()
    narrowed_further: bool = False
    missing_resources: tuple[tuple[str, int], ...] = ()
    size: tuple[tuple[str, int], ...] = ()
    blocking_pods: BlockingPods = BlockingPods.ANY
    selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeSelectorTerm, ...] = ()
    affinity: tuple[PodAffinityTerm, ...] = ()
    topology_keys: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class UnplacedPod(PodItem):
    """A pod that stays pending: a smallest set of obstacles that together keep it out, and what was found of them.

    `impossible` tells that this is proved, whatever is moved or preempted for it.
    """

    namespace: str
    pod: str
    blocked_by: tuple[str, ...]
    reason: UnschedulableReason
    impossible: bool
