"""Admission of single pods: a workload's statistics and the cluster determine the requests of a new pod."""

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
from cruise.domain.annotations import ORIGINAL_RESOURCES, ORIGINAL_RESOURCES_SIGNATURE, STARTUP_BOOST
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.original_resources import format_original_resources, sign_original_resources
from cruise.domain.overrides import PausedWorkloads
from cruise.domain.packing_plan import PlacementHint
from cruise.domain.pod_resources import create_fast_replace, get_qos_class
from cruise.domain.policy import Mode, Policy
from cruise.domain.startup_boosts import format_startup_boosts, settle_boosted_pod
from cruise.domain.usage import StatisticsTable

_NAMES = ("labels", "owner_name")
_replace_annotations = create_fast_replace(Pod, "annotations")
_without_names = create_fast_replace(Pod, *_NAMES)
_parts_of = attrgetter(*(field.name for field in fields(Pod) if field.name not in (*_NAMES, "containers")))
# A hint whose pod was not created after this time is used for the controller's next pod.
_CLAIMED_SECONDS = 10.0


class PodAdmitter:
    """Admits pods under one state of cluster, statistics and overrides; prepared once for many pods.

    The replaced requests are signed with the first of `signing_keys`, and unsigned without any.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        statistics: StatisticsTable,
        paused_workloads: PausedWorkloads,
        policy: Policy,
        now: datetime,
        signing_keys: Sequence[bytes] = (),
    ) -> None:
        self._eligibility = Eligibility(snapshot, statistics, paused_workloads, policy, now)
        self._nodes = NodeIndex(snapshot.known_nodes)
        # Computed here, before reviews need it.
        self._daemonset_requests = self._eligibility.daemonset_requests
        self._snapshot = snapshot
        self._statistics = statistics
        self._policy = policy
        self._now = now
        self._signing_key = signing_keys[0] if signing_keys else None
        self._decisions: dict[tuple[int, ...], tuple[tuple[object, ...], _AdmissionOutcome]] = {}

    def get_valid_until(self) -> float:
        """Return the next time at which a decision changes without a new state: Unix seconds, infinite if never."""
        return _find_next_change(self._snapshot, self._statistics, self._policy, self._now)

    def has_statistics(self, pod: Pod) -> bool:
        """Return whether the pod's workload has statistics."""
        find = self._statistics.find_row
        names = (hint.name for hint in pod.sized_containers)
        return any(find(pod.namespace, pod.name, pod.workload, name, pod.identity) is not None for name in names)

    def forget_pods(self) -> None:
        """Drop the cached decisions of admitted pods."""
        self._eligibility.forget_pods()
        self._decisions.clear()

    def admit_with_placement_hint(self, pod: Pod, hint: PlacementHint) -> tuple[Pod, bool]:
        """Return the created pod with a placement hint, and whether it got one.

        Below mode full no pod gets one.
        """
        created, decision = self.admit(pod)
        if self._policy.mode < Mode.FULL:
            return created, False
        snapshot = self._snapshot
        # The plan has room for the pod's size, and none for the CPU of its start.
        settled = _drop_boosts(created) if isinstance(decision, MutatePod) and decision.boosts else created
        taints = next((node.taints for node in snapshot.nodes if node.name == hint.node), ())
        found = apply_placement_hint(pod, settled, decision, hint, snapshot.limit_ranges.get(pod.namespace, ()), taints)
        if found is None:
            return created, False
        qos = get_qos_class(found)
        return found if qos is found.qos else replace(found, qos=qos), True

    def admit(self, pod: Pod) -> tuple[Pod, MutatePod | LeaveUnchanged]:
        """Return the created pod under the policy, and the decision."""
        outcome = self._get_outcome(pod)
        if outcome.admitted is None:
            return pod, outcome.decision
        created = outcome.admitted.apply_to(pod, self._build_annotations(pod, outcome.originals))
        if outcome.boosts:
            created = _replace_annotations(created, {**created.annotations, STARTUP_BOOST: outcome.boosts})
        return created, outcome.decision

    def _get_outcome(self, pod: Pod) -> "_AdmissionOutcome":
        """Decide on a pod, or return the decision on a pod that differs in labels and the owner's name only.

        Revisions of a workload mostly differ in these only.
        """
        group = self._eligibility.get_policy_group(pod)
        if group is None:
            return self._decide(pod)
        parts = (group, *_parts_of(pod), *pod.containers)
        # Equal parts are mostly the same object. The cache keeps them, so that their ids are not reused.
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
        # A later mutation must not overwrite the original resources of the first one.
        is_first = ORIGINAL_RESOURCES not in pod.annotations
        originals = format_original_resources(get_original_resources(pod, decision)) if is_first else ""
        boosts = format_startup_boosts(decision.boosts) if decision.boosts else ""
        return _AdmissionOutcome(decision, compute_admitted_resources(pod, decision), originals, boosts)

    def _build_annotations(self, pod: Pod, originals: str) -> Mapping[str, str]:
        """Return the annotations with the original resources; those that another client wrote are not signed."""
        if not originals:
            return {}
        if self._signing_key is None:
            return {ORIGINAL_RESOURCES: originals}
        signature = sign_original_resources(pod, originals, self._signing_key)
        return {ORIGINAL_RESOURCES: originals, ORIGINAL_RESOURCES_SIGNATURE: signature}


