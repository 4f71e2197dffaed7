"""The pages Policies and one policy of a workload, a namespace or the cluster, with what-if runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, HTTPException, Request, Response

from cruise.decisions.pod_policy.policy_objects import PolicyIndex, find_written_policy
from cruise.domain.annotations import OverrideSource, UnreadableAnnotations
from cruise.domain.cluster import ClusterSnapshot, Pod, WorkloadRef
from cruise.domain.overrides import (
    PausedWorkloads,
    ResolvedOverrides,
    SettingSource,
    format_settings,
    parse_overrides,
    resolve_overrides,
)
from cruise.domain.policy import Mode, Policy
from cruise.domain.users import WhatIfComparison, WhatIfRun, WhatIfStage
from cruise.domain.vpa_overrides import read_vpa_overrides
from cruise.domain.written_policies import PolicyScope
from cruise.interfaces.backtest.comparison import METRIC_NAMES, format_interval, format_metric, format_metric_difference
from cruise.interfaces.dashboard.forms import SETTING_FIELD_PREFIX, get_rejected_form
from cruise.interfaces.dashboard.layout import Dashboard, MenuEntry
from cruise.interfaces.dashboard.policy_form import build_policy_form
from cruise.interfaces.http.policies import build_policy_entry, list_visible_policies
from cruise.interfaces.http.user_actions import list_paused_workloads
from cruise.interfaces.http.view import (
    KindParameter,
    NamespaceParameter,
    NamespaceVisibility,
    VisibilityDependency,
    WhatIfPort,
    WorkloadNameParameter,
    wait_for_store,
)


@dataclass(frozen=True, slots=True)
class WhatIfRow:
    """One metric of the current and the proposed settings; `better` is None if it does not change."""

    title: str
    current: str
    proposed: str
    change: str
    interval: str
    better: bool | None


@dataclass(frozen=True, slots=True)
class WhatIfPanel:
    """The what-if run of a page's own settings, or whether another one is running."""

    is_possible: bool
    own_run: WhatIfRun | None = None
    rows: Sequence[WhatIfRow] = ()
    other_run_active: bool = False


def build_what_if_panel(
    runs: WhatIfPort | None, namespace: str | None = None, workload: WorkloadRef | None = None
) -> WhatIfPanel:
    """Return the panel of a workload's page, or of the cluster's without a workload."""
    if runs is None:
        return WhatIfPanel(is_possible=False)
    last = runs.get_last()
    if last is None:
        return WhatIfPanel(is_possible=True)
    if (last.proposal.namespace, last.proposal.workload) != (namespace, workload):
        return WhatIfPanel(is_possible=True, other_run_active=last.stage is WhatIfStage.RUNNING)
    return WhatIfPanel(
        is_possible=True, own_run=last, rows=() if last.comparison is None else build_what_if_rows(last.comparison)
    )


def build_what_if_rows(comparison: WhatIfComparison) -> Sequence[WhatIfRow]:
    """Return a row for each metric; less is better for all of them."""
    return [
        WhatIfRow(
            METRIC_NAMES[metric],
            format_metric(metric, values.reference),
            format_metric(metric, values.current),
            format_metric_difference(metric, values.delta),
            format_interval(metric, values),
            None if format_metric_difference(metric, values.delta) == "0" else values.delta < 0,
        )
        for metric, values in comparison.figures.items()
    ]


POLICIES_PAGE = MenuEntry("policies", "Policies", "/policies")
# A replay has its own mode and pass interval.
_NOT_REPLAYABLE = frozenset({"mode", "pass_interval"})


@dataclass(frozen=True, slots=True)
class StatedOverrides:
    """The overrides of one namespace or workload; `error` names an annotation that cannot be read."""

    namespace: str
    workload: str
    settings: Mapping[str, str]
    error: str = ""


@dataclass(frozen=True, slots=True)
class NamespaceSetting:
    """A setting that is stated for `workloads` of a namespace; for `effective` of them it takes effect."""

    source: SettingSource
    setting: str
    value: str
    workloads: Sequence[str]
    effective: int


