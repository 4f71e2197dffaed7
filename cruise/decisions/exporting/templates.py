"""What each workload's pod template should state: the sizes that admission gives its pods.

Once a template states them, admission leaves its pods as they are.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from cruise.decisions.admission.admission import Leave, Mutate, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.replacing import created_anew
from cruise.decisions.exporting.evidence import Evidence, evidence_of, with_workload_rows
from cruise.decisions.exporting.killed import KilledWorkloads, killed_workloads
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.domain.actions import ContainerTarget, Reason
from cruise.domain.annotations import APP_INSTANCE, RECORDS
from cruise.domain.cluster import Container, ContainerRole, Pod, Snapshot, Workload, WorkloadRef
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Mode, Policy
from cruise.domain.qos import qos_of
from cruise.domain.resources import NO_RESOURCES, Amounts, Resources
from cruise.domain.sizes import spec_targets
from cruise.domain.usage import StatisticsTable

NO_OVERRIDES: StoredOverrides = {}
# What the API server demands of the names of namespaces and workloads; they become names of files as well.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
# Kinds whose templates can be changed, and are an author's own.
_PATCHABLE = frozenset({"CronJob", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"})
_IMMUTABLE = frozenset({"Job"})
# The API server, kubectl and Kustomize merge containers by name in Kubernetes' own kinds alone; in a custom resource
# a patch takes the place of the whole list.
_MERGED = frozenset({"apps/v1", "batch/v1"})
# Pods that are too young to count do not speak against what the others show.
_TOO_YOUNG = frozenset({Reason.NO_STATISTICS, Reason.NEW_WORKLOAD})


class Unpatched(StrEnum):
    """Why no patch is made for a template, beside the reasons of admission."""

    NO_TEMPLATE = "no-template"
    IMMUTABLE = "immutable-template"
    GENERATED = "generated"
    CUSTOM_RESOURCE = "custom-resource"
    ODD_NAME = "odd-name"


@dataclass(frozen=True, slots=True)
class ContainerSizes:
    """One container of a template: what it states, what it should state, and what that rests on."""

    name: str
    role: ContainerRole
    requests: Amounts
    limits: Amounts
    new_requests: Amounts
    new_limits: Amounts
    evidence: Evidence

    @property
    def changes(self) -> bool:
        """Tell whether anything is to be stated otherwise."""
        return (self.requests, self.limits) != (self.new_requests, self.new_limits)


@dataclass(frozen=True, slots=True)
class TemplateSizes:
    """One workload whose template should change; `pods` of it run or wait. `release` is its label of an instance.

    `others` are the names of the template's containers that are not sized, `injected` those of containers that its pods
    have and the template does not.
    """

    namespace: str
    workload: WorkloadRef
    pods: int
    containers: tuple[ContainerSizes, ...]
    release: str = ""
    api_version: str = "apps/v1"
    others: tuple[str, ...] = ()
    injected: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Tell whether the template should state anything otherwise."""
        return any(one.changes for one in self.containers)

    @property
    def freed(self) -> Resources:
        """What all pods together would request less; negative where they need more."""
        each = NO_RESOURCES
        for one in self.containers:
            each += one.requests.resources - one.new_requests.resources
        return Resources(each.cpu_millicores * self.pods, each.memory_bytes * self.pods)


@dataclass(frozen=True, slots=True)
class LeftTemplate:
    """One workload whose template is left as it is, and why; `detail` is as with the reason elsewhere."""

    namespace: str
    workload: str
    pods: int
    reason: Reason | Unpatched
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TemplateChanges:
    """What templates should state, by namespace and name, and which are left alone, with the `settled` ones."""

    at: datetime
    changed: tuple[TemplateSizes, ...]
    left: tuple[LeftTemplate, ...]
    settled: tuple[TemplateSizes, ...] = ()

    @property
    def freed(self) -> Resources:
        """What would be requested less, all in all."""
        return sum((one.freed for one in self.changed), NO_RESOURCES)


