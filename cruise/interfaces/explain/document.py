"""An explanation as one JSON document."""

from dataclasses import replace
from datetime import datetime

import msgspec

from cruise.decisions.admission.admission import Leave, Mutate
from cruise.decisions.explaining.explanation import Explanation, HeldContainer, NodeExplanation
from cruise.decisions.explaining.past import Past
from cruise.decisions.explaining.size_steps import ContainerSteps, RequestSteps
from cruise.decisions.guidance.other_autoscalers import Claimed
from cruise.decisions.scan.risks import Risk
from cruise.domain.actions import Hold, Outcome, ResizePod
from cruise.domain.original_resources import amounts_json
from cruise.domain.overrides import Statement
from cruise.domain.usage import Statistic, StatisticsTable
from cruise.interfaces.kill_words import kill_words
from cruise.interfaces.reasons import detail_words, in_words, source_words
from cruise.interfaces.resize_words import changes_text
from cruise.interfaces.shapes import Shape, shape
from cruise.kube_json.patches.resize_patch import resize_patch


def explanation_json(explanation: Explanation, now: datetime, past: Past | None) -> bytes:
    """Return the document; amounts are millicores and bytes."""
    pod = explanation.pod
    document: dict[str, object] = {
        "namespace": pod.namespace,
        "pod": pod.name,
        "workload": str(pod.workload) if pod.workload is not None else None,
        "nodeName": pod.node,
        "at": shape(now),
        "fate": explanation.fate,
        "hold": _hold(explanation.hold),
        "kills": [_kill(one, now) for one in explanation.kills],
        "overrides": [_statement(one) for one in explanation.statements],
        "guidance": shape(explanation.guidance),
        "autoscaled": _autoscaled(explanation.claimed),
        "evictionRanking": shape(explanation.ranking),
        "unmovable": explanation.unmovable and detail_words(explanation.unmovable),
        "eviction": shape(explanation.eviction.resource) if explanation.eviction is not None else None,
        "node": _node(explanation.node),
        "containers": [_steps(steps) for steps in explanation.steps] or [_held(held) for held in explanation.held],
        "patch": resize_patch(explanation.resize) if explanation.resize is not None else None,
        "admission": _admission(explanation.admission),
        "past": _past(past),
    }
    return msgspec.json.encode(document) + b"\n"


def stored_json(namespace: str, pod: str, statistics: StatisticsTable, past: Past) -> bytes:
    """Return what the store alone knows of a pod."""
    rows = [_statistic(statistics.row(row)) for row in range(len(statistics.keys))]
    document = {"namespace": namespace, "pod": pod, "statistics": rows, "past": _past(past)}
    return msgspec.json.encode(document) + b"\n"


def _autoscaled(claimed: Claimed) -> Shape:
    """Return which resources are left alone for an HPA, None where there is none."""
    if not claimed.scaled:
        return None
    return {"resources": [*sorted(one.value for one in claimed.scaled)], "why": detail_words(claimed.scaled_by)}


def _statement(one: Statement) -> Shape:
    return {"setting": one.setting, "value": one.value, "source": source_words(one.source), "holds": one.holds}


def _node(node: NodeExplanation | None) -> Shape:
    if node is None:
        return None
    rankings = {
        resource: tuple(replace(one, immovable=one.immovable and detail_words(one.immovable)) for one in ranking)
        for resource, ranking in node.rankings.items()
    }
    return shape(replace(node, rankings=rankings))


def _hold(hold: Hold | None) -> Shape:
    if hold is None:
        return None
    return {
        "reason": hold.reason.value,
        "words": in_words(hold.reason),
        "detail": detail_words(hold.detail),
        "until": shape(hold.until),
    }


def _kill(risk: Risk, now: datetime) -> Shape:
    return {
        "container": risk.container,
        "limitBytes": risk.observed or None,
        "killedAt": shape(risk.killed_at),
        "restarts": risk.restarts,
        "remedy": shape(risk.remedy),
        "why": kill_words(risk, now),
    }


def _steps(steps: ContainerSteps) -> Shape:
    return {
        "container": steps.container,
        "statistic": _statistic(steps.statistic),
        "ofWorkload": steps.of_workload,
        "cpuMillicores": _request(steps.cpu),
        "memoryBytes": _request(steps.memory),
        "memoryLimitBytes": shape(steps.memory_limit),
        "cpuLimitMillicores": shape(steps.cpu_limit),
    }


def _request(steps: RequestSteps) -> Shape:
    """Return the steps; `byBase` and `atPeak` only where they hold, `written` only where it is not `final`."""
    document = shape(steps)
    assert isinstance(document, dict)
    if not steps.by_base:
        del document["byBase"]
    if not steps.at_peak:
        del document["atPeak"]
    if steps.written in (None, steps.final):
        del document["written"]
    return document


def _held(held: HeldContainer) -> Shape:
    container = held.container
    return {
        "container": container.name,
        "role": container.role.value,
        "requests": dict(amounts_json(container.requests)),
        "limits": dict(amounts_json(container.limits)),
        "statistic": _statistic(held.statistic) if held.statistic is not None else None,
    }


def _statistic(statistic: Statistic) -> Shape:
    document = shape(statistic)
    assert isinstance(document, dict)
    key = statistic.key
    document["key"] = {
        "namespace": key.namespace,
        "pod": key.pod,
        "workload": key.workload,
        "container": key.container,
        "identity": key.identity,
    }
    document["refusedReasons"] = [reason.value for reason in statistic.refusals]
    return document


def _admission(admission: Mutate | Leave | None) -> Shape:
    match admission:
        case None:
            return None
        case Leave(reason, detail):
            return {"leave": reason.value, "words": in_words(reason, detail)}
        case Mutate(containers, size, new_revision):
            return {
                "size": size.value,
                "newRevision": new_revision,
                "containers": [
                    {
                        "name": target.container,
                        "requests": dict(amounts_json(target.requests)),
                        "limits": dict(amounts_json(target.limits)),
                    }
                    for target in containers
                ],
            }


def _past(past: Past | None) -> object:
    if past is None:
        return None
    return {
        "outcomes": [
            {
                "at": shape(outcome.at),
                "firstAt": shape(outcome.since),
                "count": outcome.count,
                "action": type(outcome.action).__name__,
                "why": outcome.action.reason.value,
                "verdict": outcome.verdict.value,
                "reason": outcome.reason.value,
                "detail": detail_words(outcome.detail),
                **_resize(outcome),
            }
            for outcome in past.outcomes
        ],
        "kills": shape(past.kills),
        "hourlyPeaks": shape(past.profiles),
    }


def _resize(outcome: Outcome) -> dict[str, object]:
    action = outcome.action
    if not isinstance(action, ResizePod):
        return {}
    return {"cause": action.cause, "changes": changes_text(action, outcome.before, "→")}
