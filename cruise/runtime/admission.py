"""Admission of one pod: its workload's statistics and the cluster around it in, the pod as it is created out."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from operator import attrgetter

import numpy as np

from cruise.decisions.admission.admission import (
    AdmittedResources,
    LeaveUnchanged,
    MutatePod,
    compute_admitted_resources,
    decide_admission,
    get_original_resources,
)
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.placement_hints import apply_placement_hint, find_placement_hint
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.domain.annotations import ORIGINAL_RESOURCES, ORIGINAL_RESOURCES_SIGNATURE
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.original_resources import format_original_resources, sign_original_resources
from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing_plan import PlacementHint
from cruise.domain.pod_resources import create_fast_replace, get_qos_class
from cruise.domain.policy import Mode, Policy
from cruise.domain.usage import StatisticsTable

_NAMES = ("labels", "owner_name")
_without_names = create_fast_replace(Pod, *_NAMES)
_parts_of = attrgetter(*(field.name for field in fields(Pod) if field.name not in (*_NAMES, "containers")))


class PodAdmitter:
    """Admits pods under one state of cluster, statistics and overrides; prepared once, for many pods.

    What it replaces is signed with the first of `signing_keys`, and not at all without any.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        statistics: StatisticsTable,
        stored: StoredOverrides,
        policy: Policy,
        now: datetime,
        signing_keys: Sequence[bytes] = (),
    ) -> None:
        self._eligibility = Eligibility(snapshot, statistics, stored, policy, now)
        self._nodes = NodeIndex(snapshot.known_nodes)
        # Found out here, where no review waits for it.
        self._daemons = self._eligibility.daemonset_requests
        self._snapshot = snapshot
        self._statistics = statistics
        self._policy = policy
        self._now = now
        self._signing_key = signing_keys[0] if signing_keys else None
        self._decisions: dict[tuple[int, ...], tuple[tuple[object, ...], _AdmissionOutcome]] = {}

    def get_valid_until(self) -> float:
        """Return when time alone changes a decision next: Unix seconds, infinite if it never does."""
        return _next_change(self._snapshot, self._statistics, self._policy, self._now)

    def has_statistics(self, pod: Pod) -> bool:
        """Tell whether something is known of the use of a pod's workload."""
        find = self._statistics.find
        names = (one.name for one in pod.sized_containers)
        return any(find(pod.namespace, pod.name, pod.workload, name, pod.identity) is not None for name in names)

    def forget_pods(self) -> None:
        """Give back what is kept of the pods that were admitted so far."""
        self._eligibility.forget_pods()
        self._decisions.clear()

    def admit_with_placement_hint(self, pod: Pod, one: PlacementHint) -> tuple[Pod, bool]:
        """Return the pod as it is created under the policy where a packing plan expects it, and whether it is steered.

        Below mode full no pod is.
        """
        created, decision = self.admit(pod)
        if self._policy.mode < Mode.FULL:
            return created, False
        snapshot = self._snapshot
        taints = next((node.taints for node in snapshot.nodes if node.name == one.node), ())
        found = apply_placement_hint(pod, created, decision, one, snapshot.limit_ranges.get(pod.namespace, ()), taints)
        if found is None:
            return created, False
        qos = get_qos_class(found)
        return found if qos is found.qos else replace(found, qos=qos), True

    def admit(self, pod: Pod) -> tuple[Pod, MutatePod | LeaveUnchanged]:
        """Return the pod as it is created under the policy, and the decision."""
        outcome = self._outcome_of(pod)
        if outcome.admitted is None:
            return pod, outcome.decision
        return outcome.admitted.apply_to(pod, self._annotations(pod, outcome.originals)), outcome.decision

    def _outcome_of(self, pod: Pod) -> "_AdmissionOutcome":
        """Decide on a pod, or return what was decided on one that differs in its labels and its owner's name alone.

        So the revisions of a workload differ mostly.
        """
        group = self._eligibility.get_policy_group(pod)
        if group is None:
            return self._decide(pod)
        parts = (group, *_parts_of(pod), *pod.containers)
        # Equal parts are one object mostly. They are kept, so that no other object comes by their numbers.
        key = tuple(map(id, parts))
        known = self._decisions.get(key)
        if known is None:
            known = self._decisions[key] = (parts, self._decide(_without_names(pod, {}, None)))
        return known[1]

    def _decide(self, pod: Pod) -> "_AdmissionOutcome":
        snapshot = self._snapshot
        decision = decide_admission(
            pod,
            self._eligibility,
            self._statistics,
            self._nodes,
            snapshot.limit_ranges.get(pod.namespace, ()),
            self._policy,
            snapshot.quotas.get(pod.namespace, ()),
        )
        if isinstance(decision, LeaveUnchanged) or self._policy.mode < Mode.INITIAL:
            return _AdmissionOutcome(decision)
        # What a first mutation replaced, a later one must not overwrite.
        is_first = ORIGINAL_RESOURCES not in pod.annotations
        originals = format_original_resources(get_original_resources(pod, decision)) if is_first else ""
        return _AdmissionOutcome(decision, compute_admitted_resources(pod, decision), originals)

    def _annotations(self, pod: Pod, originals: str) -> Mapping[str, str]:
        """Keep what a mutation replaces; what somebody else wrote is not signed."""
        if not originals:
            return {}
        if self._signing_key is None:
            return {ORIGINAL_RESOURCES: originals}
        signature = sign_original_resources(pod, originals, self._signing_key)
        return {ORIGINAL_RESOURCES: originals, ORIGINAL_RESOURCES_SIGNATURE: signature}


