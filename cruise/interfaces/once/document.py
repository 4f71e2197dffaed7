"""One pass as the JSON document of `cruise serve --once`: the plans of `cruise plan`, and what became of them."""

from collections.abc import Mapping, Sequence

import msgspec

from cruise.domain.actions import EvictPod, Hold, Outcome, ResizePod
from cruise.domain.notices import NOBODY_TOLD, Told
from cruise.domain.policy import Mode
from cruise.domain.resources import Amounts
from cruise.interfaces.http.figures import action_name
from cruise.interfaces.once.changes import Pods, changes_json, pods_of
from cruise.interfaces.packing.halt_words import halt_words
from cruise.interfaces.packing.progress_document import packing_document
from cruise.interfaces.plan.document import node_document
from cruise.interfaces.reasons import detail_words
from cruise.interfaces.shapes import shape
from cruise.runtime.packing.packing_pass import PackingPass
from cruise.runtime.sizing.node_pass import NodePass

Json = dict[str, object]


def once_json(
    done: NodePass,
    mode: Mode,
    paused: bool,
    packing: PackingPass | None = None,
    packed: Sequence[Outcome] = (),
    told: Told = NOBODY_TOLD,
) -> bytes:
    """Return the document, with the outcomes in the order in which they were tried.

    `packing` is the packing pass after it, where there was one, and `packed` what that did.
    """
    pods = pods_of(done)
    plans = sorted(done.plans, key=lambda plan: plan.node)
    document = {
        "at": shape(done.at),
        "mode": mode.label,
        "paused": paused,
        "nodes": [node_document(plan) for plan in plans],
        "waiting": [_hold(hold) for hold in sorted(done.waiting, key=lambda hold: (hold.namespace, hold.pod))],
        "outcomes": [_outcome(outcome, pods) for outcome in done.outcomes],
        "packing": None if packing is None else _packing(packing, packed, pods),
        "published": told.published,
        "notices": {"sent": told.sent, "dropped": told.dropped},
    }
    return msgspec.json.encode(document) + b"\n"


def _packing(done: PackingPass, packed: Sequence[Outcome], pods: Pods) -> Json:
    return {
        "waiting": done.waiting,
        "why": halt_words(done.why),
        "plan": None if done.plan is None else shape(packing_document(done.plan)),
        "outcomes": [_outcome(outcome, pods) for outcome in packed],
    }


def _hold(hold: Hold) -> Json:
    return {"namespace": hold.namespace, "pod": hold.pod, "reason": hold.reason.value}


def _outcome(outcome: Outcome, pods: Pods) -> Json:
    action = outcome.action
    said: Json = {"action": action_name(outcome), "node": action.node}
    if isinstance(action, ResizePod | EvictPod):
        said |= {"namespace": action.namespace, "pod": action.pod}
    said |= {
        "why": action.reason.value,
        "verdict": outcome.verdict.value,
        "reason": outcome.reason.value,
        "detail": detail_words(outcome.detail),
    }
    if isinstance(action, ResizePod):
        said["cause"] = action.cause
        said["containers"] = changes_json(outcome, pods, _sizes)
    return said


def _sizes(requests: Amounts, limits: Amounts) -> Mapping[str, int | None]:
    return {
        "cpuMillicores": requests.cpu_millicores,
        "memoryBytes": requests.memory_bytes,
        "cpuLimitMillicores": limits.cpu_millicores,
        "memoryLimitBytes": limits.memory_bytes,
    }
