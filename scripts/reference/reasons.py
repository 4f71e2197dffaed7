"""The page of reasons: every code that cruise answers with, and its words."""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import cruise.kube_json.admission_review
from cruise.app.http_connection import ConnectionRejection
from cruise.decisions.packing.node_masks import PlacementObstacle
from cruise.decisions.scan.risks import ContainerRiskKind
from cruise.domain.actions import ActionResult, ReasonCode, ResizeCause
from cruise.domain.packing_plan import PlanPhase
from cruise.domain.policy import AdmissionSize
from cruise.domain.reasons import ReasonDetail
from cruise.domain.usage import SampleRejection
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
from scripts.reference.reason_words import ANSWERS, OBSTACLES, PHASES, RISKS, STATUSES, TURNED_AWAY, VERDICTS

_INTRODUCTION = """Codes are for scripts and stay what they are; words may be put better. `cruise explain` shows
both, and the audit, the metrics and the Events carry the code."""
_HEADINGS = ("code", "meaning")


def reasons_page() -> str:
    """Return the page. Raises ValueError where a code has no words."""
    return page(
        "Reasons",
        _INTRODUCTION,
        section(
            "Reasons",
            "Why a pod or a node is left as it is, or why something was done to it: `reason` of holds and of lines of "
            "the audit, and the label of `cruise_pods_skipped` and `cruise_actions_total`.",
            _codes(ReasonCode, REASON_DESCRIPTIONS),
        ),
        section(
            "Why a resize is worth a write",
            "`cause` of a resize in plans, in the audit and in `cruise_resizes_total`; none where `rules` is `seeds`.",
            _codes(ResizeCause, CAUSE_DESCRIPTIONS),
        ),
        section("Details", "What lies behind a reason that has several causes. `…` is a name or a figure.", _details()),
        section(
            "How an action ended",
            "`verdict` in the audit and in `cruise_actions_total`.",
            _codes(ActionResult, VERDICTS),
        ),
        section(
            "Samples that are refused",
            "`reason` of `cruise_samples_rejected_total`: use that cannot be true.",
            _codes(SampleRejection, REJECTION_DESCRIPTIONS),
        ),
        section(
            "Answers of the webhook",
            "`answer` and `reason` of `cruise_webhook_reviews_total`. Pods are created whatever it is; with `left`, "
            "`reason` may be any of the reasons above too.",
            table(("answer", "reason", "meaning"), _answers()),
        ),
        section("What a scan finds", "`kind` of a container at risk, worst first.", _risks()),
        section(
            "What keeps a pod pending",
            "`blockedBy` of `cruise pack`; a resource, such as `cpu`, goes by its own name.",
            _codes(PlacementObstacle, OBSTACLES),
        ),
        section("What is proved of a packing plan", "`status` of `cruise pack`.", _codes(PackingStatus, STATUSES)),
        section(
            "How far a packing plan is carried out",
            "`outcome` of `cruise_packing_plans_total`.",
            _codes(PlanPhase, PHASES),
        ),
        section(
            "Clients that are turned away",
            "`reason` of `cruise_http_connections_rejected_total`.",
            _codes(ConnectionRejection, TURNED_AWAY),
        ),
    )


def _codes(codes: Iterable[Enum], words: Mapping[Any, str]) -> str:
    return table(_HEADINGS, ((code(one.value), words.get(one, "")) for one in codes))


def _details() -> str:
    return table(_HEADINGS, ((code(one.value), DETAIL_DESCRIPTIONS[one].format("…")) for one in ReasonDetail))


def _risks() -> str:
    return table(
        ("code", "in tables", "meaning"),
        ((code(one.value), RISK_TITLES[one], RISKS.get(one, "")) for one in ContainerRiskKind),
    )


def _answers() -> Iterator[tuple[str, str, str]]:
    for answer, reason in sorted(list_webhook_answers()):
        yield code(answer), code(reason), ANSWERS.get((answer, reason), "")


def list_webhook_answers() -> set[tuple[str, str]]:
    """Return what the webhook counts beside the reasons of decisions."""
    constants = {one for name, one in vars(admission_reviewer).items() if name.isupper() and _is_verdict(one)}
    source = Path(cruise.kube_json.admission_review.__file__).read_text(encoding="utf-8")
    bounds = {("left", reason) for reason in re.findall(r'ReviewTooLarge\("([a-z-]+)"', source)}
    return constants | bounds | {("mutated", size.value) for size in AdmissionSize} | {("mutated", "stated")}


def _is_verdict(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)
