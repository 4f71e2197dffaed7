"""What applies where, and from where: the cluster's settings, overrides of namespaces and workloads, and their form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, HTTPException, Request, Response

from cruise.domain.annotations import OVERRIDES, Overrides, Unreadable
from cruise.domain.cluster import Pod, Snapshot, WorkloadRef
from cruise.domain.overrides import (
    Resolution,
    StoredOverrides,
    parse_overrides,
    resolve_overrides,
    settings_of,
    vertical_layers,
)
from cruise.domain.policy import EvictionRanking, MemoryLimits, Mode, Policy
from cruise.interfaces.dashboard.doing import SETTING, refused_form
from cruise.interfaces.dashboard.frame import Dashboard, Page
from cruise.interfaces.dashboard.rehearsing import panel_of
from cruise.interfaces.http.requests import Kind, Name, Namespace
from cruise.interfaces.http.sight import SightOf
from cruise.interfaces.http.view import in_time

PAGE = Page("policies", "Policies", "/overrides")
_CHOICES: Mapping[str, Sequence[str]] = {
    "mode": [mode.label for mode in Mode],
    "eviction-ranking": [ranking.label for ranking in EvictionRanking],
    "resources": ["cpu,memory", "cpu", "memory"],
    "memory-limits": [one.value for one in MemoryLimits],
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
class Stated:
    """What one namespace or workload has of its own; `wrong` says what of it cannot be read."""

    namespace: str
    workload: str
    settings: Mapping[str, str]
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the form: what is stored for it, and what may be."""

    name: str
    setting: str
    value: str
    choices: Sequence[str]
    example: str


def policies_page(dashboard: Dashboard) -> APIRouter:
    """Return the routes of the list and of one workload's form."""
    routes = APIRouter(prefix="/policies", include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("")
    async def policies(request: Request, sight: SightOf) -> Response:
        snapshot = await view.snapshot()
        stored = await in_time(view.store.overrides())
        namespaces = [namespace for namespace, _ in stored] + list(snapshot.namespace_annotations)
        namespaces += [namespace for namespace, _ in snapshot.workloads]
        seen = await sight.of(namespaces)
        return dashboard.page(
            request,
            "policies.html.j2",
            page=PAGE,
            rules=rules_of(view.policy),
            panel=panel_of(view.rehearsals),
            refused=refused_form(request),
            tried=[name for name, _ in rules_of(view.policy) if name not in _NOT_TRIED],
            setting=SETTING,
            excluded=sorted(view.policy.excluded_namespaces),
            stored=[one for one in stored_of(stored) if seen is None or one.namespace in seen],
            annotated=[one for one in annotated_of(snapshot) if seen is None or one.namespace in seen],
        )

    @routes.get("/{namespace}/{kind}/{name}")
    async def policy(request: Request, sight: SightOf, namespace: Namespace, kind: Kind, name: Name) -> Response:
        await sight.require(namespace)
        workload = WorkloadRef(kind, name)
        snapshot = await view.snapshot()
        stored = await in_time(view.store.overrides())
        pods = [pod for pod in snapshot.pods if (pod.namespace, pod.workload) == (namespace, workload)]
        here = stored.get((namespace, workload))
        if not pods and here is None and (namespace, workload) not in snapshot.workloads:
            raise HTTPException(404, f"there is no {workload} in {namespace}, and nothing is stored for it")
        resolution = _resolution(pods[0] if pods else None, namespace, workload, snapshot, stored, view.policy.mode)
        guidance = resolution.guidance
        panel = panel_of(view.rehearsals, namespace, workload)
        refused = refused_form(request)
        proposed = panel.own.proposal.settings if panel.own is not None else None
        if refused is not None:
            proposed = refused.values
        return dashboard.page(
            request,
            "policy.html.j2",
            page=PAGE,
            namespace=namespace,
            workload=workload,
            pods=len(pods),
            statements=resolution.statements,
            wrong=guidance.detail if isinstance(guidance, Unreadable) else "",
            mode=guidance.mode.label if not isinstance(guidance, Unreadable) else "unreadable",
            panel=panel,
            fields=fields_of(settings_of(here) if here is not None else {}, proposed),
            refused=refused,
            others=others_of(here) if refused is None else others_among(refused.values, here),
            is_stored=here is not None,
            setting=SETTING,
        )

    return routes


def rules_of(policy: Policy) -> Sequence[tuple[str, str]]:
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


def stored_of(stored: StoredOverrides) -> Sequence[Stated]:
    """Return what is stored through the API, by namespace and workload."""
    return [
        Stated(namespace, str(workload), settings_of(found))
        for (namespace, workload), found in sorted(stored.items(), key=lambda item: (item[0][0], str(item[0][1])))
    ]


def annotated_of(snapshot: Snapshot) -> Sequence[Stated]:
    """Return what namespaces and workloads state by annotations, those of pods' templates left out."""
    found = [(namespace, "", annotations) for namespace, annotations in snapshot.namespace_annotations.items()]
    found += [(namespace, str(ref), one.annotations) for (namespace, ref), one in snapshot.workloads.items()]
    lines = []
    for namespace, workload, annotations in sorted(found, key=lambda item: item[:2]):
        read = parse_overrides(annotations)
        if isinstance(read, Unreadable):
            lines.append(Stated(namespace, workload, {}, read.detail))
        elif settings := settings_of(read):
            lines.append(Stated(namespace, workload, settings))
    return lines


def fields_of(stored: Mapping[str, str], proposed: Mapping[str, str] | None = None) -> Sequence[Field]:
    """Return the form's fields, for all containers of a pod: what was replayed last is in them, else what is stored."""
    values = stored if proposed is None else proposed
    return [
        Field(f"{SETTING}{name}", name, values.get(name, ""), _CHOICES.get(name, ()), _EXAMPLES.get(name, ""))
        for name in OVERRIDES
    ]


def others_of(stored: Overrides | None) -> Mapping[str, str]:
    """Return what is stored for single containers, which the form keeps as it is."""
    values = settings_of(stored) if stored is not None else {}
    return {name: value for name, value in values.items() if name not in OVERRIDES}


def others_among(sent: Mapping[str, str], stored: Overrides | None) -> Mapping[str, str]:
    """Return what was sent for single containers, with the fields that were stored and are sent empty."""
    return {name: sent.get(name, "") for name in {**others_of(stored), **sent} if name not in OVERRIDES}


def _resolution(
    pod: Pod | None,
    namespace: str,
    workload: WorkloadRef,
    snapshot: Snapshot,
    stored: StoredOverrides,
    mode: Mode,
) -> Resolution:
    annotations = pod.annotations if pod is not None else {}
    return resolve_overrides(annotations, namespace, workload, snapshot, stored, mode, vertical_layers(snapshot))
