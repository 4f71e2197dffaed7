"""What a controller runs in addition to its passes, and what outlives a term of leadership."""

from dataclasses import dataclass, field
from datetime import timedelta

from cruise.app.serve.activity import NO_HOOKS, ControllerHooks, ServeActivity
from cruise.app.serve.jobs import SHUTDOWN_GRACE
from cruise.decisions.eviction.ranking import NO_EARLIER_PASSES, EarlierPassResults
from cruise.domain.policy import ConsolidationMode
from cruise.runtime.packing.packing_pass import PackingSolver
from cruise.runtime.publication import PolicyStatusUpdater, VpaRecommendationUpdater
from cruise.runtime.writing.audit import AuditQueue
from cruise.runtime.writing.evictions import EvictionLock, PendingGrowths, WriteExclusions
from cruise.runtime.writing.writer import CONCURRENT_WRITES


@dataclass(frozen=True, slots=True)
class PackingSettings:
    """The solver and its time limit, whether packing plans are carried out, and consolidation.

    `consolidation_cooldown` is the age from which a pod may be moved for consolidation.
    """

    solver: PackingSolver
    seconds: float = 10.0
    enabled: bool = True
    consolidation: ConsolidationMode = ConsolidationMode.OFF
    consolidation_interval: timedelta = timedelta(minutes=30)
    consolidation_cooldown: timedelta = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class SharedWriterState:
    """What the writers of a process share, also between terms of leadership."""

    audit: AuditQueue = field(default_factory=AuditQueue)
    evictions: EvictionLock = field(default_factory=EvictionLock)
    growths: PendingGrowths = field(default_factory=PendingGrowths)
    exclusions: WriteExclusions = field(default_factory=WriteExclusions)
    concurrent_writes: int = CONCURRENT_WRITES


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """What a controller runs in addition to its passes, and what it shares with earlier terms of leadership.

    `shared` and `activity` outlive a term. Without `packing` nothing is packed. `clock_speed` is how many seconds of
    the controller's clock pass in a real second: 1 except in simulations.
    """

    hooks: ControllerHooks = NO_HOOKS
    activity: ServeActivity = field(default_factory=ServeActivity)
    shared: SharedWriterState = field(default_factory=SharedWriterState)
    packing: PackingSettings | None = None
    publication: VpaRecommendationUpdater | None = None
    policy_statuses: PolicyStatusUpdater | None = None
    earlier_passes: EarlierPassResults = NO_EARLIER_PASSES
    shutdown_grace: timedelta = SHUTDOWN_GRACE
    clock_speed: float = 1.0
