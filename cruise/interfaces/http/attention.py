"""What needs a person: faults of cruise, of the cluster and of its configuration, for the API and the dashboard."""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter

from cruise.decisions.scan.policy_status import PolicyProblems
from cruise.decisions.scan.risks import ContainerRisk, ContainerRiskKind
from cruise.domain.policy import Mode, Policy
from cruise.domain.rightsizing_policies import RightsizingPolicy
from cruise.interfaces.http.audit import RECENT, RecentActions, read_recent_actions
from cruise.interfaces.http.cluster_summary import UNREADABLE_MODE, ClusterSummary, ClusterSummaryCache
from cruise.interfaces.http.figures import ControllerFigures
from cruise.interfaces.http.view import ApiView, NamespaceVisibility, VisibilityDependency, list_error_responses
from cruise.interfaces.scan.finding_text import RISK_TITLES
from cruise.interfaces.text import CAMEL_CASE_CONFIG, escape_text, format_age, format_count

_URGENT_RISKS = (ContainerRiskKind.OOM_KILLED, ContainerRiskKind.MEMORY_LEAK_SUSPECTED)
_MAX_KINDS = 3


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """Something that a person should look at; `page` is the dashboard's page about it, relative to its root."""

    code: str
    urgent: bool
    message: str
    page: str


