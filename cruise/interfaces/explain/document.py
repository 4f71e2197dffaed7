"""An explanation as one JSON document, and its steps to the CPU of a pod's start."""

from dataclasses import replace
from datetime import datetime

import msgspec
from rich.table import Table

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod
from cruise.decisions.admission.startup import StartupBoostStep
from cruise.decisions.explanation.pod_explanation import (
    Explanation,
    NodeExplanation,
    SkippedContainer,
    StartupExplanation,
)
from cruise.decisions.explanation.size_steps import ContainerSteps, RequestSteps
from cruise.decisions.pod_history import PodHistory
from cruise.decisions.pod_policy.other_autoscalers import AutoscalerClaims
from cruise.decisions.pod_policy.skip_reason_unlocks import UNLOCKS
from cruise.decisions.scan.risks import ContainerRisk
from cruise.domain.actions import Outcome, ResizePod, SkippedPod
from cruise.domain.original_resources import convert_amounts_to_json
from cruise.domain.overrides import StatedSetting
from cruise.domain.startup_boosts import LONGEST_START, READY_TIME, StartupBoost
from cruise.domain.startup_cpu import format_startup_cpu
from cruise.domain.usage import Statistic, StatisticsTable
from cruise.interfaces.coverage import build_unlock_document
from cruise.interfaces.explain.size_steps import create_grid
from cruise.interfaces.plan_document import format_resize
from cruise.interfaces.reasons import describe_detail, describe_oom_kill, describe_reason, describe_source
from cruise.interfaces.text import JsonValue, convert_to_json, format_cpu
from cruise.kube_json.patches import build_resize_patch

_ENDS = (
    f"{READY_TIME.total_seconds():.0f} s after it is ready, at the latest "
    f"{LONGEST_START.total_seconds() / 60:.0f} min after its start"
)


def build_startup_table(startup: StartupExplanation, now: datetime) -> Table:
    """Return the boosts of this pod, and what a new pod would start with."""
    rows = create_grid(3)
    for boost in startup.boosts:
        rows.add_row(f"  {boost.container}", "now", _format_boost(boost))
    if startup.boosts:
        rows.add_row("", "taken back", _format_end(startup.ends_at, now))
    for step in startup.steps:
        stated = "earlier starts used" if step.stated.is_learned else f"{format_startup_cpu(step.stated)} asks"
        if step.boost is not None:
            rows.add_row(f"  {step.container}", "a new pod", f"{_format_boost(step.boost)}, as {stated}")
        elif step.reason is not None:
            reason = f"{step.reason.value}: {describe_reason(step.reason)}"
            rows.add_row(f"  {step.container}", "a new pod", f"its own size, not what {stated}: {reason}")
    return rows


def build_startup_document(startup: StartupExplanation | None) -> JsonValue:
    """Return the JSON form, None without a start to explain."""
    if startup is None:
        return None
    return {
        "endsAt": None if startup.ends_at is None else startup.ends_at.isoformat(),
        "boosts": [_boost(one) for one in startup.boosts],
        "newPod": [_step(one) for one in startup.steps],
    }


def _step(step: StartupBoostStep) -> JsonValue:
    return {
        "container": step.container,
        "stated": format_startup_cpu(step.stated),
        "boost": None if step.boost is None else _boost(step.boost),
        "reason": None if step.reason is None else step.reason.value,
    }


def _boost(boost: StartupBoost) -> JsonValue:
    return {
        "container": boost.container,
        "boostedCpuMillicores": boost.boosted_request,
        "boostedCpuLimitMillicores": boost.boosted_limit,
        "cpuMillicores": boost.request,
        "cpuLimitMillicores": boost.limit,
    }


def _format_boost(boost: StartupBoost) -> str:
    text = f"{format_cpu(boost.boosted_request)} instead of {format_cpu(boost.request)}"
    if boost.limit is None or boost.boosted_limit in (None, boost.limit):
        return text
    return f"{text}, limit {format_cpu(boost.boosted_limit)} instead of {format_cpu(boost.limit)}"


def _format_end(ends_at: datetime | None, now: datetime) -> str:
    if ends_at is None:
        return _ENDS
    return f"at {ends_at:%H:%M:%S} UTC" if ends_at > now else "now due"


def render_explanation_json(explanation: Explanation, now: datetime, history: PodHistory | None) -> bytes:
    """Return the document; amounts are millicores and bytes."""
    pod = explanation.pod
    document: dict[str, object] = {
        "namespace": pod.namespace,
        "pod": pod.name,
        "workload": str(pod.workload) if pod.workload is not None else None,
        "nodeName": pod.node,
        "at": convert_to_json(now),
        "outcome": explanation.outcome,
        "skipped": _skipped(explanation.skipped),
        "oomKills": [_oom_kill(one, now) for one in explanation.oom_kills],
        "overrides": [_statement(one) for one in explanation.statements],
        "effectivePolicy": convert_to_json(explanation.effective_policy),
        "autoscaled": _autoscaled(explanation.autoscaler_claims),
        "evictionRanking": convert_to_json(explanation.ranking),
        "notEvictable": explanation.not_evictable_reason and describe_detail(explanation.not_evictable_reason),
        "eviction": convert_to_json(explanation.eviction.resource) if explanation.eviction is not None else None,
        "node": _node(explanation.node),
        "containers": [_steps(steps) for steps in explanation.steps],
        "skippedContainers": [_skipped_container(one) for one in explanation.skipped_containers],
        "patch": build_resize_patch(explanation.resize) if explanation.resize is not None else None,
        "admission": _admission(explanation.admission),
        "startup": build_startup_document(explanation.startup),
        "history": _history(history),
    }
    return msgspec.json.encode(document) + b"\n"