@dataclass(frozen=True, slots=True)
class _AdmissionOutcome:
    """A decision, and what it makes of pods, None for nothing; `originals` is what that replaces, for an annotation."""

    decision: MutatePod | LeaveUnchanged
    admitted: AdmittedResources | None = None
    originals: str = ""


def _next_change(snapshot: ClusterSnapshot, statistics: StatisticsTable, policy: Policy, now: datetime) -> float:
    """Return the first moment after now at which a statistic grows stale, or a workload is new no longer."""
    now_seconds = now.timestamp()
    young_seconds = policy.new_workload_age.total_seconds()
    # Ages are counted in whole seconds, and only what is older than `max_age` is stale.
    moments = np.concatenate(
        (
            statistics.updated_at + (policy.max_age.total_seconds() + 1),
            statistics.history_since + young_seconds,
            np.array(_starts(statistics), dtype=np.float64) + young_seconds,
            np.array([at.timestamp() for at in _creations(snapshot)], dtype=np.float64) + young_seconds,
        )
    )
    return float(np.min(moments[moments > now_seconds], initial=math.inf))


def _starts(statistics: StatisticsTable) -> list[int]:
    """Return when the revisions of workloads that have had several began."""
    runs = statistics.revisions.runs if statistics.revisions is not None else {}
    return [run.since for of_container in runs.values() if len(of_container) > 1 for run in of_container.values()]


def _creations(snapshot: ClusterSnapshot) -> Iterator[datetime]:
    return (workload.created_at for workload in snapshot.workloads.values() if workload.created_at is not None)


# The pods that a packing plan expects, as admission knows them: each is steered once.

# A pod that was steered and yet never created leaves its place free again, for the next one of its controller.
_CLAIMED_SECONDS = 10.0


class ExpectedPods:
    """The pods that a packing plan expects; replaced as a whole whenever the store was read."""

    def __init__(self, clock: Callable[[], datetime], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._waiting: Sequence[PlacementHint] = ()
        self._claimed_at: dict[str, float] = {}
        self._owners: re.Pattern[bytes] | None = None

    def replace(self, steerings: Sequence[PlacementHint]) -> None:
        """Expect these pods from now on, and no others."""
        if steerings is self._waiting:
            return
        self._waiting = steerings
        known = {one.replaces for one in steerings}
        self._claimed_at = {uid: at for uid, at in self._claimed_at.items() if uid in known}
        names = sorted({re.escape(one.owner_name.encode()) for one in steerings})
        self._owners = re.compile(b'"(?:' + b"|".join(names) + b')"') if names else None

    @property
    def has_any(self) -> bool:
        """Tell whether any pod is expected."""
        return bool(self._waiting)

    def may_match(self, review: bytes) -> bool:
        """Tell whether a review may be of a pod that is expected: it names the owner of one."""
        return self._owners is not None and self._owners.search(review) is not None

    def find(self, pod: Pod) -> PlacementHint | None:
        """Return the expected pod that a pod in creation may be, None if it is none of them."""
        latest = self._monotonic() - _CLAIMED_SECONDS
        free = (one for one in self._waiting if self._claimed_at.get(one.replaces, latest) <= latest)
        return find_placement_hint(pod, free, self._clock())

    def claim(self, one: PlacementHint) -> None:
        """Note that a pod was steered: the next one is another."""
        self._claimed_at[one.replaces] = self._monotonic()
