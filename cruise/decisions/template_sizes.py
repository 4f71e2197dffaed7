"""What each workload's pod template should state: the sizes that admission gives its pods.

Once a template states them, admission leaves its pods as they are.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.replacement_pods import recreate_from_template
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.template_evidence import (
    OomKilledWorkloads,
    TemplateEvidence,
    add_workload_rows,
    find_oom_killed_workloads,
    join_evidence,
)
from cruise.domain.actions import ContainerTarget, ReasonCode
from cruise.domain.annotations import APP_INSTANCE, CRUISE_RECORDS
from cruise.domain.cluster import ClusterSnapshot, Container, ContainerRole, Pod, Workload, WorkloadRef
from cruise.domain.overrides import StoredOverrides
from cruise.domain.pod_resources import compute_qos_class, get_spec_targets
from cruise.domain.policy import Mode, Policy
from cruise.domain.records import ContainerRecommendation, WorkloadRecommendation
from cruise.domain.resources import NO_RESOURCES, Resources, StatedResources
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
_TOO_YOUNG = frozenset({ReasonCode.NO_STATISTICS, ReasonCode.NEW_WORKLOAD})


class NoPatchReason(StrEnum):
    """Why no patch is made for a template, beside the reasons of admission."""

    NO_TEMPLATE = "no-template"
    IMMUTABLE = "immutable-template"
    GENERATED = "generated"
    CUSTOM_RESOURCE = "custom-resource"
    UNSUPPORTED_NAME = "unsupported-name"


@dataclass(frozen=True, slots=True)
class TemplateContainerSizes:
    """One container of a template: what it states, what it should state, and what that rests on."""

    name: str
    role: ContainerRole
    requests: StatedResources
    limits: StatedResources
    new_requests: StatedResources
    new_limits: StatedResources
    evidence: TemplateEvidence

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
    containers: tuple[TemplateContainerSizes, ...]
    release: str = ""
    api_version: str = "apps/v1"
    others: tuple[str, ...] = ()
    injected: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Tell whether the template should state anything otherwise."""
        return any(one.changes for one in self.containers)

    @property
    def reclaimable(self) -> Resources:
        """What all pods together would request less; negative where they need more."""
        each = NO_RESOURCES
        for one in self.containers:
            each += one.requests.resources - one.new_requests.resources
        return Resources(each.cpu_millicores * self.pods, each.memory_bytes * self.pods)


@dataclass(frozen=True, slots=True)
class SkippedTemplate:
    """One workload whose template is left as it is, and why; `detail` is as with the reason elsewhere."""

    namespace: str
    workload: str
    pods: int
    reason: ReasonCode | NoPatchReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TemplateChanges:
    """What templates should state, by namespace and name, and which are left alone, with the `settled` ones."""

    at: datetime
    changed: tuple[TemplateSizes, ...]
    skipped: tuple[SkippedTemplate, ...]
    unchanged: tuple[TemplateSizes, ...] = ()

    @property
    def reclaimable(self) -> Resources:
        """What would be requested less, all in all."""
        return sum((one.reclaimable for one in self.changed), NO_RESOURCES)


