"""What each workload's pod template should state: the sizes that admission gives its pods.

Once a template states them, admission leaves its pods unchanged.
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
    combine_evidence,
    find_oom_killed_workloads,
)
from cruise.decisions.usage.estimation import sum_statistics
from cruise.domain.actions import ContainerTarget, ReasonCode
from cruise.domain.annotations import APP_INSTANCE, CRUISE_RECORDS
from cruise.domain.cluster import POD_LEVEL, ClusterSnapshot, Container, ContainerRole, Pod, Workload, WorkloadRef
from cruise.domain.overrides import NO_PAUSED_WORKLOADS, PausedWorkloads
from cruise.domain.pod_resources import compute_qos_class, get_spec_targets
from cruise.domain.policy import Mode, Policy
from cruise.domain.records import ContainerRecommendation, WorkloadRecommendation
from cruise.domain.resources import NO_RESOURCES, Resources, StatedResources
from cruise.domain.usage import StatisticsTable

# Valid names of namespaces and workloads; they are used as file names as well.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
# Kinds with templates that a user writes and can change.
_PATCHABLE = frozenset({"CronJob", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"})
_IMMUTABLE = frozenset({"Job"})
# Patches merge containers by name only in built-in kinds; in a custom resource a patch replaces the list.
_MERGED = frozenset({"apps/v1", "batch/v1"})
# Pods that are too young do not contradict the others.
_TOO_YOUNG = frozenset({ReasonCode.NO_STATISTICS, ReasonCode.NEW_WORKLOAD})


class NoPatchReason(StrEnum):
    """Why no patch is made for a template, in addition to the reasons of admission."""

    NO_TEMPLATE = "no-template"
    IMMUTABLE = "immutable-template"
    GENERATED = "generated"
    CUSTOM_RESOURCE = "custom-resource"
    UNSUPPORTED_NAME = "unsupported-name"


@dataclass(frozen=True, slots=True)
class TemplateContainerSizes:
    """One container of a template: what it states, what it should state, and the evidence."""

    name: str
    role: ContainerRole
    requests: StatedResources
    limits: StatedResources
    new_requests: StatedResources
    new_limits: StatedResources
    evidence: TemplateEvidence

    @property
    def changes(self) -> bool:
        """Return whether the template should state anything else for it."""
        return (self.requests, self.limits) != (self.new_requests, self.new_limits)


@dataclass(frozen=True, slots=True)
class TemplateSizes:
    """One workload with sizes for its template; `pods` of it are running or pending. `release` is its instance label.

    `others` are the template's containers that are not sized, `injected` the pods' containers that it does not have.
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
        """Return whether the template should state anything else."""
        return any(one.changes for one in self.containers)

    @property
    def reclaimable(self) -> Resources:
        """What all pods together would request less; negative if they need more."""
        each = NO_RESOURCES
        for one in self.containers:
            each += one.requests.resources - one.new_requests.resources
        return Resources(each.cpu_millicores * self.pods, each.memory_bytes * self.pods)


@dataclass(frozen=True, slots=True)
class SkippedTemplate:
    """One workload whose template is not changed, and why."""

    namespace: str
    workload: str
    pods: int
    reason: ReasonCode | NoPatchReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TemplateChanges:
    """What templates should state, by namespace and name, which are skipped, and which need no change."""

    at: datetime
    changed: tuple[TemplateSizes, ...]
    skipped: tuple[SkippedTemplate, ...]
    unchanged: tuple[TemplateSizes, ...] = ()

    @property
    def reclaimable(self) -> Resources:
        """What would be requested less in total."""
        return sum((one.reclaimable for one in self.changed), NO_RESOURCES)


def size_templates(
    snapshot: ClusterSnapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    selected: Iterable[Pod] | None = None,
    paused_workloads: PausedWorkloads = NO_PAUSED_WORKLOADS,
) -> TemplateChanges:
    """Size the templates of all workloads, or of those of the `selected` pods, as mode `full` sizes their pods.

    A template has one size for different pods (of a StatefulSet or DaemonSet): the largest that one of them needs.
    Without running pods, only templates of pods that were killed for lack of memory are sized, such as a CronJob's.
    """
    policy = replace(policy, mode=Mode.FULL)
    pods = snapshot.pods if selected is None else list(selected)
    killed = find_oom_killed_workloads(pods, snapshot, add_workload_rows(statistics), now)
    statistics = killed.statistics
    eligibility = Eligibility(snapshot, statistics, paused_workloads, policy, now)
    sizing = _TemplateSizing(snapshot, killed, eligibility, policy, NodeIndex(snapshot.known_nodes))
    pods_by_workload: dict[tuple[str, WorkloadRef | None, str], list[Pod]] = {}
    for pod in [*[one for one in pods if not one.is_finished and not one.terminating], *killed.pods]:
        pods_by_workload.setdefault((pod.namespace, pod.workload, "" if pod.workload else pod.name), []).append(pod)
    results = [sizing.size(pods) for pods in pods_by_workload.values()]
    sized = [one for one in results if isinstance(one, TemplateSizes)]
    without_change = [one for one in sized if not one.changes]
    skipped = [one for one in results if isinstance(one, SkippedTemplate)]
    skipped += [
        SkippedTemplate(one.namespace, str(one.workload), one.pods, ReasonCode.NO_CHANGE_NEEDED)
        for one in without_change
    ]
    return TemplateChanges(
        now,
        tuple(sorted((one for one in sized if one.changes), key=lambda one: (one.namespace, one.workload))),
        tuple(sorted(skipped, key=lambda one: (one.namespace, one.workload))),
        tuple(sorted(without_change, key=lambda one: (one.namespace, one.workload))),
    )


