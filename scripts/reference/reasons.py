"""The reference page of reasons: every code, and its description."""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import cruise.kube_json.admission_review
from cruise.app.http_connection import ConnectionRejection
from cruise.decisions.packing.node_masks import PlacementObstacle
from cruise.decisions.pod_policy.skip_reason_unlocks import UNLOCKS
from cruise.decisions.scan.risks import ContainerRiskKind
from cruise.domain.actions import ActionResult, ReasonCode, ResizeCause
from cruise.domain.packing_plan import PlanPhase
from cruise.domain.policy import AdmissionSize
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.usage import SampleRejectionReason
from cruise.interfaces.reasons import (
    CAUSE_DESCRIPTIONS,
    DETAIL_DESCRIPTIONS,
    REASON_DESCRIPTIONS,
    REJECTION_DESCRIPTIONS,
)
from cruise.interfaces.scan.finding_text import RISK_TITLES
from cruise.packer.answer import PackingStatus
from cruise.runtime import admission_reviewer
from scripts.reference.markdown import code, page, section, table
from scripts.reference.reason_words import (
    ACTION_RESULTS,
    CONNECTION_REJECTIONS,
    OBSTACLES,
    PHASES,
    RISKS,
    STATUSES,
    WEBHOOK_ANSWERS,
)

_INTRODUCTION = """Look up what a code means. Codes are stable for scripts; descriptions may change. `cruise explain`
shows both; the audit log, the metrics and the Events have the code."""
_HEADINGS = ("code", "meaning")


def reasons_page() -> str:
    """Return the page; ValueError for a code without description."""
    return page(
        "Reasons",
        _INTRODUCTION,
        section(
            "Reasons",
            "Why a pod or a node is skipped, or why an action was taken: `reason` of skipped pods and of the audit "
            "log, and the label of `cruise_pods_skipped` and `cruise_actions_total`. The last column is what would "
            "change it; the saving behind it is in `cruise scan`.",
            _reasons(),
        ),
        section(
            "Causes of resizes",
            "`cause` of a resize in plans, in the audit and in `cruise_resizes_total`; none where `rules` is `seeds`.",
            _codes(ResizeCause, CAUSE_DESCRIPTIONS),
        ),
        section("Details", "Details of reasons with several causes. `…` is a name or a number.", _details()),
        section(
            "Results of actions",
            "`verdict` in the audit and in `cruise_actions_total`.",
            _codes(ActionResult, ACTION_RESULTS),
        ),
        section(
            "Rejected samples",
            "`reason` of `cruise_samples_rejected_total`.",
            _codes(SampleRejectionReason, REJECTION_DESCRIPTIONS),
        ),
        section(
            "Answers of the webhook",
            "`answer` and `reason` of `cruise_webhook_reviews_total`. Pods are created in any case; with `left`, "
            "`reason` may also be one of the reasons above.",
            table(("answer", "reason", "meaning"), _answers()),
        ),
        section("Risks in a scan", "`kind` of a container at risk, worst first.", _risks()),
        section(
            "Obstacles of pending pods",
            "`blockedBy` of `cruise pack`; a resource, such as `cpu`, has its own name.",
            _codes(PlacementObstacle, OBSTACLES),
        ),
        section("Status of a packing plan", "`status` of `cruise pack`.", _codes(PackingStatus, STATUSES)),
        section(
            "Progress of a packing plan",
            "`outcome` of `cruise_packing_plans_total`.",
            _codes(PlanPhase, PHASES),
        ),
        section(
            "Rejected connections",
            "`reason` of `cruise_http_connections_rejected_total`.",
            _codes(ConnectionRejection, CONNECTION_REJECTIONS),
        ),
    )


def _codes(codes: Iterable[Enum], words: Mapping[Any, str]) -> str:
    return table(_HEADINGS, ((code(one.value), words.get(one, "")) for one in codes))


def _reasons() -> str:
    return table(
        (*_HEADINGS, "unlocked by"),
        (
            (code(one.value), REASON_DESCRIPTIONS.get(one, ""), UNLOCKS[one].description if one in UNLOCKS else "–")
            for one in ReasonCode
        ),
    )


def _details() -> str:
    return table(_HEADINGS, ((code(one.value), DETAIL_DESCRIPTIONS[one].format("…")) for one in ReasonDetailCode))


def _risks() -> str:
    return table(
        ("code", "in tables", "meaning"),
        ((code(one.value), RISK_TITLES[one], RISKS.get(one, "")) for one in ContainerRiskKind),
    )


def _answers() -> Iterator[tuple[str, str, str]]:
    for answer, reason in sorted(list_webhook_answers()):
        yield code(answer), code(reason), WEBHOOK_ANSWERS.get((answer, reason), "")


def list_webhook_answers() -> set[tuple[str, str]]:
    """Return the webhook's answers, without the reasons of decisions."""
    constants = {one for name, one in vars(admission_reviewer).items() if name.isupper() and _is_verdict(one)}
    source = Path(cruise.kube_json.admission_review.__file__).read_text(encoding="utf-8")
    bounds = {("left", reason) for reason in re.findall(r'ReviewTooLargeError\(\s*"([a-z-]+)"', source)}
    return constants | bounds | {("mutated", size.value) for size in AdmissionSize} | {("mutated", "stated")}


def _is_verdict(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)