def _drop_boosts(pod: Pod) -> Pod:
    """Return a pod in creation with its sizes after its start, and no record of more."""
    annotations = {name: value for name, value in pod.annotations.items() if name != STARTUP_BOOST}
    return _replace_annotations(settle_boosted_pod(pod), annotations)


@dataclass(frozen=True, slots=True)
class _AdmissionOutcome:
    """A decision, the resources that it gives pods, and the replaced resources and the boosts as annotations."""

    decision: MutatePod | LeaveUnchanged
    admitted: AdmittedResources | None = None
    originals: str = ""
    boosts: str = ""


def _find_next_change(snapshot: ClusterSnapshot, statistics: StatisticsTable, policy: Policy, now: datetime) -> float:
    """Return the next time at which a statistic becomes too old, or a workload is no longer new."""
    now_seconds = now.timestamp()
    new_seconds = policy.new_workload_age.total_seconds()
    # Ages are in whole seconds, and statistics are too old above `max_age`.
    moments = np.concatenate(
        (
            statistics.updated_at + (policy.max_age.total_seconds() + 1),
            statistics.history_since + new_seconds,
            np.array(_list_revision_starts(statistics), dtype=np.float64) + new_seconds,
            np.array([at.timestamp() for at in _list_creations(snapshot)], dtype=np.float64) + new_seconds,
        )
    )
    return float(np.min(moments[moments > now_seconds], initial=math.inf))


def _list_revision_starts(statistics: StatisticsTable) -> list[int]:
    """Return the start times of revisions, for workloads with several."""
    runs = statistics.revisions.runs if statistics.revisions is not None else {}
    return [run.since for of_container in runs.values() if len(of_container) > 1 for run in of_container.values()]


def _list_creations(snapshot: ClusterSnapshot) -> Iterator[datetime]:
    return (workload.created_at for workload in snapshot.workloads.values() if workload.created_at is not None)


class ExpectedPods:
    """The replacement pods that a packing plan expects, each with one placement hint; replaced as a whole."""

    def __init__(self, clock: Callable[[], datetime], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._hints: Sequence[PlacementHint] = ()
        self._claimed_at: dict[str, float] = {}
        self._owners: re.Pattern[bytes] | None = None

    def replace(self, hints: Sequence[PlacementHint]) -> None:
        """Replace the expected pods."""
        if hints is self._hints:
            return
        self._hints = hints
        known = {hint.replaces for hint in hints}
        self._claimed_at = {uid: at for uid, at in self._claimed_at.items() if uid in known}
        names = sorted({re.escape(hint.owner_name.encode()) for hint in hints})
        self._owners = re.compile(b'"(?:' + b"|".join(names) + b')"') if names else None

    @property
    def has_any(self) -> bool:
        """Whether any pod is expected."""
        return bool(self._hints)

    def may_match(self, review: bytes) -> bool:
        """Return whether a review may be of an expected pod: it contains the name of an expected owner."""
        return self._owners is not None and self._owners.search(review) is not None

    def find(self, pod: Pod) -> PlacementHint | None:
        """Return the placement hint of a pod that is being created, None if there is none."""
        latest = self._monotonic() - _CLAIMED_SECONDS
        free = (hint for hint in self._hints if self._claimed_at.get(hint.replaces, latest) <= latest)
        return find_placement_hint(pod, free, self._clock())

    def claim(self, hint: PlacementHint) -> None:
        """Record that a hint was used, so that the next pod gets another."""
        self._claimed_at[hint.replaces] = self._monotonic()
