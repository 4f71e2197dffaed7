"""Details of skip reasons, conditions of plans, and reasons why pods stay pending, as codes with values."""

from dataclasses import dataclass
from enum import StrEnum

from cruise.domain.actions import PodItem
from cruise.domain.scheduling import NodeSelectorTerm, PodAffinityTerm, Taint

# Details of reasons; `interfaces` has the words.


class ReasonDetailCode(StrEnum):
    """A detail of a reason that has several causes."""

    # a pod may not be evicted
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
    DEVICES = "devices"
    GUARANTEED = "guaranteed"
    POD_GROUP = "pod-group"
    UPDATES_ON_DELETE = "updates-on-delete"
    REPLICA_NOT_READY = "replica-not-ready"
    REFUSED_BEFORE = "refused-before"
    NO_NODE_FOR_REPLACEMENT = "no-node-for-replacement"
    LOWER_PRIORITY_STAYS = "lower-priority-stays"
    EVICTION_NOT_NEEDED = "eviction-not-needed"
    # an OOM kill has no further consequence
    NO_EVICTIONS = "no-evictions"
    NODE_UNKNOWN = "node-unknown"
    OOM_KILL_TOO_OLD = "oom-kill-too-old"
    NOTHING_GROWS = "nothing-grows"
    DIRECTION_SHRINK = "direction-shrink"
    LIMIT_AT_CEILING = "limit-at-ceiling"
    NODE_OUT_OF_MEMORY = "node-out-of-memory"
    INIT_CONTAINER = "init-container"
    # a NodePool offers no node
    POOL_FIXED = "pool-fixed"
    POOL_NOT_READY = "pool-not-ready"
    POOL_UNREADABLE = "pool-unreadable"
    POOL_LIMITS_USED = "pool-limits-used"
    INSTANCE_TYPE_UNKNOWN = "instance-type-unknown"
    # other reasons
    UTILISATION_TARGETED = "utilisation-targeted"
    UTILISATION_MAY_BE_TARGETED = "utilisation-may-be-targeted"
    UTILISATION_UNKNOWN = "utilisation-unknown"
    ABOVE_UTILISATION_TARGET = "above-utilisation-target"
    REPLICAS_CHANGING = "replicas-changing"
    REPLICAS_BETWEEN = "replicas-between"
    SEVERAL_HPAS = "several-hpas"
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
        """Return the code with its subject."""
        return f"{self.value}: {subject}"


_CODES = {detail.value: detail for detail in ReasonDetailCode}


def parse_detail_code(text: str) -> ReasonDetailCode | None:
    """Return the code of a detail, None for one without a code."""
    return _CODES.get(text.partition(": ")[0])


# Conditions of passes without a plan, and of plans that wait, are advisory or were dropped.


class PlanStatusReason(StrEnum):
    """The reason of a plan's condition; `interfaces` has the words."""

    API_ERROR = "api-error"  # `detail` is the error
    FAILED = "failed"
    MODE = "mode"
    PAUSED = "paused"
    # a pass makes no plan
    NO_PENDING_PODS = "no-pending-pods"
    OTHER_PLAN_ACTIVE = "other-plan-active"
    NO_STATISTICS = "no-statistics"
    STALE_STATISTICS = "stale-statistics"
    NO_MOVE_ORDER = "no-move-order"
    NODE_TOO_SMALL = "node-too-small"
    VERIFICATION_FAILED = "verification-failed"
    # a plan is advisory
    NOTHING_TO_DO = "nothing-to-do"
    NOT_PROVED = "not-proved"
    SWITCHED_OFF = "switched-off"
    NO_EVICTIONS = "no-evictions"
    # a consolidation plan is not started
    PENDING_PODS_FIRST = "pending-pods-first"
    NO_NODE_REMOVABLE = "no-node-removable"
    NO_POD_MOVED = "no-pod-moved"
    # a plan waits for something
    PLACEMENT_HINT = "placement-hint"
    RECREATION = "recreation"
    RESIZE = "resize"
    DISRUPTION_BUDGET = "disruption-budget"
    POD_BINDING = "pod-binding"
    EVICTION_IN_PROGRESS = "eviction-in-progress"
    SKIPPED = "skipped"
    # a plan was dropped
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
    """A reason with its subject, a message of another program, and the number of similar ones."""

    code: PlanStatusReason
    subject: str = ""
    detail: str = ""
    similar_count: int = 0

    def __str__(self) -> str:
        """Format in one line, for logs."""
        return ": ".join(filter(None, (self.code.value, self.subject, self.detail)))


class UnschedulableCode(StrEnum):
    """The reason why a pod is unschedulable."""

    NOT_EVALUATED = "not-judged"  # it has a constraint that cruise does not support
    CLAIM_UNKNOWN = "claim-unknown"
    CLAIM_UNBOUND = "claim-unbound"
    CLAIM_OF_ANOTHER = "claim-of-another"
    CLAIM_OUT_OF_REACH = "claim-out-of-reach"
    NO_NODES = "no-nodes"
    SCHEDULABLE = "schedulable"  # a node fits it; the search ended before a plan used it
    NO_MATCHING_NODE = "no-matching-node"  # one obstacle applies to every node
    AFFINITY_UNLABELLED = "affinity-unlabelled"
    AFFINITY_CONTRADICTED = "affinity-contradicted"
    AFFINITY_WITHOUT_PODS = "affinity-without-pods"
    AFFINITY_NOWHERE = "affinity-nowhere"
    ONLY_FIRST_POD_OF_GROUP = "only-first-pod-of-group"  # its anti-affinity excludes the pods that its affinity needs
    TOO_LARGE = "too-large"
    NODES_FULL = "nodes-full"
    NODES_UNSCHEDULABLE = "nodes-unschedulable"  # the obstacles exclude all nodes that have capacity


class BlockingPodKind(StrEnum):
    """Which pods fill nodes: those of a priority, or those that stay in any plan."""

    ANY = ""
    HIGHER = "higher"
    EQUAL_OR_HIGHER = "equal or higher"
    STAYING = "staying"


@dataclass(frozen=True, slots=True)
class UnschedulableReason:
    """Why a pod is pending, in addition to the obstacles.

    `unsupported` is a constraint that cruise cannot evaluate. `preemptible`: kube-scheduler may preempt for it pods
    that every plan keeps. `nodes` counts the nodes concerned, `node` names the only one, `nearest` the one that lacks
    least; `covers_all_nodes`: there are no others. `narrowed_by` are label obstacles that exclude other nodes,
    `narrowed_further` if there are more. `missing_resources` is by resource on the nearest node, `size` the pod's
    requests of the same. The rest are the pod's constraints and the taints that it does not tolerate, as far as the
    obstacles concern them.
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
    blocking_pods: BlockingPodKind = BlockingPodKind.ANY
    selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeSelectorTerm, ...] = ()
    affinity: tuple[PodAffinityTerm, ...] = ()
    topology_keys: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class UnplacedPod(PodItem):
    """A pod that stays pending, with a minimal set of obstacles.

    `impossible`: it is proved that no moves or preemptions can place it.
    """

    blocked_by: tuple[str, ...]
    reason: UnschedulableReason
    impossible: bool