@dataclass(frozen=True, slots=True)
class _TemplateSizing:
    snapshot: ClusterSnapshot
    killed: OomKilledWorkloads
    eligibility: Eligibility
    policy: Policy
    nodes: NodeIndex

    def size(self, pods: Sequence[Pod]) -> TemplateSizes | SkippedTemplate:
        """Size the template of one workload by its pods."""
        first_pod, running = pods[0], sum(not pod.is_finished for pod in pods)

        def skip(reason: ReasonCode | NoPatchReason, detail: str = "") -> SkippedTemplate:
            return SkippedTemplate(first_pod.namespace, first_pod.workload_name, running, reason, detail)

        if first_pod.workload is None:
            return skip(ReasonCode.NO_CONTROLLER)
        workload = self.snapshot.workloads.get((first_pod.namespace, first_pod.workload))
        reason = _explain_no_patch(first_pod, workload)
        if workload is None or reason is not None:
            detail = "" if workload is None else str(workload.controller or _describe_kind(workload))
            return skip(reason or NoPatchReason.NO_TEMPLATE, detail)
        newest_by_identity: dict[str, Pod] = {}
        for pod in sorted(pods, key=lambda one: (one.created_at.timestamp() if one.created_at else 0.0, one.name)):
            newest_by_identity[pod.identity] = pod
        templated = [_create_from_template(one, workload, self.snapshot) for one in newest_by_identity.values()]
        decisions = [(pod, self._decide(pod)) for pod in templated if pod.containers]
        if not decisions:
            # All pods belong to a revision with other container names.
            return skip(ReasonCode.NO_STATISTICS, ", ".join(workload.requests or ()))
        unchanged = Counter(
            (one.reason, one.detail)
            for _, one in decisions
            if isinstance(one, LeaveUnchanged) and one.reason is not ReasonCode.NO_CHANGE_NEEDED
        )
        sized = [
            (pod, one.containers if isinstance(one, MutatePod) else get_spec_targets(pod))
            for pod, one in decisions
            if isinstance(one, MutatePod) or one.reason is ReasonCode.NO_CHANGE_NEEDED
        ]
        if not sized or any(reason not in _TOO_YOUNG for reason, _ in unchanged):
            return skip(*unchanged.most_common(1)[0][0])
        containers = self._combine_by_container(sized)
        names = {one.name for one in containers}
        return TemplateSizes(
            first_pod.namespace,
            first_pod.workload,
            running,
            containers,
            first_pod.labels.get(APP_INSTANCE, ""),
            api_version=workload.api_version,
            others=tuple([name for name in workload.requests or () if name not in names]),
            injected=tuple(
                sorted({one.name for pod in pods for one in pod.containers if not workload.has_container(one)})
            ),
        )

    def _decide(self, pod: Pod) -> MutatePod | LeaveUnchanged:
        ranges = self.snapshot.limit_ranges.get(pod.namespace, ())
        # Without quotas: what they have left now is not what they have left when the change is rolled out.
        return decide_admission(
            pod,
            self.eligibility,
            self.killed.statistics,
            self.nodes,
            ranges,
            self.policy,
            boosts_startup=False,
        )

    def _combine_by_container(
        self, sized: Sequence[tuple[Pod, Sequence[ContainerTarget]]]
    ) -> tuple[TemplateContainerSizes, ...]:
        """Combine the needs of pods of one template by container; pods of older revisions may lack some."""
        targeted = {target.container for _, targets in sized for target in targets}
        containers = {one.name: one for pod, _ in sized for one in pod.resizable_parts if one.name in targeted}
        targets_by_container: dict[str, list[tuple[Pod, ContainerTarget]]] = {name: [] for name in containers}
        for pod, pod_targets in sized:
            for target in pod_targets:
                targets_by_container[target.container].append(
                    (pod, self._drop_unknown(pod, target, containers[target.container]))
                )
        joined = []
        for name, container in containers.items():
            if not targets_by_container[name]:
                # It states no resources next to pod-level ones.
                continue
            targets = [target for _, target in targets_by_container[name]]
            joined.append(
                TemplateContainerSizes(
                    name,
                    container.role,
                    container.requests,
                    container.limits,
                    _max_stated([one.requests for one in targets]),
                    _max_stated([one.limits for one in targets]),
                    self._build_evidence(name, [pod for pod, _ in targets_by_container[name]]),
                )
            )
        return tuple(joined)

    def _drop_unknown(self, pod: Pod, target: ContainerTarget, container: Container) -> ContainerTarget:
        """Return a target without what is unknown: a kill shows nothing about CPU, nor about other containers."""
        oom_memory = self.killed.get_oom_memory(pod, target.container)
        if oom_memory is None:
            return target
        requests, limits = container.requests, container.limits
        if oom_memory:
            requests = StatedResources(requests.cpu_millicores, target.requests.memory_bytes)
            limits = StatedResources(limits.cpu_millicores, target.limits.memory_bytes)
        return replace(target, requests=requests, limits=limits)

    def _build_evidence(self, container: str, pods: Sequence[Pod]) -> TemplateEvidence:
        statistics = self.killed.statistics
        known, oom_memory = [], 0
        if container == POD_LEVEL:
            return self._build_pod_level_evidence(pods)
        for pod in pods:
            row = statistics.find_row(pod.namespace, "", pod.workload, container, pod.identity)
            memory_of_kills = self.killed.get_oom_memory(pod, container)
            if memory_of_kills is not None:
                oom_memory = max(oom_memory, memory_of_kills)
            elif row is not None:
                known.append(statistics.get_row(row))
        return combine_evidence(known) if known else TemplateEvidence(oom_memory_bytes=oom_memory)

    def _build_pod_level_evidence(self, pods: Sequence[Pod]) -> TemplateEvidence:
        """Combine the evidence of all containers for the pod-level resources of a template."""
        find, known = self.killed.statistics.find_row, []
        for pod in pods:
            rows = [find(pod.namespace, "", pod.workload, one.name, pod.identity) for one in pod.sized_containers]
            if None not in rows:
                known.append(sum_statistics([self.killed.statistics.get_row(row) for row in rows if row is not None]))
        return combine_evidence(known) if known else TemplateEvidence()