@dataclass(frozen=True, slots=True)
class AttentionDocument:
    """All that needs a person, the urgent ones first."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    items: list[AttentionItem]


def create_attention_routes(view: ApiView, summaries: ClusterSummaryCache) -> APIRouter:
    """Return the route at /attention."""
    routes = APIRouter(tags=["controller"])

    @routes.get("/attention", responses=list_error_responses(503))
    async def attention(visibility: VisibilityDependency) -> AttentionDocument:
        """Return what needs a person, with findings of namespaces whose pods the caller may get."""
        summary = await summaries.get_newest()
        now = view.now()
        recent = await read_recent_actions(view, visibility, now - RECENT)
        risks = await list_visible_risks(summary, visibility)
        policies = await list_visible_policy_problems(summary, visibility)
        items = list_attention_items(view.get_figures(), summary, risks, policies, recent, view.policy, now)
        return AttentionDocument(list(items))

    return routes


async def list_visible_risks(summary: ClusterSummary, visibility: NamespaceVisibility) -> Sequence[ContainerRisk]:
    """Return the risks in the namespaces that the caller may see."""
    visible = await visibility.get_visible_namespaces(risk.namespace for risk in summary.risks)
    return [risk for risk in summary.risks if visible is None or risk.namespace in visible]


async def list_visible_policy_problems(summary: ClusterSummary, visibility: NamespaceVisibility) -> PolicyProblems:
    """Return the problems of policies that the caller may see: those of the cluster require all namespaces."""
    found = summary.policy_problems
    everything = (*found.unreadable, *found.conflicting, *found.unmatched)
    visible = await visibility.get_visible_namespaces(one.namespace for one in everything if one.namespace)
    if visible is None:
        return found
    return PolicyProblems(
        _select_visible(found.unreadable, visible),
        _select_visible(found.conflicting, visible),
        _select_visible(found.unmatched, visible),
    )


def _select_visible(policies: Sequence[RightsizingPolicy], visible: Set[str]) -> tuple[RightsizingPolicy, ...]:
    return tuple(one for one in policies if one.namespace in visible)


def list_attention_items(
    figures: ControllerFigures,
    summary: ClusterSummary,
    risks: Sequence[ContainerRisk],
    policies: PolicyProblems,
    recent: RecentActions,
    policy: Policy,
    now: datetime,
) -> Sequence[AttentionItem]:
    """Return what needs a person, the urgent items first."""
    findings = _list_findings(figures, summary, risks, recent)
    items = [*_list_faults(figures, policy, now), *findings, *_list_policy_problems(policies)]
    return sorted(items, key=lambda item: not item.urgent)


def _list_faults(figures: ControllerFigures, policy: Policy, now: datetime) -> Iterator[AttentionItem]:
    """Yield what keeps cruise itself from its work."""
    updated_at = figures.statistics_at
    if updated_at is None:
        yield AttentionItem("no-statistics", True, "No usage is read yet, so nothing is sized", "health")
    elif now - updated_at > policy.max_age:
        age = format_age(now, updated_at)
        yield AttentionItem("stale-statistics", True, f"Usage was last read {age}, so nothing is sized", "health")
    for job in figures.jobs:
        if job.failures_in_a_row:
            failures = format_count(job.failures_in_a_row, "time")
            error = escape_text(job.error or "", 120)
            yield AttentionItem("job-failing", True, f"Job {job.name} failed: {error} ({failures} in a row)", "health")
    if figures.history_incomplete:
        message = "The database is in an earlier state: nothing is shrunk until its usage is read again"
        yield AttentionItem("history-incomplete", True, message, "health")
    if figures.load_pass is not None and figures.load_pass.unremovable:
        taints = format_count(len(figures.load_pass.unremovable), "overload taint")
        yield AttentionItem("unremovable-taints", True, f"{taints} must be removed by hand", "health")
    if figures.cross_check.disagreeing:
        message = f"Prometheus and kubelets disagreed {format_count(figures.cross_check.disagreeing, 'time')}"
        yield AttentionItem("usage-disagrees", False, message, "health")


def _list_findings(
    figures: ControllerFigures, summary: ClusterSummary, risks: Sequence[ContainerRisk], recent: RecentActions
) -> Iterator[AttentionItem]:
    """Yield what is wrong with the cluster, or with the configuration of its workloads."""
    if risks:
        kinds = Counter(risk.kind for risk in risks)
        named = [f"{number:,} {RISK_TITLES[kind]}" for kind, number in kinds.most_common(_MAX_KINDS)]
        rest = sum(kinds.values()) - sum(number for _, number in kinds.most_common(_MAX_KINDS))
        words = ", ".join([*named, *([f"{rest:,} others"] if rest else [])])
        urgent = any(kind in kinds for kind in _URGENT_RISKS)
        message = f"{format_count(len(risks), 'finding')} at risk: {words}"
        yield AttentionItem("at-risk", urgent, message, "workloads?risk=true&sort=risk")
    last_pass = figures.last_pass
    if last_pass is not None and last_pass.overcommitted:
        nodes = format_count(last_pass.overcommitted, "node is overcommitted", "nodes are overcommitted")
        yield AttentionItem("overcommitted", True, f"{nodes}: evictions cannot make the pods fit", "nodes")
    unreadable = summary.modes.get(UNREADABLE_MODE, 0)
    if unreadable:
        pods = format_count(unreadable, "pod has an annotation", "pods have annotations")
        message = f"{pods} that cannot be read"
        yield AttentionItem("unreadable-annotation", False, message, f"workloads?mode={UNREADABLE_MODE}")
    pending = figures.packing.pending
    if pending:
        yield AttentionItem("pending", False, f"{format_count(pending, 'pod')} pending for lack of capacity", "pending")
    if recent.refused:
        message = f"{format_count(recent.refused, 'write')} refused or failed in the last day"
        yield AttentionItem("refused", False, message, "actions?result=refused")
    if figures.mode is Mode.OFF:
        yield AttentionItem("mode-off", False, "Mode off: cruise skips all pods", "health")


_POLICIES = "policies#objects"


def _list_policy_problems(policies: PolicyProblems) -> Iterator[AttentionItem]:
    """Yield what is wrong with policy objects: one item for each kind of problem, which names the first ones."""
    kinds = (
        ("policy-unreadable", True, policies.unreadable, "cannot be read, and the pods that it may select are skipped"),
        ("policy-conflict", False, policies.conflicting, "contradicts another one, which its status names"),
        ("policy-unmatched", False, policies.unmatched, "selects no pod and no workload"),
    )
    for code, urgent, found, problem in kinds:
        if found:
            others = f", and {format_count(len(found) - 1, 'other policy', 'other policies')} too" if found[1:] else ""
            message = f"{escape_text(found[0].title, 120)} {problem}{others}"
            yield AttentionItem(code, urgent, message, _POLICIES)
