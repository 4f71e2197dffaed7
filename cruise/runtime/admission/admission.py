"""Admission of one pod: its workload's statistics and the cluster around it in, the pod as it is created out."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from operator import attrgetter

import numpy as np

from cruise.decisions.admission.admission import Admitted, Leave, Mutate, admitted, decide_admission, original_amounts
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.steering import steered
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.domain.annotations import ORIGINAL_RESOURCES, ORIGINAL_RESOURCES_SIGNATURE
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.original_resources import format_original_resources, signature_of
from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing import Steering
from cruise.domain.policy import Mode, Policy
from cruise.domain.qos import qos_class
from cruise.domain.replacing import replacing
from cruise.domain.usage import StatisticsTable

_NAMES = ("labels", "owner_name")
_without_names = replacing(Pod, *_NAMES)
_parts_of = attrgetter(*(field.name for field in fields(Pod) if field.name not in (*_NAMES, "containers")))


class Admitter:
    """Admits pods under one state of cluster, statistics and overrides; prepared once, for many pods.

    What it replaces is signed with the first of `signing_keys`, and not at all without any.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        statistics: StatisticsTable,
        stored: StoredOverrides,
        policy: Policy,
        now: datetime,
        signing_keys: Sequence[bytes] = (),
    ) -> None:
        self._eligibility = Eligibility(snapshot, statistics, stored, policy, now)
        self._nodes = NodeIndex(snapshot.known_nodes)
        # Found out here, where no review waits for it.
        self._daemons = self._eligibility.daemons
        self._snapshot = snapshot
        self._statistics = statistics
        self._policy = policy
        self._now = now
        self._signing_key = signing_keys[0] if signing_keys else None
        self._decisions: dict[tuple[int, ...], tuple[tuple[object, ...], _Outcome]] = {}

    def holds_until(self) -> float:
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

    def admit_steered(self, pod: Pod, one: Steering) -> tuple[Pod, bool]:
        """Return the pod as it is created under the policy where a packing plan expects it, and whether it is steered.

        Below mode full no pod is.
        """
        created, decision = self.admit(pod)
        if self._policy.mode < Mode.FULL:
            return created, False
        snapshot = self._snapshot
        taints = next((node.taints for node in snapshot.nodes if node.name == one.node), ())
        found = steered(pod, created, decision, one, snapshot.limit_ranges.get(pod.namespace, ()), taints)
        if found is None:
            return created, False
        qos = qos_class(found)
        return found if qos is found.qos else replace(found, qos=qos), True

    def admit(self, pod: Pod) -> tuple[Pod, Mutate | Leave]:
        """Return the pod as it is created under the policy, and the decision."""
        outcome = self._outcome_of(pod)
        if outcome.admitted is None:
            return pod, outcome.decision
        return outcome.admitted.of(pod, self._annotations(pod, outcome.originals)), outcome.decision

    def _outcome_of(self, pod: Pod) -> "_Outcome":
        """Decide on a pod, or return what was decided on one that differs in its labels and its owner's name alone.

        So the revisions of a workload differ mostly.
        """
        group = self._eligibility.group_of(pod)
        if group is None:
            return self._decide(pod)
        parts = (group, *_parts_of(pod), *pod.containers)
        # Equal parts are one object mostly. They are kept, so that no other object comes by their numbers.
        key = tuple(map(id, parts))
        known = self._decisions.get(key)
        if known is None:
            known = self._decisions[key] = (parts, self._decide(_without_names(pod, {}, None)))
        return known[1]

    def _decide(self, pod: Pod) -> "_Outcome":
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
        if isinstance(decision, Leave) or self._policy.mode < Mode.INITIAL:
            return _Outcome(decision)
        # What a first mutation replaced, a later one must not overwrite.
        is_first = ORIGINAL_RESOURCES not in pod.annotations
        originals = format_original_resources(original_amounts(pod, decision)) if is_first else ""
        return _Outcome(decision, admitted(pod, decision), originals)

    def _annotations(self, pod: Pod, originals: str) -> Mapping[str, str]:
        """Keep what a mutation replaces; what somebody else wrote is not signed."""
        if not originals:
            return {}
        if self._signing_key is None:
            return {ORIGINAL_RESOURCES: originals}
        signature = signature_of(pod, originals, self._signing_key)
        return {ORIGINAL_RESOURCES: originals, ORIGINAL_RESOURCES_SIGNATURE: signature}


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A decision, and what it makes of pods, None for nothing; `originals` is what that replaces, for an annotation."""

    decision: Mutate | Leave
    admitted: Admitted | None = None
    originals: str = ""


def _next_change(snapshot: Snapshot, statistics: StatisticsTable, policy: Policy, now: datetime) -> float:
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


def _creations(snapshot: Snapshot) -> Iterator[datetime]:
    return (workload.created_at for workload in snapshot.workloads.values() if workload.created_at is not None)