def _explain_no_patch(pod: Pod, workload: Workload | None) -> NoPatchReason | None:
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


def _describe_kind(workload: Workload) -> str:
    group = workload.api_version.rpartition("/")[0]
    return f"{workload.ref.kind} of {group}" if "." in group else workload.ref.kind


def _create_from_template(pod: Pod, workload: Workload, snapshot: ClusterSnapshot) -> Pod:
    """Return a pod as the template alone creates it, without what cruise or others added."""
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
    qos = compute_qos_class(containers, pod.pod_level)
    return replace(created, containers=containers, annotations=annotations, qos=qos)


def _max_stated(amounts: Sequence[StatedResources]) -> StatedResources:
    """Return the largest of each resource; none if one of them states none."""
    cpu = [one.cpu_millicores for one in amounts]
    memory = [one.memory_bytes for one in amounts]
    return StatedResources(
        None if None in cpu else max(one for one in cpu if one is not None),
        None if None in memory else max(one for one in memory if one is not None),
    )


# With a shorter history, peaks of other days are missing.
_CONFIDENT_AFTER = timedelta(days=1)


def build_recommendations(
    sizes: Iterable[TemplateSizes], snapshot: ClusterSnapshot, now: datetime
) -> Iterator[WorkloadRecommendation]:
    """Yield the recommendations to publish as VerticalPodAutoscalers, except for workloads that another one targets."""
    targets_of_others = {
        (one.namespace, one.target) for one in snapshot.vertical_autoscalers if one.target and not one.is_published
    }
    names_in_use = {(one.namespace, one.name) for one in snapshot.vertical_autoscalers if not one.is_published}
    for one in sizes:
        workload = snapshot.workloads.get((one.namespace, one.workload))
        if workload is None or not workload.uid or (one.namespace, one.workload) in targets_of_others:
            continue
        since = [container.evidence.history_since for container in one.containers]
        confident = all(since) and max(since) <= (now - _CONFIDENT_AFTER).timestamp()
        containers = tuple([_build_container_recommendation(container) for container in one.containers])
        found = WorkloadRecommendation(
            one.namespace, one.workload, workload.uid, containers, confident, workload.api_version
        )
        if (found.namespace, found.name) not in names_in_use:
            yield found


def select_changed_recommendations(
    wanted: Iterable[WorkloadRecommendation], published: Mapping[tuple[str, str], WorkloadRecommendation], maximum: int
) -> list[WorkloadRecommendation]:
    """Return at most `maximum` recommendations that differ enough from the published ones, unpublished ones first."""
    changed = [one for one in wanted if one.differs(published.get((one.namespace, one.name)))]
    return sorted(changed, key=lambda one: ((one.namespace, one.name) in published, one.namespace, one.name))[:maximum]


def _build_container_recommendation(sizes: TemplateContainerSizes) -> ContainerRecommendation:
    evidence, target = sizes.evidence, sizes.new_requests.resources
    usual = Resources(evidence.cpu_base_millicores, evidence.memory_base_bytes)
    peak_memory = max(evidence.memory_peak_bytes, evidence.oom_memory_bytes)
    largest = Resources(evidence.cpu_peak_millicores, max(peak_memory, evidence.memory_7d_max_bytes))
    return ContainerRecommendation(
        sizes.name,
        lower=usual.min_with(target),
        target=target,
        upper=largest.max_with(target),
        uncapped=Resources(evidence.cpu_peak_millicores, peak_memory),
    )
