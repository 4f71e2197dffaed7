"""Revisions as the usage pass learns them: from pods that run, as they were before cruise resized them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.usage.usage_columns import RevisionGroups
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import Pod, WorkloadRef
from cruise.domain.original_resources import (
    PodRevision,
    RevisionRun,
    WorkloadContainer,
    WorkloadRevisions,
    get_stated_resources,
)
from cruise.domain.records import RETENTION
from cruise.domain.resources import StatedResources
from cruise.domain.usage import StatisticsTable

# How far behind the time may be when a revision was last seen: to store it at every pass would be for nothing.
_SEEN_SECONDS = 3600
# By which controllers tell the pods of one template from those of another.
_TEMPLATE_LABELS = ("pod-template-hash", "controller-revision-hash", "rollouts-pod-template-hash")
# By pod uid and container: what the store has of pods that were resized without an annotation.
OriginalResources = Mapping[str, Mapping[str, tuple[StatedResources, StatedResources]]]


@dataclass(frozen=True, slots=True)
class UpdatedRevisions:
    """All revisions as they are known now, and those of them that are to be stored."""

    revisions: WorkloadRevisions
    changed: WorkloadRevisions


def update_revisions(
    known: WorkloadRevisions, pods: Iterable[Pod], originals: OriginalResources, at: int, *, refresh: bool = False
) -> UpdatedRevisions:
    """Add what the pods show at a time (Unix seconds) to what is known; bare pods have no revisions.

    A pod that was seen to wait runs since now, any other since it was created. With `refresh` the time when a revision
    was last seen is brought up to date, and what was not seen for as long as statistics are kept is forgotten.
    """
    of_pods: dict[str, PodRevision] = {}
    shared: dict[PodRevision, PodRevision] = {}
    news: dict[WorkloadContainer, dict[str, RevisionRun]] = {}
    for pod in pods:
        if pod.workload is None:
            continue
        before = known.pods.get(pod.uid)
        runs = pod.node is not None and pod.phase != "Pending"
        if before is not None and (before.was_running or not runs):
            of_pods[pod.uid] = before
            if refresh and before.was_running:
                _note(news, known, pod, before, at, at)
            continue
        stated = _stated(pod, originals) if before is None else before.stated
        found = PodRevision(stated, runs)
        of_pods[pod.uid] = shared.setdefault(found, found)
        if runs:
            created = int(pod.created_at.timestamp()) if pod.created_at is not None else at
            _note(news, known, pod, found, min(created, at) if before is None else at, at)
    found_now = WorkloadRevisions(news)
    learned = WorkloadRevisions(known.merge(found_now).runs if news else known.runs, of_pods)
    if refresh:
        learned = learned.select_seen_since(at - int(RETENTION.statistics.total_seconds()))
    return UpdatedRevisions(learned, found_now)


def find_mixed_revisions(
    pods: Sequence[Pod], revisions: WorkloadRevisions, at: int, own_seconds: int
) -> RevisionGroups | None:
    """Tell the revisions of the pods' sized containers apart, in the pods' order; None where no workload has two.

    A pod of several revisions' workload that is younger than `own_seconds` has too few samples of its own: those under
    its name may be those of the pod that it replaced.
    """
    stated = [revisions.get_stated_resources(pod) for pod in pods]
    first: dict[tuple[str, WorkloadRef | None], tuple[str, ...]] = {}
    mixed = set()
    for pod, texts in zip(pods, stated, strict=True):
        workload = (pod.namespace, pod.workload)
        if first.setdefault(workload, texts) != texts and pod.workload is not None:
            mixed.add(workload)
    if not mixed:
        return None
    numbers: dict[tuple[WorkloadContainer, str], int] = {}
    groups: list[int] = []
    young: list[bool] = []
    for pod, texts in zip(pods, stated, strict=True):
        apart = (pod.namespace, pod.workload) in mixed
        is_young = apart and pod.created_at is not None and pod.created_at.timestamp() > at - own_seconds
        for container, text in zip(pod.sized_containers, texts, strict=True):
            key = (WorkloadContainer(pod.namespace, pod.workload_name, container.name), text)
            groups.append(numbers.setdefault(key, len(numbers)) if apart else -1)
            young.append(is_young)
    return RevisionGroups(np.array(groups, dtype=np.int64), np.array(young, dtype=np.bool_))


def get_revisions_in_use(pods: Iterable[Pod], statistics: StatisticsTable) -> WorkloadRevisions:
    """Return the revisions that statistics speak for, as one picture of the pods shows them.

    A pod without a statistic of its own, which may have been resized, states what its template's other pods do.
    """
    runs: dict[WorkloadContainer, dict[str, RevisionRun]] = {}
    of_template: dict[tuple[str, WorkloadRef, str], PodRevision] = {}
    others = []
    for pod in pods:
        if pod.workload is None:
            continue
        sized = pod.sized_containers
        if any((pod.namespace, pod.name, one.name) not in statistics.row_of_container for one in sized):
            others.append(pod)
            continue
        found = PodRevision(get_stated_resources(pod), was_running=True)
        of_template[pod.namespace, pod.workload, _template(pod)] = found
        for container, text in zip(sized, found.stated, strict=True):
            for key in _keys(pod, container.name):
                runs.setdefault(key, {})[text] = RevisionRun(0, 0)
    of_pods = {
        pod.uid: of_template[pod.namespace, pod.workload, _template(pod)]
        for pod in others
        if pod.workload is not None and _template(pod) and (pod.namespace, pod.workload, _template(pod)) in of_template
    }
    return WorkloadRevisions(runs, of_pods)


def _template(pod: Pod) -> str:
    return next((pod.labels[label] for label in _TEMPLATE_LABELS if label in pod.labels), "")


def _stated(pod: Pod, originals: OriginalResources) -> tuple[str, ...]:
    return get_stated_resources(pod, None if ORIGINAL_RESOURCES in pod.annotations else originals.get(pod.uid))


def _note(
    news: dict[WorkloadContainer, dict[str, RevisionRun]],
    known: WorkloadRevisions,
    pod: Pod,
    found: PodRevision,
    began: int,
    at: int,
) -> None:
    for container, text in zip(pod.sized_containers, found.stated, strict=False):
        for key in _keys(pod, container.name):
            run = news.get(key, {}).get(text) or known.runs.get(key, {}).get(text)
            if run is None:
                news.setdefault(key, {})[text] = RevisionRun(began, at)
            elif began < run.since or at - run.last_seen >= _SEEN_SECONDS:
                news.setdefault(key, {})[text] = RevisionRun(min(began, run.since), at)


def _keys(pod: Pod, container: str) -> Iterator[WorkloadContainer]:
    """Yield what the revisions of a pod's container belong to: its workload, and its identity."""
    key = WorkloadContainer(pod.namespace, pod.workload_name, container)
    yield key
    if pod.identity:
        yield key._replace(identity=pod.identity)