def create_policies_pages(dashboard: Dashboard) -> APIRouter:
    """Return the routes of the Policies page and of one workload's policy."""
    routes = APIRouter(prefix="/policies", include_in_schema=False, route_class=dashboard.create_route_class())
    view = dashboard.view

    @routes.get("")
    async def policies(request: Request, visibility: VisibilityDependency) -> Response:
        snapshot = await view.snapshot()
        namespaces = [*snapshot.namespace_annotations, *(namespace for namespace, _ in snapshot.workloads)]
        visible = await visibility.get_visible_namespaces(namespaces)
        cluster_settings = list_main_settings(view.policy)
        return dashboard.render_page(
            request,
            "policies.html.j2",
            page=POLICIES_PAGE,
            cluster_settings=cluster_settings,
            panel=build_what_if_panel(view.what_if_runs),
            rejected=get_rejected_form(request),
            replayable=[name for name, _ in cluster_settings if name not in _NOT_REPLAYABLE],
            field_prefix=SETTING_FIELD_PREFIX,
            excluded=sorted(view.policy.excluded_namespaces),
            included=sorted(view.policy.included_namespaces),
            policy_objects=[build_policy_entry(one) for one in await list_visible_policies(snapshot, visibility)],
            paused_workloads=await list_paused_workloads(view, visibility),
            annotated=[
                one for one in list_annotation_overrides(snapshot) if visible is None or one.namespace in visible
            ],
        )

    @routes.get("/{namespace}/{kind}/{name}")
    async def policy(
        request: Request,
        visibility: VisibilityDependency,
        namespace: NamespaceParameter,
        kind: KindParameter,
        name: WorkloadNameParameter,
    ) -> Response:
        await visibility.require_access(namespace)
        workload = WorkloadRef(kind, name)
        snapshot = await view.snapshot()
        paused_workloads = await wait_for_store(view.store.read_paused_workloads())
        pods = [pod for pod in snapshot.pods if (pod.namespace, pod.workload) == (namespace, workload)]
        scope = PolicyScope(namespace, workload)
        is_known = bool(pods) or (namespace, workload) in snapshot.workloads
        if not is_known and find_written_policy(snapshot.rightsizing_policies, scope) is None:
            raise HTTPException(404, f"there is no {workload} in {namespace}, and it has no policy")
        resolved = _OverrideResolver(snapshot, paused_workloads, view.policy.mode).resolve(
            pods[0] if pods else None, namespace, workload
        )
        effective = resolved.effective_policy
        panel = build_what_if_panel(view.what_if_runs, namespace, workload)
        previewed = panel.own_run.proposal.settings if panel.own_run is not None else None
        return dashboard.render_page(
            request,
            "policy.html.j2",
            page=POLICIES_PAGE,
            pods=len(pods),
            statements=resolved.statements,
            error=effective.detail if isinstance(effective, UnreadableAnnotations) else "",
            mode=effective.mode.label if not isinstance(effective, UnreadableAnnotations) else "unreadable",
            panel=panel,
            paused_since=paused_workloads.get((namespace, workload)),
            form=await build_policy_form(view, request, visibility, snapshot, scope, previewed),
        )

    @routes.get("/namespaces/{namespace}")
    async def namespace_policy(
        request: Request, visibility: VisibilityDependency, namespace: NamespaceParameter
    ) -> Response:
        snapshot = await view.snapshot()
        known = {*snapshot.storage_and_namespaces.namespace_labels, *(pod.namespace for pod in snapshot.pods)}
        scope = PolicyScope(namespace)
        if namespace not in known and find_written_policy(snapshot.rightsizing_policies, scope) is None:
            raise HTTPException(404, f"there is no namespace {namespace}, and it has no policy")
        return await render_scope(request, visibility, snapshot, scope)

    @routes.get("/namespaces")
    async def cluster_policy(request: Request, visibility: VisibilityDependency) -> Response:
        return await render_scope(request, visibility, await view.snapshot(), PolicyScope())

    async def render_scope(
        request: Request, visibility: NamespaceVisibility, snapshot: ClusterSnapshot, scope: PolicyScope
    ) -> Response:
        await visibility.require_access(scope.namespace)
        form = await build_policy_form(view, request, visibility, snapshot, scope)
        return dashboard.render_page(request, "policy.html.j2", page=POLICIES_PAGE, form=form)

    return routes


