"""The resources that pods were created with: the annotation that records them, and the template revisions.

A revision is identified by the resources of its pods, which works for every controller; a template that is rolled back
is its earlier revision again.
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

# The annotation with the resources that admission replaced, and its signature.

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class _OriginalContainerResources(msgspec.Struct):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


def format_original_resources(amounts: Mapping[str, tuple[StatedResources, StatedResources]]) -> str:
    """Write requests and limits by container as compact JSON with sorted keys."""
    return _encode(
        {
            name: {"requests": convert_amounts_to_json(requests), "limits": convert_amounts_to_json(limits)}
            for name, (requests, limits) in amounts.items()
        }
    )


def parse_original_resources(text: str) -> dict[str, tuple[StatedResources, StatedResources]]:
    """Read what `format_original_resources` wrote; ValueError for anything else."""
    try:
        stated = msgspec.json.decode(text, type=dict[str, _OriginalContainerResources])
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return {name: (_parse_amounts(one.requests), _parse_amounts(one.limits)) for name, one in stated.items()}


def sign_original_resources(pod: Pod, text: str, key: bytes) -> str:
    """Sign the annotation of a pod, so that it is valid only for pods of the same direct controller."""
    # At admission a pod has no uid and mostly no name; a ReplicaSet's name identifies its template.
    parts = (ORIGINAL_RESOURCES, pod.namespace, pod.owner_kind or "", pod.owner_name or "", text)
    return hmac.new(key, "\0".join(parts).encode("utf-8", "surrogatepass"), sha256).hexdigest()


def read_signed_original_resources(
    pod: Pod, keys: Iterable[bytes]
) -> dict[str, tuple[StatedResources, StatedResources]] | None:
    """Return the pod's annotation if cruise's webhook signed it with one of the keys, else None."""
    text, stated = pod.annotations.get(ORIGINAL_RESOURCES), pod.annotations.get(ORIGINAL_RESOURCES_SIGNATURE)
    if text is None or stated is None:
        return None
    presented = stated.encode("utf-8", "surrogatepass")
    if not any(hmac.compare_digest(sign_original_resources(pod, text, key).encode(), presented) for key in keys):
        return None
    return parse_original_resources(text)


def convert_amounts_to_json(amounts: StatedResources) -> dict[str, str]:
    """Return the stated amounts as Kubernetes quantities."""
    stated = {}
    if amounts.cpu_millicores is not None:
        stated["cpu"] = format_cpu_millicores(amounts.cpu_millicores)
    if amounts.memory_bytes is not None:
        stated["memory"] = format_memory_bytes(amounts.memory_bytes)
    return stated


def _parse_amounts(stated: Mapping[str, str]) -> StatedResources:
    return StatedResources(
        parse_cpu_millicores(stated["cpu"]) if "cpu" in stated else None,
        parse_memory_bytes(stated["memory"]) if "memory" in stated else None,
    )


# Pods of a workload have equal annotations, so a cache needs few entries.
_CACHE_SIZE = 16_384
# Enough for twenty containers. Any client may send longer ones at admission: they are not cached.
_LONGEST_CACHED = 2048


class WorkloadContainer(NamedTuple):
    """A container of a workload (Kind/name): of all pods, or of those with an identity (see `Pod.identity`)."""

    namespace: str
    workload: str
    container: str
    identity: str = ""


class RevisionPeriod(NamedTuple):
    """When pods of a revision were first and last seen, in Unix seconds."""

    since: int
    last_seen: int


class PodRevision(NamedTuple):
    """What each sized container of a pod was created with, in order, and whether the pod was seen running."""

    stated: tuple[str, ...]
    was_running: bool


@dataclass(frozen=True, slots=True)
class WorkloadRevisions:
    """The revisions of all workloads, keyed by the resources of their containers (see `get_resources_at_creation`).

    `pods` has the existing pods by uid, before any resize; it may be empty.
    """

    runs: Mapping[WorkloadContainer, Mapping[str, RevisionPeriod]] = field(default_factory=dict)
    pods: Mapping[str, PodRevision] = field(default_factory=dict)

    def is_new(self, pod: Pod, stated: tuple[str, ...], since: int) -> bool:
        """Return whether the pod's revision has run at most since `since`, and another one before it.

        Peaks belong to an identity, so the runs of the same identity count, or the workload's if there are none.
        """
        for text, runs in self._runs_of(pod, stated):
            own = runs.get(text)
            if own is None or (own.since > since and any(run.since < own.since for run in runs.values())):
                return True
        return False

    def is_one_of_several(self, pod: Pod, stated: tuple[str, ...], seen_since: int) -> bool:
        """Return whether similar pods with other resources were seen since a time."""
        return any(
            other != text and run.last_seen >= seen_since
            for text, runs in self._runs_of(pod, stated)
            for other, run in runs.items()
        )

    def _runs_of(self, pod: Pod, stated: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, RevisionPeriod]]]:
        """Yield the resources and the revisions of each container that has known revisions."""
        if not self.runs:
            return
        for container, text in zip(pod.sized_containers, stated, strict=False):
            key = WorkloadContainer(pod.namespace, pod.workload_name, container.name, pod.identity)
            runs = self.runs.get(key) or (self.runs.get(key._replace(identity="")) if pod.identity else None)
            if runs:
                yield text, runs

    def get_resources_at_creation(self, pod: Pod) -> tuple[str, ...]:
        """Return the resources that each sized container of the pod was created with."""
        known = self.pods.get(pod.uid)
        return get_resources_at_creation(pod) if known is None else known.stated

    def is_unsized(self, pod: Pod) -> bool:
        """Return whether the pod is known to state what its controller created it with; False if that is unknown."""
        known = self.pods.get(pod.uid)
        if known is None or ORIGINAL_RESOURCES in pod.annotations:
            return False
        return known.stated == get_resources_at_creation(pod)

    def merge(self, others: "WorkloadRevisions") -> "WorkloadRevisions":
        """Return both, for each revision with the earliest start and the latest sighting."""
        runs = dict(self.runs)
        for key, revisions in others.runs.items():
            known = runs.get(key, {})
            pairs = ((text, run, known.get(text, run)) for text, run in revisions.items())
            runs[key] = {
                **known,
                **{t: RevisionPeriod(min(a.since, b.since), max(a.last_seen, b.last_seen)) for t, a, b in pairs},
            }
        return WorkloadRevisions(runs, self.pods)

    def select_seen_since(self, oldest: int) -> "WorkloadRevisions":
        """Return the revisions that were seen since a time in Unix seconds."""
        kept = {
            key: {text: run for text, run in revisions.items() if run.last_seen >= oldest}
            for key, revisions in self.runs.items()
        }
        return WorkloadRevisions({key: revisions for key, revisions in kept.items() if revisions}, self.pods)


NO_REVISIONS = WorkloadRevisions()


def get_resources_at_creation(
    pod: Pod, originals: Mapping[str, tuple[StatedResources, StatedResources]] | None = None
) -> tuple[str, ...]:
    """Return what each sized container was created with: from `originals`, the annotation or its spec."""
    if originals is None:
        originals = read_original_resources(pod)
    texts = [_format_resources(*originals.get(one.name, (one.requests, one.limits))) for one in pod.sized_containers]
    whole = pod.pod_level
    if whole is not None:
        # Another revision of the pod's own resources is one of each container.
        pod_text = _format_resources(*originals.get(whole.name, (whole.requests, whole.limits)))
        texts = [f"{text} {pod_text}" for text in texts]
    return tuple(texts)


def read_original_resources(pod: Pod) -> Mapping[str, tuple[StatedResources, StatedResources]]:
    """Return requests and limits before admission changed them, from the pod's annotation; empty if it did not."""
    annotation = pod.annotations.get(ORIGINAL_RESOURCES)
    if not annotation:
        return {}
    return _parse_cached(annotation) if len(annotation) <= _LONGEST_CACHED else _parse_or_empty(annotation)


def _parse_or_empty(annotation: str) -> Mapping[str, tuple[StatedResources, StatedResources]]:
    """Read the annotation; one that cruise did not write is ignored."""
    try:
        return parse_original_resources(annotation)
    except (ValueError, msgspec.MsgspecError):
        return {}


_parse_cached = lru_cache(_CACHE_SIZE)(_parse_or_empty)


@lru_cache(_CACHE_SIZE)
def _format_resources(requests: StatedResources, limits: StatedResources) -> str:
    """Format requests and limits in millicores and bytes, - for those not stated."""
    amounts = (requests.cpu_millicores, requests.memory_bytes, limits.cpu_millicores, limits.memory_bytes)
    return "/".join(["-" if amount is None else str(amount) for amount in amounts])