def size_templates(
    snapshot: Snapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    chosen: Iterable[Pod] | None = None,
    stored: StoredOverrides = NO_OVERRIDES,
) -> TemplateChanges:
    """Size the templates of all workloads, or of those of the `chosen` pods, as mode `full` would their pods.

    A template has one size for pods that differ (a StatefulSet's, a DaemonSet's): the largest that one of them needs.
    Where no pod runs, templates of pods that were killed for lack of memory are sized, such as a CronJob's.
    """
    policy = replace(policy, mode=Mode.FULL)
    pods = snapshot.pods if chosen is None else list(chosen)
    killed = killed_workloads(pods, snapshot, with_workload_rows(statistics), now)
    statistics = killed.statistics
    eligibility = Eligibility(snapshot, statistics, stored, policy, now)
    sizing = _Sizing(snapshot, killed, eligibility, policy, NodeIndex(snapshot.known_nodes))
    groups: dict[tuple[str, WorkloadRef | None, str], list[Pod]] = {}
    for pod in [*[one for one in pods if not one.terminal and not one.terminating], *killed.pods]:
        groups.setdefault((pod.namespace, pod.workload, "" if pod.workload else pod.name), []).append(pod)
    found = [sizing.of(pods) for pods in groups.values()]
    sized = [one for one in found if isinstance(one, TemplateSizes)]
    settled = [one for one in sized if not one.changes]
    left = [one for one in found if isinstance(one, LeftTemplate)]
    left += [LeftTemplate(one.namespace, str(one.workload), one.pods, Reason.SETTLED) for one in settled]
    return TemplateChanges(
        now,
        tuple(sorted((one for one in sized if one.changes), key=lambda one: (one.namespace, one.workload))),
        tuple(sorted(left, key=lambda one: (one.namespace, one.workload))),
        tuple(sorted(settled, key=lambda one: (one.namespace, one.workload))),
    )


@dataclass(frozen=True, slots=True)
class _Sizing:
    snapshot: Snapshot
    killed: KilledWorkloads
    eligibility: Eligibility
    policy: Policy
    nodes: NodeIndex

    def of(self, pods: Sequence[Pod]) -> TemplateSizes | LeftTemplate:
        """Size the template of one workload, by its pods."""
        first, running = pods[0], sum(not pod.terminal for pod in pods)

        def left(reason: Reason | Unpatched, detail: str = "") -> LeftTemplate:
            return LeftTemplate(first.namespace, first.workload_name, running, reason, detail)

        if first.workload is None:
            return left(Reason.NO_CONTROLLER)
        workload = self.snapshot.workloads.get((first.namespace, first.workload))
        reason = _why_unpatched(first, workload)
        if workload is None or reason is not None:
            detail = "" if workload is None else str(workload.controller or _kind_and_group(workload))
            return left(reason or Unpatched.NO_TEMPLATE, detail)
        newest: dict[str, Pod] = {}
        for pod in sorted(pods, key=lambda one: (one.created_at.timestamp() if one.created_at else 0.0, one.name)):
            newest[pod.identity] = pod
        templated = [_templated(one, workload, self.snapshot) for one in newest.values()]
        decided = [(pod, self._decided(pod)) for pod in templated if pod.containers]
        if not decided:
            # All pods are of a revision whose containers have other names.
            return left(Reason.NO_STATISTICS, ", ".join(workload.requests or ()))
        leaves = Counter(
            (one.reason, one.detail)
            for _, one in decided
            if isinstance(one, Leave) and one.reason is not Reason.SETTLED
        )
        sized = [
            (pod, one.containers if isinstance(one, Mutate) else spec_targets(pod))
            for pod, one in decided
            if isinstance(one, Mutate) or one.reason is Reason.SETTLED
        ]
        if not sized or any(reason not in _TOO_YOUNG for reason, _ in leaves):
            return left(*leaves.most_common(1)[0][0])
        containers = self._joined(sized)
        names = {one.name for one in containers}
        return TemplateSizes(
            first.namespace,
            first.workload,
            running,
            containers,
            first.labels.get(APP_INSTANCE, ""),
            api_version=workload.api_version,
            others=tuple([name for name in workload.requests or () if name not in names]),
            injected=tuple(sorted({one.name for pod in pods for one in pod.containers if not workload.has(one)})),
        )

    def _decided(self, pod: Pod) -> Mutate | Leave:
        ranges = self.snapshot.limit_ranges.get(pod.namespace, ())
        # Without quotas: what they have left now says nothing of the day on which the change is rolled out.
        return decide_admission(pod, self.eligibility, self.killed.statistics, self.nodes, ranges, self.policy)

    def _joined(self, sized: Sequence[tuple[Pod, Sequence[ContainerTarget]]]) -> tuple[ContainerSizes, ...]:
        """Join what pods of one template need, container by container; pods of older revisions may lack some."""
        containers = {one.name: one for pod, _ in sized for one in pod.sized_containers}
        needed: dict[str, list[tuple[Pod, ContainerTarget]]] = {name: [] for name in containers}
        for pod, of_pod in sized:
            for target in of_pod:
                needed[target.container].append((pod, self._as_known(pod, target, containers[target.container])))
        joined = []
        for name, container in containers.items():
            targets = [target for _, target in needed[name]]
            joined.append(
                ContainerSizes(
                    name,
                    container.role,
                    container.requests,
                    container.limits,
                    _largest([one.requests for one in targets]),
                    _largest([one.limits for one in targets]),
                    self._evidence(name, [pod for pod, _ in needed[name]]),
                )
            )
        return tuple(joined)

    def _as_known(self, pod: Pod, target: ContainerTarget, container: Container) -> ContainerTarget:
        """Return a target without what is not known: a kill alone says nothing of CPU, nor of other containers."""
        taught = self.killed.taught(pod, target.container)
        if taught is None:
            return target
        requests, limits = container.requests, container.limits
        if taught:
            requests = Amounts(requests.cpu_millicores, target.requests.memory_bytes)
            limits = Amounts(limits.cpu_millicores, target.limits.memory_bytes)
        return replace(target, requests=requests, limits=limits)

    def _evidence(self, container: str, pods: Sequence[Pod]) -> Evidence:
        statistics = self.killed.statistics
        known, taught = [], 0
        for pod in pods:
            row = statistics.find(pod.namespace, "", pod.workload, container, pod.identity)
            of_kills = self.killed.taught(pod, container)
            if of_kills is not None:
                taught = max(taught, of_kills)
            elif row is not None:
                known.append(statistics.row(row))
        return evidence_of(known) if known else Evidence(oom_memory_bytes=taught)


