"""Revisions of workloads: what their templates ask for, and since when pods that ask for it have run.

A revision is told by the resources that its pods were created with, whatever its controller is: Deployments,
StatefulSets, DaemonSets and Jobs all show it in their pods, and a template that is rolled back is the old one again.
"""

import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import msgspec

from cruise.domain.annotations import ORIGINAL_RESOURCES, ORIGINAL_RESOURCES_SIGNATURE
from cruise.domain.cluster import Pod
from cruise.domain.resources import (
    StatedResources,
    format_cpu_millicores,
    format_memory_bytes,
    parse_cpu_millicores,
    parse_memory_bytes,
)

# The annotation that keeps what admission replaced, the way back from it, and the signature that makes it cruise's.

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class _OriginalContainerResources(msgspec.Struct):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


def format_original_resources(amounts: Mapping[str, tuple[StatedResources, StatedResources]]) -> str:
    """Write requests and limits by container as compact JSON with sorted keys."""
    return _encode(
        {
            name: {"requests": amounts_to_json(requests), "limits": amounts_to_json(limits)}
            for name, (requests, limits) in amounts.items()
        }
    )


def parse_original_resources(text: str) -> dict[str, tuple[StatedResources, StatedResources]]:
    """Read what `format_original_resources` wrote. Raises ValueError for anything else."""
    try:
        stated = msgspec.json.decode(text, type=dict[str, _OriginalContainerResources])
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return {name: (_amounts(one.requests), _amounts(one.limits)) for name, one in stated.items()}


def sign_original_resources(pod: Pod, text: str, key: bytes) -> str:
    """Sign a pod's annotation, such that it holds for pods of its direct controller alone."""
    # At admission a pod has neither a uid nor, mostly, a name; a ReplicaSet's name goes with its template.
    parts = (ORIGINAL_RESOURCES, pod.namespace, pod.owner_kind or "", pod.owner_name or "", text)
    return hmac.new(key, "\0".join(parts).encode("utf-8", "surrogatepass"), sha256).hexdigest()


def read_signed_original_resources(
    pod: Pod, keys: Iterable[bytes]
) -> dict[str, tuple[StatedResources, StatedResources]] | None:
    """Read a pod's annotation where cruise's webhook signed it by any of some keys; None for any other."""
    text, stated = pod.annotations.get(ORIGINAL_RESOURCES), pod.annotations.get(ORIGINAL_RESOURCES_SIGNATURE)
    if text is None or stated is None:
        return None
    presented = stated.encode("utf-8", "surrogatepass")
    if not any(hmac.compare_digest(sign_original_resources(pod, text, key).encode(), presented) for key in keys):
        return None
    return parse_original_resources(text)


def amounts_to_json(amounts: StatedResources) -> dict[str, str]:
    """Return amounts as Kubernetes writes them, without what is absent."""
    stated = {}
    if amounts.cpu_millicores is not None:
        stated["cpu"] = format_cpu_millicores(amounts.cpu_millicores)
    if amounts.memory_bytes is not None:
        stated["memory"] = format_memory_bytes(amounts.memory_bytes)
    return stated


def _amounts(stated: Mapping[str, str]) -> StatedResources:
    return StatedResources(
        parse_cpu_millicores(stated["cpu"]) if "cpu" in stated else None,
        parse_memory_bytes(stated["memory"]) if "memory" in stated else None,
    )


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


class RevisionRun(NamedTuple):
    """Since when pods of a revision have run, and when the last of them was seen, in Unix seconds."""

    since: int
    last_seen: int


class PodRevision(NamedTuple):
    """What each sized container of a pod was created with, in the pod's order, and whether the pod was seen to run."""

    stated: tuple[str, ...]
    was_running: bool


@dataclass(frozen=True, slots=True)
class WorkloadRevisions:
    """The revisions of all workloads, by what their containers state (see `stated_by`).

    `of_pods` has the pods that exist, by uid, as they were before any resize; it may be empty.
    """

    runs: Mapping[WorkloadContainer, Mapping[str, RevisionRun]] = field(default_factory=dict)
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
            other != text and run.last_seen >= seen_since
            for text, runs in self._runs_of(pod, stated)
            for other, run in runs.items()
        )

    def _runs_of(self, pod: Pod, stated: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, RevisionRun]]]:
        """Yield what each container of which a revision is known states, and the revisions."""
        if not self.runs:
            return
        for container, text in zip(pod.sized_containers, stated, strict=False):
            key = WorkloadContainer(pod.namespace, pod.workload_name, container.name, pod.identity)
            runs = self.runs.get(key) or (self.runs.get(key._replace(identity="")) if pod.identity else None)
            if runs:
                yield text, runs

    def get_stated_resources(self, pod: Pod) -> tuple[str, ...]:
        """Return what each sized container of the pod was created with."""
        known = self.of_pods.get(pod.uid)
        return get_stated_resources(pod) if known is None else known.stated

    def merge(self, news: "WorkloadRevisions") -> "WorkloadRevisions":
        """Return these and others, of each revision the earliest beginning and the latest sight."""
        runs = dict(self.runs)
        for key, of_key in news.runs.items():
            known = runs.get(key, {})
            pairs = ((text, run, known.get(text, run)) for text, run in of_key.items())
            runs[key] = {
                **known,
                **{t: RevisionRun(min(a.since, b.since), max(a.last_seen, b.last_seen)) for t, a, b in pairs},
            }
        return WorkloadRevisions(runs, self.of_pods)

    def select_seen_since(self, oldest: int) -> "WorkloadRevisions":
        """Return those that were seen since a time in Unix seconds."""
        kept = {
            key: {text: run for text, run in of_key.items() if run.last_seen >= oldest}
            for key, of_key in self.runs.items()
        }
        return WorkloadRevisions({key: of_key for key, of_key in kept.items() if of_key}, self.of_pods)


NO_REVISIONS = WorkloadRevisions()


def get_stated_resources(
    pod: Pod, originals: Mapping[str, tuple[StatedResources, StatedResources]] | None = None
) -> tuple[str, ...]:
    """Return what each sized container was created with: as `originals` or an annotation keep it, else its spec."""
    if originals is None:
        originals = read_original_resources(pod)
    return tuple([_text(*originals.get(one.name, (one.requests, one.limits))) for one in pod.sized_containers])


def read_original_resources(pod: Pod) -> Mapping[str, tuple[StatedResources, StatedResources]]:
    """Return what containers requested and were limited to before admission changed them, as the pod's annotation says.

    It is empty for a pod that admission did not change.
    """
    annotation = pod.annotations.get(ORIGINAL_RESOURCES)
    if not annotation:
        return {}
    return _known(annotation) if len(annotation) <= _LONGEST_KNOWN else _kept(annotation)


def _kept(annotation: str) -> Mapping[str, tuple[StatedResources, StatedResources]]:
    """Read the annotation; one that cruise did not write keeps nothing."""
    try:
        return parse_original_resources(annotation)
    except (ValueError, msgspec.MsgspecError):
        return {}


_known = lru_cache(_LATEST)(_kept)


@lru_cache(_LATEST)
def _text(requests: StatedResources, limits: StatedResources) -> str:
    """Write requests and limits in millicores and bytes, - for what is not stated."""
    amounts = (requests.cpu_millicores, requests.memory_bytes, limits.cpu_millicores, limits.memory_bytes)
    return "/".join(["-" if amount is None else str(amount) for amount in amounts])