def list_main_settings(policy: Policy) -> Sequence[tuple[str, str]]:
    """Return the names and values of the settings that users look up most often."""
    minutes = policy.pass_interval.total_seconds() / 60
    return [
        ("mode", policy.mode.label),
        ("rules", policy.rules.name),
        ("pass_interval", f"{minutes:g}m"),
        ("max_age", f"{policy.max_age.total_seconds() / 60:g}m"),
        ("headroom", policy.headroom),
        ("cpu_risk", f"{policy.cpu_risk:g}"),
        ("memory_risk", f"{policy.memory_risk:g}"),
        ("resizes_per_container_day", f"{policy.resizes_per_container_day:g}"),
        ("max_evictions_per_node", str(policy.max_evictions_per_node)),
        ("max_evictions_per_workload", str(policy.max_evictions_per_workload)),
        ("max_evictions_per_hour", str(policy.max_evictions_per_hour)),
        ("guaranteed", policy.guaranteed.value),
        ("best_effort", policy.best_effort.value),
        ("hpa", policy.hpa.value),
        ("startup", policy.startup.value),
        ("memory_limits", policy.memory_limits.value),
        ("cpu_limits", policy.cpu_limits.value),
        ("memory_limit_factor", f"{policy.memory_limit_factor:g}"),
        ("memory_limit_ceiling", f"{policy.memory_limit_ceiling:g}"),
        ("oom_reaction", policy.oom_reaction.value),
    ]


def list_annotation_overrides(snapshot: ClusterSnapshot) -> Sequence[StatedOverrides]:
    """Return the overrides in annotations of namespaces and workloads, without those of pod templates."""
    annotated = [(namespace, "", annotations) for namespace, annotations in snapshot.namespace_annotations.items()]
    annotated += [(namespace, str(ref), one.annotations) for (namespace, ref), one in snapshot.workloads.items()]
    overrides = []
    for namespace, workload, annotations in sorted(annotated, key=lambda item: item[:2]):
        parsed = parse_overrides(annotations)
        if isinstance(parsed, UnreadableAnnotations):
            overrides.append(StatedOverrides(namespace, workload, {}, parsed.detail))
        elif settings := format_settings(parsed):
            overrides.append(StatedOverrides(namespace, workload, settings))
    return overrides


def list_namespace_settings(
    snapshot: ClusterSnapshot, paused_workloads: PausedWorkloads, namespace: str, mode: Mode
) -> Sequence[NamespaceSetting]:
    """Return all settings that apply to workloads of a namespace, from whatever source, the widest source first."""
    on_nodes = [pod for pod in snapshot.pods if pod.node is not None and not pod.is_finished]
    pods = {pod.workload: pod for pod in on_nodes if pod.namespace == namespace}
    resolver = _OverrideResolver(snapshot, paused_workloads, mode)
    found: dict[tuple[SettingSource, str, str], tuple[set[str], set[str]]] = {}
    for ref, pod in pods.items():
        if ref is None:
            continue
        for one in resolver.resolve(pod, namespace, ref).statements:
            # Templates are many and have no names.
            source = one.source if one.source.name else SettingSource(one.source.setter)
            stated, effective = found.setdefault((source, one.setting, one.value), (set(), set()))
            stated.add(str(ref))
            if one.is_effective:
                effective.add(str(ref))
    order = list(OverrideSource)
    return sorted(
        (
            NamespaceSetting(source, setting, value, sorted(stated), len(effective))
            for (source, setting, value), (stated, effective) in found.items()
        ),
        key=lambda one: (-order.index(one.source.setter), -len(one.workloads), one.source.name, one.setting),
    )


class _OverrideResolver:
    """Resolves the overrides of workloads of one snapshot."""

    def __init__(self, snapshot: ClusterSnapshot, paused_workloads: PausedWorkloads, mode: Mode) -> None:
        self._snapshot, self._paused_workloads, self._mode = snapshot, paused_workloads, mode
        self._policies, self._vertical = PolicyIndex(snapshot), read_vpa_overrides(snapshot)

    def resolve(self, pod: Pod | None, namespace: str, workload: WorkloadRef) -> ResolvedOverrides:
        """Resolve the overrides of a pod, or of a workload without pods."""
        annotations, labels = ({}, {}) if pod is None else (pod.annotations, pod.labels)
        policies = self._policies.find(namespace, workload, labels).layers
        return resolve_overrides(
            annotations,
            namespace,
            workload,
            self._snapshot,
            self._paused_workloads,
            self._mode,
            self._vertical,
            policies,
        )