def _why_unpatched(pod: Pod, workload: Workload | None) -> Unpatched | None:
    if workload is None or workload.requests is None:
        return Unpatched.NO_TEMPLATE
    if workload.controller is not None:
        return Unpatched.GENERATED
    if workload.ref.kind in _IMMUTABLE and workload.api_version == "batch/v1":
        return Unpatched.IMMUTABLE
    if workload.ref.kind not in _PATCHABLE or workload.api_version not in _MERGED:
        return Unpatched.CUSTOM_RESOURCE
    names = (pod.namespace, workload.ref.name, *(one.name for one in pod.containers))
    return None if all(_NAME.fullmatch(name) for name in names) else Unpatched.ODD_NAME


def _kind_and_group(workload: Workload) -> str:
    group = workload.api_version.rpartition("/")[0]
    return f"{workload.ref.kind} of {group}" if "." in group else workload.ref.kind


def _templated(pod: Pod, workload: Workload, snapshot: Snapshot) -> Pod:
    """Return a pod as the template alone makes it, without what cruise or others have added to it."""
    created = created_anew(pod, snapshot)
    limits: Mapping[str, int] = workload.cpu_limits or {}
    containers = tuple(
        [
            replace(one, limits=Amounts(limits.get(one.name), one.limits.memory_bytes))
            for one in created.containers
            if workload.has(one)
        ]
    )
    annotations = {name: text for name, text in pod.annotations.items() if name not in RECORDS}
    qos = qos_of(containers, pod.pod_requests, pod.pod_limits)
    return replace(created, containers=containers, annotations=annotations, qos=qos)


def _largest(amounts: Sequence[Amounts]) -> Amounts:
    """Return the largest of each resource; none where one of them states none."""
    cpu = [one.cpu_millicores for one in amounts]
    memory = [one.memory_bytes for one in amounts]
    return Amounts(
        None if None in cpu else max(one for one in cpu if one is not None),
        None if None in memory else max(one for one in memory if one is not None),
    )
