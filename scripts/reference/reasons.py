"""The page of reasons: every code that cruise answers with, and its words."""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import cruise.kube_json.review_bounds
from cruise.app.http_bounds import TurnedAway
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.decisions.scan.risks import RiskKind
from cruise.domain.actions import Reason, Verdict, WriteCause
from cruise.domain.details import Detail
from cruise.domain.packing import Phase
from cruise.domain.policy import AdmissionSize
from cruise.domain.usage import Refusal
from cruise.interfaces.reasons import CAUSES, DETAILS, REFUSALS, WORDS
from cruise.interfaces.scan.finding_words import RISK_TITLES
from cruise.packer.answer import Status
from cruise.runtime.admission import reviewing
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
            "the audit, and the label of `cruise_pods_held` and `cruise_outcomes_total`.",
            _codes(Reason, WORDS),
        ),
        section(
            "Why a resize is worth a write",
            "`cause` of a resize in plans, in the audit and in `cruise_resizes_total`; none where `rules` is `seeds`.",
            _codes(WriteCause, CAUSES),
        ),
        section("Details", "What lies behind a reason that has several causes. `…` is a name or a figure.", _details()),
        section(
            "How an action ended", "`verdict` in the audit and in `cruise_outcomes_total`.", _codes(Verdict, VERDICTS)
        ),
        section(
            "Samples that are refused",
            "`reason` of `cruise_samples_refused_total`: use that cannot be true.",
            _codes(Refusal, REFUSALS),
        ),
        section(
            "Answers of the webhook",
            "`answer` and `reason` of `cruise_webhook_answers_total`. Pods are created whatever it is; with `left`, "
            "`reason` may be any of the reasons above too.",
            table(("answer", "reason", "meaning"), _answers()),
        ),
        section("What a scan finds", "`kind` of a container at risk, worst first.", _risks()),
        section(
            "What keeps a pod pending",
            "`blockedBy` of `cruise pack`; a resource, such as `cpu`, goes by its own name.",
            _codes(Obstacle, OBSTACLES),
        ),
        section("What is proved of a packing plan", "`status` of `cruise pack`.", _codes(Status, STATUSES)),
        section(
            "How far a packing plan is carried out", "`outcome` of `cruise_packing_plans_total`.", _codes(Phase, PHASES)
        ),
        section(
            "Clients that are turned away",
            "`reason` of `cruise_http_turned_away_total`.",
            _codes(TurnedAway, TURNED_AWAY),
        ),
    )


def _codes(codes: Iterable[Enum], words: Mapping[Any, str]) -> str:
    return table(_HEADINGS, ((code(one.value), words.get(one, "")) for one in codes))


def _details() -> str:
    return table(_HEADINGS, ((code(one.value), DETAILS[one].format("…")) for one in Detail))


def _risks() -> str:
    return table(
        ("code", "in tables", "meaning"), ((code(one.value), RISK_TITLES[one], RISKS.get(one, "")) for one in RiskKind)
    )


def _answers() -> Iterator[tuple[str, str, str]]:
    for answer, reason in sorted(answers()):
        yield code(answer), code(reason), ANSWERS.get((answer, reason), "")


def answers() -> set[tuple[str, str]]:
    """Return what the webhook counts beside the reasons of decisions."""
    constants = {one for name, one in vars(reviewing).items() if name.isupper() and _is_verdict(one)}
    source = Path(cruise.kube_json.review_bounds.__file__).read_text(encoding="utf-8")
    bounds = {("left", reason) for reason in re.findall(r'TooMuch\("([a-z-]+)"', source)}
    return constants | bounds | {("mutated", size.value) for size in AdmissionSize} | {("mutated", "stated")}


def _is_verdict(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)
