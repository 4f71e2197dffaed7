"""What applies where, and from where: the cluster's settings, overrides of namespaces and workloads, and their form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, HTTPException, Request, Response

from cruise.domain.annotations import OVERRIDES, Overrides, UnreadableAnnotations
from cruise.domain.cluster import ClusterSnapshot, Pod, WorkloadRef
from cruise.domain.overrides import (
    ResolvedOverrides,
    StoredOverrides,
    format_settings,
    parse_overrides,
    read_vpa_overrides,
    resolve_overrides,
)
from cruise.domain.policy import EvictionRanking, MemoryLimitPolicy, Mode, Policy
from cruise.domain.users import WhatIfComparison, WhatIfRun, WhatIfStage
from cruise.interfaces.backtest.comparison import METRIC_NAMES, format_delta, format_interval, format_metric
from cruise.interfaces.dashboard.forms import SETTING_FIELD_PREFIX, get_rejected_form
from cruise.interfaces.dashboard.layout import Dashboard, DashboardPage
from cruise.interfaces.http.namespace_visibility import VisibilityDependency
from cruise.interfaces.http.view import KindParameter, NameParameter, NamespaceParameter, WhatIfPort, wait_for_store

# What pages show of a rehearsal: its figures as `cruise backtest --against` writes them.


@dataclass(frozen=True, slots=True)
class WhatIfRow:
    """One figure under both; `better` is None where nothing changes."""

    title: str
    current: str
    proposed: str
    change: str
    interval: str
    better: bool | None


@dataclass(frozen=True, slots=True)
class WhatIfPanel:
    """What a page shows of rehearsals: its own, with its rows, or that one of something else runs."""

    is_possible: bool
    own_run: WhatIfRun | None = None
    rows: Sequence[WhatIfRow] = ()
    other_run_active: bool = False


def build_what_if_panel(
    stage: WhatIfPort | None, namespace: str | None = None, workload: WorkloadRef | None = None
) -> WhatIfPanel:
    """Return what the page of a workload, or that of the cluster, shows."""
    if stage is None:
        return WhatIfPanel(is_possible=False)
    last = stage.last()
    if last is None:
        return WhatIfPanel(is_possible=True)
    if (last.proposal.namespace, last.proposal.workload) != (namespace, workload):
        return WhatIfPanel(is_possible=True, other_run_active=last.stage is WhatIfStage.RUNNING)
    return WhatIfPanel(
        is_possible=True, own_run=last, rows=() if last.comparison is None else build_what_if_rows(last.comparison)
    )


def build_what_if_rows(found: WhatIfComparison) -> Sequence[WhatIfRow]:
    """Return a row for each figure; less is better of all of them."""
    return [
        WhatIfRow(
            METRIC_NAMES[figure],
            format_metric(figure, one.reference),
            format_metric(figure, one.current),
            format_delta(figure, one.delta),
            format_interval(figure, one),
            None if format_delta(figure, one.delta) == "0" else one.delta < 0,
        )
        for figure, one in found.figures.items()
    ]


POLICIES_PAGE = DashboardPage("policies", "Policies", "/overrides")
_CHOICES: Mapping[str, Sequence[str]] = {
    "mode": [mode.label for mode in Mode],
    "eviction-ranking": [ranking.label for ranking in EvictionRanking],
    "resources": ["cpu,memory", "cpu", "memory"],
    "memory-limits": [one.value for one in MemoryLimitPolicy],
}
# The mode and the interval are the replay's own.
_NOT_TRIED = frozenset({"mode", "pass_interval"})
_EXAMPLES = {
    "headroom-factor": "1.5",
    "cpu-min": "100m",
    "cpu-max": "2",
    "memory-min": "128Mi",
    "memory-max": "4Gi",
}


@dataclass(frozen=True, slots=True)
class StatedOverrides:
    """What one namespace or workload has of its own; `wrong` says what of it cannot be read."""

    namespace: str
    workload: str
    settings: Mapping[str, str]
    error: str = ""


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of the form: what is stored for it, and what may be."""

    name: str
    setting: str
    value: str
    choices: Sequence[str]
    example: str


