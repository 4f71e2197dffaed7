"""Revisions of workloads: what their templates ask for, and since when pods that ask for it have run.

A revision is told by the resources that its pods were created with, whatever its controller is: Deployments,
StatefulSets, DaemonSets and Jobs all show it in their pods, and a template that is rolled back is the old one again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import msgspec

from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import Pod
from cruise.domain.original_resources import parse_original_resources
from cruise.domain.resources import Amounts

# Annotations of a workload's pods are equal, so few texts stand for many pods.
_LATEST = 16_384
# That of twenty containers; longer ones would take much memory, and at admission anybody may send them.
_LONGEST_KNOWN = 2048


class WorkloadContainer(NamedTuple):
    """A container of a workload's (Kind/name) pods: of all, or of those of an identity (see `Pod.identity`)."""

    namespace: str
    workload: str
    container: str
    identity: str = ""


class Run(NamedTuple):
    """Since when pods of a revision have run, and when the last of them was seen, in Unix seconds."""

    since: int
    seen: int


class PodRevision(NamedTuple):
    """What each sized container of a pod was created with, in the pod's order, and whether the pod was seen to run."""

    stated: tuple[str, ...]
    ran: bool


@dataclass(frozen=True, slots=True)
class Revisions:
    """The revisions of all workloads, by what their containers state (see `stated_by`).

    `of_pods` has the pods that exist, by uid, as they were before any resize; it may be empty.
    """

    runs: Mapping[WorkloadContainer, Mapping[str, Run]] = field(default_factory=dict)
    of_pods: Mapping[str, PodRevision] = field(default_factory=dict)

    def is_new(self, pod: Pod, stated: tuple[str, ...], since: int) -> bool:
        """Tell whether what the pod's containers state has run since `since` at most, and something else before it.

        Peaks belong to an identity, so what ran is asked of its own, and of the workload where that never ran.
        """
        for text, runs in self._runs_of(pod, stated):
            own = runs.get(text)
            if own is None or (own.since > since and any(run.since < own.since for run in runs.values())):
                return True
        return False

    def is_one_of_several(self, pod: Pod, stated: tuple[str, ...], seen_since: int) -> bool:
        """Tell whether pods like it that state something else were seen since a time."""
        return any(
            other != text and run.seen >= seen_since
            for text, runs in self._runs_of(pod, stated)
            for other, run in runs.items()
        )

    def _runs_of(self, pod: Pod, stated: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, Run]]]:
        """Yield what each container of which a revision is known states, and the revisions."""
        if not self.runs:
            return
        for container, text in zip(pod.sized_containers, stated, strict=False):
            key = WorkloadContainer(pod.namespace, pod.workload_name, container.name, pod.identity)
            runs = self.runs.get(key) or (self.runs.get(key._replace(identity="")) if pod.identity else None)
            if runs:
                yield text, runs

    def stated_by(self, pod: Pod) -> tuple[str, ...]:
        """Return what each sized container of the pod was created with."""
        known = self.of_pods.get(pod.uid)
        return stated_by(pod) if known is None else known.stated

    def merged(self, news: "Revisions") -> "Revisions":
        """Return these and others, of each revision the earliest beginning and the latest sight."""
        runs = dict(self.runs)
        for key, of_key in news.runs.items():
            known = runs.get(key, {})
            pairs = ((text, run, known.get(text, run)) for text, run in of_key.items())
            runs[key] = {**known, **{t: Run(min(a.since, b.since), max(a.seen, b.seen)) for t, a, b in pairs}}
        return Revisions(runs, self.of_pods)

    def seen_since(self, oldest: int) -> "Revisions":
        """Return those that were seen since a time in Unix seconds."""
        kept = {
            key: {text: run for text, run in of_key.items() if run.seen >= oldest} for key, of_key in self.runs.items()
        }
        return Revisions({key: of_key for key, of_key in kept.items() if of_key}, self.of_pods)


NO_REVISIONS = Revisions()


def stated_by(pod: Pod, originals: Mapping[str, tuple[Amounts, Amounts]] | None = None) -> tuple[str, ...]:
    """Return what each sized container was created with: as `originals` or an annotation keep it, else its spec."""
    if originals is None:
        originals = originals_of(pod)
    return tuple([_text(*originals.get(one.name, (one.requests, one.limits))) for one in pod.sized_containers])


def originals_of(pod: Pod) -> Mapping[str, tuple[Amounts, Amounts]]:
    """Return what containers requested and were limited to before admission changed them, as the pod's annotation says.

    It is empty for a pod that admission did not change.
    """
    annotation = pod.annotations.get(ORIGINAL_RESOURCES)
    if not annotation:
        return {}
    return _known(annotation) if len(annotation) <= _LONGEST_KNOWN else _kept(annotation)


def _kept(annotation: str) -> Mapping[str, tuple[Amounts, Amounts]]:
    """Read the annotation; one that cruise did not write keeps nothing."""
    try:
        return parse_original_resources(annotation)
    except (ValueError, msgspec.MsgspecError):
        return {}


_known = lru_cache(_LATEST)(_kept)


@lru_cache(_LATEST)
def _text(requests: Amounts, limits: Amounts) -> str:
    """Write requests and limits in millicores and bytes, - for what is not stated."""
    amounts = (requests.cpu_millicores, requests.memory_bytes, limits.cpu_millicores, limits.memory_bytes)
    return "/".join(["-" if amount is None else str(amount) for amount in amounts])
