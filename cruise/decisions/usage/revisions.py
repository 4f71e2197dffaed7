"""Template revisions of workloads, read from running pods as they were before cruise resized them (ADR 0012)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.usage.usage_columns import RevisionGroups
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import Pod, WorkloadRef
from cruise.domain.original_resources import (
    PodRevision,
    RevisionPeriod,
    WorkloadContainer,
    WorkloadRevisions,
    get_resources_at_creation,
)
from cruise.domain.records import RETENTION
from cruise.domain.resources import StatedResources
from cruise.domain.usage import StatisticsTable

# The time when a revision was last seen is stored once an hour, not at every pass.
_SEEN_SECONDS = 3600
# Labels by which controllers distinguish the pods of different templates.
_TEMPLATE_LABELS = ("pod-template-hash", "controller-revision-hash", "rollouts-pod-template-hash")
# By pod uid and container: the original resources in the database, for pods that were resized without an annotation.
OriginalResources = Mapping[str, Mapping[str, tuple[StatedResources, StatedResources]]]


@dataclass(frozen=True, slots=True)
class UpdatedRevisions:
    """All known revisions, and those that must be stored."""

    revisions: WorkloadRevisions
    changed: WorkloadRevisions


def update_revisions(
    known: WorkloadRevisions, pods: Iterable[Pod], originals: OriginalResources, at: int, *, refresh: bool = False
) -> UpdatedRevisions:
    """Add the revisions that the pods show at a time (Unix seconds); bare pods have none.

    A pod that was seen pending runs since now, any other since its creation. With `refresh`, the time when a revision
    was last seen is updated, and revisions unseen for the retention of statistics are dropped.
    """
    by_pod: dict[str, PodRevision] = {}
    shared: dict[PodRevision, PodRevision] = {}
    new_runs: dict[WorkloadContainer, dict[str, RevisionPeriod]] = {}
    for pod in pods:
        if pod.workload is None:
            continue
        before = known.pods.get(pod.uid)
        runs = pod.node is not None and pod.phase != "Pending"
        if before is not None and (before.was_running or not runs):
            by_pod[pod.uid] = before
            if refresh and before.was_running:
                _record_run(new_runs, known, pod, before, at, at)
            continue
        stated = _get_stated(pod, originals) if before is None else before.stated
        found = PodRevision(stated, runs)
        by_pod[pod.uid] = shared.setdefault(found, found)
        if runs:
            created = int(pod.created_at.timestamp()) if pod.created_at is not None else at
            _record_run(new_runs, known, pod, found, min(created, at) if before is None else at, at)
    found_now = WorkloadRevisions(new_runs)
    updated = WorkloadRevisions(known.merge(found_now).runs if new_runs else known.runs, by_pod)
    if refresh:
        updated = updated.select_seen_since(at - int(RETENTION.statistics.total_seconds()))
    return UpdatedRevisions(updated, found_now)


def find_mixed_revisions(
    pods: Sequence[Pod], revisions: WorkloadRevisions, at: int, min_age_seconds: int
) -> RevisionGroups | None:
    """Group the pods' sized containers by what they state, in order; None if no workload has two revisions.

    A pod of a workload with several revisions that is younger than `min_age_seconds` has too few samples:
    those under its name may belong to the pod that it replaced.
    """
    stated = [revisions.get_resources_at_creation(pod) for pod in pods]
    first_stated: dict[tuple[str, WorkloadRef | None], tuple[str, ...]] = {}
    mixed = set()
    for pod, texts in zip(pods, stated, strict=True):
        workload = (pod.namespace, pod.workload)
        if first_stated.setdefault(workload, texts) != texts and pod.workload is not None:
            mixed.add(workload)
    if not mixed:
        return None
    numbers: dict[tuple[WorkloadContainer, str], int] = {}
    groups: list[int] = []
    is_new: list[bool] = []
    for pod, texts in zip(pods, stated, strict=True):
        is_mixed = (pod.namespace, pod.workload) in mixed
        is_young = is_mixed and pod.created_at is not None and pod.created_at.timestamp() > at - min_age_seconds
        for container, text in zip(pod.sized_containers, texts, strict=True):
            key = (WorkloadContainer(pod.namespace, pod.workload_name, container.name), text)
            groups.append(numbers.setdefault(key, len(numbers)) if is_mixed else -1)
            is_new.append(is_young)
    return RevisionGroups(np.array(groups, dtype=np.int64), np.array(is_new, dtype=np.bool_))


def get_revisions_in_use(pods: Iterable[Pod], statistics: StatisticsTable) -> WorkloadRevisions:
    """Return the revisions that statistics describe, as a single snapshot of the pods shows them.

    A pod that may have been resized states what the other pods of its template state: by their annotation, else what
    the first of them with its own statistic requests now.
    """
    runs: dict[WorkloadContainer, dict[str, RevisionPeriod]] = {}
    by_template: dict[tuple[str, WorkloadRef, str], PodRevision] = {}
    known, unknown = [], []
    for pod in pods:
        template = _get_template(pod)
        if pod.workload is None:
            continue
        if any((pod.namespace, pod.name, one.name) not in statistics.row_of_container for one in pod.sized_containers):
            unknown.append((pod, template))
            continue
        known.append((pod, template))
        key = (pod.namespace, pod.workload, template)
        # An annotation states what the template does; requests may be those after a resize.
        if key not in by_template or ORIGINAL_RESOURCES in pod.annotations:
            by_template[key] = PodRevision(get_resources_at_creation(pod), was_running=True)
    by_pod = {
        pod.uid: found
        for pod, template in (*known, *unknown)
        if pod.workload is not None
        and template
        and (found := by_template.get((pod.namespace, pod.workload, template))) is not None
    }
    for pod, _ in known:
        stated = by_pod[pod.uid].stated if pod.uid in by_pod else get_resources_at_creation(pod)
        for container, text in zip(pod.sized_containers, stated, strict=False):
            for own in _iterate_keys(pod, container.name):
                runs.setdefault(own, {})[text] = RevisionPeriod(0, 0)
    return WorkloadRevisions(runs, by_pod)


def add_resized_pods(known: WorkloadRevisions, pods: Iterable[Pod], originals: OriginalResources) -> WorkloadRevisions:
    """Return stored revisions with those of pods that were resized without an annotation."""
    added = {
        pod.uid: PodRevision(_get_stated(pod, originals), was_running=True)
        for pod in pods
        if pod.uid in originals and pod.uid not in known.pods
    }
    return WorkloadRevisions(known.runs, {**known.pods, **added})


def _get_template(pod: Pod) -> str:
    return next((pod.labels[label] for label in _TEMPLATE_LABELS if label in pod.labels), "")


def _get_stated(pod: Pod, originals: OriginalResources) -> tuple[str, ...]:
    return get_resources_at_creation(pod, None if ORIGINAL_RESOURCES in pod.annotations else originals.get(pod.uid))


def _record_run(
    new_runs: dict[WorkloadContainer, dict[str, RevisionPeriod]],
    known: WorkloadRevisions,
    pod: Pod,
    found: PodRevision,
    since: int,
    at: int,
) -> None:
    for container, text in zip(pod.sized_containers, found.stated, strict=False):
        for key in _iterate_keys(pod, container.name):
            run = new_runs.get(key, {}).get(text) or known.runs.get(key, {}).get(text)
            if run is None:
                new_runs.setdefault(key, {})[text] = RevisionPeriod(since, at)
            elif since < run.since or at - run.last_seen >= _SEEN_SECONDS:
                new_runs.setdefault(key, {})[text] = RevisionPeriod(min(since, run.since), at)


def _iterate_keys(pod: Pod, container: str) -> Iterator[WorkloadContainer]:
    """Yield the keys of a container's revisions: for its workload, and for its identity."""
    key = WorkloadContainer(pod.namespace, pod.workload_name, container)
    yield key
    if pod.identity:
        yield key._replace(identity=pod.identity)