def size_templates(
    snapshot: ClusterSnapshot,
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
    killed = find_oom_killed_workloads(pods, snapshot, add_workload_rows(statistics), now)
    statistics = killed.statistics
    eligibility = Eligibility(snapshot, statistics, stored, policy, now)
    sizing = _TemplateSizing(snapshot, killed, eligibility, policy, NodeIndex(snapshot.known_nodes))
    groups: dict[tuple[str, WorkloadRef | None, str], list[Pod]] = {}
    for pod in [*[one for one in pods if not one.is_finished and not one.terminating], *killed.pods]:
        groups.setdefault((pod.namespace, pod.workload, "" if pod.workload else pod.name), []).append(pod)
    found = [sizing.size(pods) for pods in groups.values()]
    sized = [one for one in found if isinstance(one, TemplateSizes)]
    settled = [one for one in sized if not one.changes]
    left = [one for one in found if isinstance(one, SkippedTemplate)]
    left += [
        SkippedTemplate(one.namespace, str(one.workload), one.pods, ReasonCode.NO_CHANGE_NEEDED) for one in settled
    ]
    return TemplateChanges(
        now,
        tuple(sorted((one for one in sized if one.changes), key=lambda one: (one.namespace, one.workload))),
        tuple(sorted(left, key=lambda one: (one.namespace, one.workload))),
        tuple(sorted(settled, key=lambda one: (one.namespace, one.workload))),
    )


@dataclass(frozen=True, slots=True)
class _TemplateSizing:
    snapshot: ClusterSnapshot
    killed: OomKilledWorkloads
    eligibility: Eligibility
    policy: Policy
    nodes: NodeIndex

    def size(self, pods: Sequence[Pod]) -> TemplateSizes | SkippedTemplate:
        """Size the template of one workload, by its pods."""
        first, running = pods[0], sum(not pod.is_finished for pod in pods)

        def left(reason: ReasonCode | NoPatchReason, detail: str = "") -> SkippedTemplate:
            return SkippedTemplate(first.namespace, first.workload_name, running, reason, detail)

        if first.workload is None:
            return left(ReasonCode.NO_CONTROLLER)
        workload = self.snapshot.workloads.get((first.namespace, first.workload))
        reason = _why_unpatched(first, workload)
        if workload is None or reason is not None:
            detail = "" if workload is None else str(workload.controller or _kind_and_group(workload))
            return left(reason or NoPatchReason.NO_TEMPLATE, detail)
        newest: dict[str, Pod] = {}
        for pod in sorted(pods, key=lambda one: (one.created_at.timestamp() if one.created_at else 0.0, one.name)):
            newest[pod.identity] = pod
        templated = [_templated(one, workload, self.snapshot) for one in newest.values()]
        decided = [(pod, self._decided(pod)) for pod in templated if pod.containers]
        if not decided:
            # All pods are of a revision whose containers have other names.
            return left(ReasonCode.NO_STATISTICS, ", ".join(workload.requests or ()))
        leaves = Counter(
            (one.reason, one.detail)
            for _, one in decided
            if isinstance(one, LeaveUnchanged) and one.reason is not ReasonCode.NO_CHANGE_NEEDED
        )
        sized = [
            (pod, one.containers if isinstance(one, MutatePod) else get_spec_targets(pod))
            for pod, one in decided
            if isinstance(one, MutatePod) or one.reason is ReasonCode.NO_CHANGE_NEEDED
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
            injected=tuple(
                sorted({one.name for pod in pods for one in pod.containers if not workload.has_container(one)})
            ),
        )

    def _decided(self, pod: Pod) -> MutatePod | LeaveUnchanged:
        ranges = self.snapshot.limit_ranges.get(pod.namespace, ())
        # Without quotas: what they have left now says nothing of the day on which the change is rolled out.
        return decide_admission(pod, self.eligibility, self.killed.statistics, self.nodes, ranges, self.policy)

    def _joined(self, sized: Sequence[tuple[Pod, Sequence[ContainerTarget]]]) -> tuple[TemplateContainerSizes, ...]:
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
                TemplateContainerSizes(
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
        taught = self.killed.get_raised_statistics(pod, target.container)
        if taught is None:
            return target
        requests, limits = container.requests, container.limits
        if taught:
            requests = StatedResources(requests.cpu_millicores, target.requests.memory_bytes)
            limits = StatedResources(limits.cpu_millicores, target.limits.memory_bytes)
        return replace(target, requests=requests, limits=limits)

    def _evidence(self, container: str, pods: Sequence[Pod]) -> TemplateEvidence:
        statistics = self.killed.statistics
        known, taught = [], 0
        for pod in pods:
            row = statistics.find(pod.namespace, "", pod.workload, container, pod.identity)
            of_kills = self.killed.get_raised_statistics(pod, container)
            if of_kills is not None:
                taught = max(taught, of_kills)
            elif row is not None:
                known.append(statistics.row(row))
        return join_evidence(known) if known else TemplateEvidence(oom_memory_bytes=taught)


def _why_unpatched(pod: Pod, workload: Workload | None) -> NoPatchReason | None:
    if workload is None or workload.requests is None:
        return NoPatchReason.NO_TEMPLATE
    if workload.controller is not None:
        return NoPatchReason.GENERATED
    if workload.ref.kind in _IMMUTABLE and workload.api_version == "batch/v1":
        return NoPatchReason.IMMUTABLE
    if workload.ref.kind not in _PATCHABLE or workload.api_version not in _MERGED:
        return NoPatchReason.CUSTOM_RESOURCE
    names = (pod.namespace, workload.ref.name, *(one.name for one in pod.containers))
    return None if all(_NAME.fullmatch(name) for name in names) else NoPatchReason.UNSUPPORTED_NAME


def _kind_and_group(workload: Workload) -> str:
    group = workload.api_version.rpartition("/")[0]
    return f"{workload.ref.kind} of {group}" if "." in group else workload.ref.kind


def _templated(pod: Pod, workload: Workload, snapshot: ClusterSnapshot) -> Pod:
    """Return a pod as the template alone makes it, without what cruise or others have added to it."""
    created = recreate_from_template(pod, snapshot)
    limits: Mapping[str, int] = workload.cpu_limits or {}
    containers = tuple(
        [
            replace(one, limits=StatedResources(limits.get(one.name), one.limits.memory_bytes))
            for one in created.containers
            if workload.has_container(one)
        ]
    )
    annotations = {name: text for name, text in pod.annotations.items() if name not in CRUISE_RECORDS}
    qos = compute_qos_class(containers, pod.pod_requests, pod.pod_limits)
    return replace(created, containers=containers, annotations=annotations, qos=qos)


def _largest(amounts: Sequence[StatedResources]) -> StatedResources:
    """Return the largest of each resource; none where one of them states none."""
    cpu = [one.cpu_millicores for one in amounts]
    memory = [one.memory_bytes for one in amounts]
    return StatedResources(
        None if None in cpu else max(one for one in cpu if one is not None),
        None if None in memory else max(one for one in memory if one is not None),
    )


# What a workload's sizes are as a VerticalPodAutoscaler's recommendation: a target between two bounds.

# With less history peaks of other days are missing.
_CONFIDENT_AFTER = timedelta(days=1)


def build_recommendations(
    sizes: Iterable[TemplateSizes], snapshot: ClusterSnapshot, now: datetime
) -> Iterator[WorkloadRecommendation]:
    """Yield what is to be published: nothing about a workload that has a VerticalPodAutoscaler of somebody else's."""
    theirs = {
        (one.namespace, one.target) for one in snapshot.vertical_autoscalers if one.target and not one.is_published
    }
    taken = {(one.namespace, one.name) for one in snapshot.vertical_autoscalers if not one.is_published}
    for one in sizes:
        workload = snapshot.workloads.get((one.namespace, one.workload))
        if workload is None or not workload.uid or (one.namespace, one.workload) in theirs:
            continue
        since = [container.evidence.history_since for container in one.containers]
        confident = all(since) and max(since) <= (now - _CONFIDENT_AFTER).timestamp()
        containers = tuple([_of_container(container) for container in one.containers])
        found = WorkloadRecommendation(
            one.namespace, one.workload, workload.uid, containers, confident, workload.api_version
        )
        if (found.namespace, found.name) not in taken:
            yield found


def select_changed_recommendations(
    wanted: Iterable[WorkloadRecommendation], published: Mapping[tuple[str, str], WorkloadRecommendation], most: int
) -> list[WorkloadRecommendation]:
    """Return what differs enough from what was published, those first that never were; no more than `most`."""
    changed = [one for one in wanted if one.differs(published.get((one.namespace, one.name)))]
    return sorted(changed, key=lambda one: ((one.namespace, one.name) in published, one.namespace, one.name))[:most]


def _of_container(sizes: TemplateContainerSizes) -> ContainerRecommendation:
    evidence, target = sizes.evidence, sizes.new_requests.resources
    usual = Resources(evidence.cpu_base_millicores, evidence.memory_base_bytes)
    peak_memory = max(evidence.memory_peak_bytes, evidence.oom_memory_bytes)
    largest = Resources(evidence.cpu_peak_millicores, max(peak_memory, evidence.memory_7d_max_bytes))
    return ContainerRecommendation(
        sizes.name,
        lower=usual.at_most(target),
        target=target,
        upper=largest.at_least(target),
        uncapped=Resources(evidence.cpu_peak_millicores, peak_memory),
    )