def render_stored_pod_json(namespace: str, pod: str, statistics: StatisticsTable, history: PodHistory) -> bytes:
    """Return the document of a pod that only the database knows."""
    rows = [_statistic(statistics.get_row(row)) for row in range(len(statistics.keys))]
    document = {"namespace": namespace, "pod": pod, "statistics": rows, "history": _history(history)}
    return msgspec.json.encode(document) + b"\n"


def _autoscaled(claims: AutoscalerClaims) -> JsonValue:
    """Return the resources that are not sized because of an HPA, None if there are none."""
    if not claims.scaled:
        return None
    return {"resources": [*sorted(one.value for one in claims.scaled)], "reason": describe_detail(claims.scaled_by)}


def _statement(one: StatedSetting) -> JsonValue:
    return {
        "setting": one.setting,
        "value": one.value,
        "source": describe_source(one.source),
        "effective": one.is_effective,
        "limitedBy": describe_source(one.limited_by) if one.limited_by is not None else None,
    }


def _node(node: NodeExplanation | None) -> JsonValue:
    if node is None:
        return None
    rankings = {
        resource: tuple(
            replace(one, not_evicted_reason=one.not_evicted_reason and describe_detail(one.not_evicted_reason))
            for one in ranking
        )
        for resource, ranking in node.rankings.items()
    }
    return convert_to_json(replace(node, rankings=rankings))


def _skipped(skipped: SkippedPod | None) -> JsonValue:
    if skipped is None:
        return None
    return {
        "reason": skipped.reason.value,
        "message": describe_reason(skipped.reason),
        "unlock": build_unlock_document(UNLOCKS[skipped.reason]) if skipped.reason in UNLOCKS else None,
        "detail": describe_detail(skipped.detail),
        "until": convert_to_json(skipped.until),
    }


def _oom_kill(risk: ContainerRisk, now: datetime) -> JsonValue:
    return {
        "container": risk.container,
        "limitBytes": risk.observed or None,
        "killedAt": convert_to_json(risk.killed_at),
        "restarts": risk.restarts,
        "remedy": convert_to_json(risk.remedy),
        "message": describe_oom_kill(risk, now),
    }


def _steps(steps: ContainerSteps) -> JsonValue:
    return {
        "container": steps.container,
        "statistic": _statistic(steps.statistic),
        "ofWorkload": steps.is_workload_statistic,
        "cpuMillicores": _request(steps.cpu),
        "memoryBytes": _request(steps.memory),
        "memoryLimitBytes": convert_to_json(steps.memory_limit),
        "cpuLimitMillicores": convert_to_json(steps.cpu_limit),
        "heap": convert_to_json(steps.heap),
    }


def _request(steps: RequestSteps) -> JsonValue:
    """Return the steps; `byBase`, `atPeak`, `guaranteed` and `utilisation` only if true or known.

    `written` is there only if it differs from `final`.
    """
    document = convert_to_json(steps)
    assert isinstance(document, dict)
    is_shown = {
        "byBase": steps.by_base,
        "atPeak": steps.at_peak,
        "guaranteed": steps.guaranteed is not None,
        "utilisation": steps.utilisation is not None,
        "written": steps.written not in (None, steps.final),
    }
    return {name: value for name, value in document.items() if is_shown.get(name, True)}


def _skipped_container(skipped: SkippedContainer) -> JsonValue:
    container, statistic = skipped.container, skipped.statistic
    return {
        "container": container.name,
        "role": container.role.value,
        "requests": dict(convert_amounts_to_json(container.requests)),
        "limits": dict(convert_amounts_to_json(container.limits)),
        "statistic": _statistic(statistic) if statistic is not None else None,
    }


def _statistic(statistic: Statistic) -> JsonValue:
    document = convert_to_json(statistic)
    assert isinstance(document, dict)
    key = statistic.key
    document["key"] = {
        "namespace": key.namespace,
        "pod": key.pod,
        "workload": key.workload,
        "container": key.container,
        "identity": key.identity,
    }
    document["rejectedReasons"] = [reason.value for reason in statistic.rejections]
    return document


def _admission(admission: MutatePod | LeaveUnchanged | None) -> JsonValue:
    match admission:
        case None:
            return None
        case LeaveUnchanged(reason, detail):
            return {"reason": reason.value, "message": describe_reason(reason, detail)}
        case MutatePod(containers, size, new_revision):
            return {
                "size": "stated" if size is None else size.value,
                "newRevision": new_revision,
                "containers": [
                    {
                        "name": target.container,
                        "requests": dict(convert_amounts_to_json(target.requests)),
                        "limits": dict(convert_amounts_to_json(target.limits)),
                    }
                    for target in containers
                ],
            }


def _history(history: PodHistory | None) -> object:
    if history is None:
        return None
    return {
        "outcomes": [
            {
                "at": convert_to_json(outcome.at),
                "firstAt": convert_to_json(outcome.since),
                "count": outcome.count,
                "action": type(outcome.action).__name__,
                "purpose": outcome.action.reason.value,
                "result": outcome.result.value,
                "reason": outcome.reason.value,
                "detail": describe_detail(outcome.detail),
                **_resize(outcome),
            }
            for outcome in history.outcomes
        ],
        "oomKills": convert_to_json(history.oom_kills),
        "hourlyPeaks": convert_to_json(history.profiles),
    }


def _resize(outcome: Outcome) -> dict[str, object]:
    action = outcome.action
    if not isinstance(action, ResizePod):
        return {}
    return {"cause": action.cause, "changes": format_resize(action, outcome.before, "→")}