def create_policies_pages(dashboard: Dashboard) -> APIRouter:
    """Return the routes of the list and of one workload's form."""
    routes = APIRouter(prefix="/policies", include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("")
    async def policies(request: Request, sight: VisibilityDependency) -> Response:
        snapshot = await view.snapshot()
        stored = await wait_for_store(view.store.overrides())
        namespaces = [namespace for namespace, _ in stored] + list(snapshot.namespace_annotations)
        namespaces += [namespace for namespace, _ in snapshot.workloads]
        seen = await sight.get_visible_namespaces(namespaces)
        return dashboard.page(
            request,
            "policies.html.j2",
            page=POLICIES_PAGE,
            rules=list_cluster_settings(view.policy),
            panel=build_what_if_panel(view.what_if_runs),
            refused=get_rejected_form(request),
            tried=[name for name, _ in list_cluster_settings(view.policy) if name not in _NOT_TRIED],
            setting=SETTING_FIELD_PREFIX,
            excluded=sorted(view.policy.excluded_namespaces),
            stored=[one for one in list_stored_overrides(stored) if seen is None or one.namespace in seen],
            annotated=[one for one in list_annotation_overrides(snapshot) if seen is None or one.namespace in seen],
        )

    @routes.get("/{namespace}/{kind}/{name}")
    async def policy(
        request: Request,
        sight: VisibilityDependency,
        namespace: NamespaceParameter,
        kind: KindParameter,
        name: NameParameter,
    ) -> Response:
        await sight.require_access(namespace)
        workload = WorkloadRef(kind, name)
        snapshot = await view.snapshot()
        stored = await wait_for_store(view.store.overrides())
        pods = [pod for pod in snapshot.pods if (pod.namespace, pod.workload) == (namespace, workload)]
        here = stored.get((namespace, workload))
        if not pods and here is None and (namespace, workload) not in snapshot.workloads:
            raise HTTPException(404, f"there is no {workload} in {namespace}, and nothing is stored for it")
        resolution = _resolution(pods[0] if pods else None, namespace, workload, snapshot, stored, view.policy.mode)
        guidance = resolution.effective_policy
        panel = build_what_if_panel(view.what_if_runs, namespace, workload)
        refused = get_rejected_form(request)
        proposed = panel.own_run.proposal.settings if panel.own_run is not None else None
        if refused is not None:
            proposed = refused.values
        return dashboard.page(
            request,
            "policy.html.j2",
            page=POLICIES_PAGE,
            namespace=namespace,
            workload=workload,
            pods=len(pods),
            statements=resolution.statements,
            wrong=guidance.detail if isinstance(guidance, UnreadableAnnotations) else "",
            mode=guidance.mode.label if not isinstance(guidance, UnreadableAnnotations) else "unreadable",
            panel=panel,
            fields=build_form_fields(format_settings(here) if here is not None else {}, proposed),
            refused=refused,
            others=get_container_overrides(here)
            if refused is None
            else select_container_overrides(refused.values, here),
            is_stored=here is not None,
            setting=SETTING_FIELD_PREFIX,
        )

    return routes


def list_cluster_settings(policy: Policy) -> Sequence[tuple[str, str]]:
    """Return the settings of the cluster that people ask for first, by their names."""
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
        ("memory_limits", policy.memory_limits.value),
        ("memory_limit_factor", f"{policy.memory_limit_factor:g}"),
        ("memory_limit_ceiling", f"{policy.memory_limit_ceiling:g}"),
        ("oom_reaction", policy.oom_reaction.value),
    ]


def list_stored_overrides(stored: StoredOverrides) -> Sequence[StatedOverrides]:
    """Return what is stored through the API, by namespace and workload."""
    return [
        StatedOverrides(namespace, str(workload), format_settings(found))
        for (namespace, workload), found in sorted(stored.items(), key=lambda item: (item[0][0], str(item[0][1])))
    ]


def list_annotation_overrides(snapshot: ClusterSnapshot) -> Sequence[StatedOverrides]:
    """Return what namespaces and workloads state by annotations, those of pods' templates left out."""
    found = [(namespace, "", annotations) for namespace, annotations in snapshot.namespace_annotations.items()]
    found += [(namespace, str(ref), one.annotations) for (namespace, ref), one in snapshot.workloads.items()]
    lines = []
    for namespace, workload, annotations in sorted(found, key=lambda item: item[:2]):
        read = parse_overrides(annotations)
        if isinstance(read, UnreadableAnnotations):
            lines.append(StatedOverrides(namespace, workload, {}, read.detail))
        elif settings := format_settings(read):
            lines.append(StatedOverrides(namespace, workload, settings))
    return lines


def build_form_fields(stored: Mapping[str, str], proposed: Mapping[str, str] | None = None) -> Sequence[FormField]:
    """Return the form's fields, for all containers of a pod: what was replayed last is in them, else what is stored."""
    values = stored if proposed is None else proposed
    return [
        FormField(
            f"{SETTING_FIELD_PREFIX}{name}", name, values.get(name, ""), _CHOICES.get(name, ()), _EXAMPLES.get(name, "")
        )
        for name in OVERRIDES
    ]


def get_container_overrides(stored: Overrides | None) -> Mapping[str, str]:
    """Return what is stored for single containers, which the form keeps as it is."""
    values = format_settings(stored) if stored is not None else {}
    return {name: value for name, value in values.items() if name not in OVERRIDES}


def select_container_overrides(sent: Mapping[str, str], stored: Overrides | None) -> Mapping[str, str]:
    """Return what was sent for single containers, with the fields that were stored and are sent empty."""
    return {name: sent.get(name, "") for name in {**get_container_overrides(stored), **sent} if name not in OVERRIDES}


def _resolution(
    pod: Pod | None,
    namespace: str,
    workload: WorkloadRef,
    snapshot: ClusterSnapshot,
    stored: StoredOverrides,
    mode: Mode,
) -> ResolvedOverrides:
    annotations = pod.annotations if pod is not None else {}
    return resolve_overrides(annotations, namespace, workload, snapshot, stored, mode, read_vpa_overrides(snapshot))
