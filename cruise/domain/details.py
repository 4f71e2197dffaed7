"""Details of reasons: codes, each with the name or figure it is about; `interfaces` has the words."""

from enum import StrEnum


class Detail(StrEnum):
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
    NOT_JUDGED = "not-judged"
    UNMANAGED = "unmanaged"
    JOB = "job"
    POD_GROUP = "pod-group"
    REPLICA_NOT_READY = "replica-not-ready"
    REFUSED_BEFORE = "refused-before"
    NOWHERE_TO_GO = "nowhere-to-go"
    LOWER_PRIORITY_STAYS = "lower-priority-stays"
    SPARED = "spared"
    # why an OOM kill has no other consequence
    NO_EVICTIONS = "no-evictions"
    NODE_UNKNOWN = "node-unknown"
    KILLED_LONG_AGO = "killed-long-ago"
    NOTHING_GROWS = "nothing-grows"
    LIMIT_AT_CEILING = "limit-at-ceiling"
    NODE_RAN_OUT = "node-ran-out"
    INIT_CONTAINER = "init-container"
    # why a NodePool offers no node
    POOL_FIXED = "pool-fixed"
    POOL_NOT_READY = "pool-not-ready"
    POOL_UNREADABLE = "pool-unreadable"
    POOL_LIMITS_USED = "pool-limits-used"
    MACHINE_UNSEEN = "machine-unseen"
    # other reasons
    UTILISATION_TARGETED = "utilisation-targeted"
    UTILISATION_MAY_BE_TARGETED = "utilisation-may-be-targeted"
    SCALE_NOT_READ = "scale-not-read"
    SCALE_UNREADABLE = "scale-unreadable"
    NAMESPACE_NOT_SEEN = "namespace-not-seen"
    OWNER_NOT_SEEN = "owner-not-seen"
    SIZED_BY_VPA = "sized-by-vpa"
    MAY_BE_SIZED_BY_VPA = "may-be-sized-by-vpa"
    GROWTH_WAITS = "growth-waits"
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

    def of(self, subject: object) -> str:
        """Return the code with what it is about."""
        return f"{self.value}: {subject}"


_CODES = {detail.value: detail for detail in Detail}


def code_of(text: str) -> Detail | None:
    """Return the code of a detail, None for one that is a name, a figure or a server's message alone."""
    return _CODES.get(text.partition(": ")[0])
