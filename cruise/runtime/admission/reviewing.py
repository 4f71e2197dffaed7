"""One admission review in, its answer out: always allowed, patched only where nothing is in doubt."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import structlog

from cruise.decisions.admission.admission import Leave, Mutate
from cruise.domain.actions import Reason
from cruise.domain.cluster import Pod
from cruise.errors import BadInput
from cruise.kube_json.admission_review import (
    Answer,
    Question,
    decode_question,
    glance,
    placed,
    pod_in_creation,
    submitted,
    uid_in,
)
from cruise.kube_json.objects.owners import Owners
from cruise.kube_json.objects.pod import PodReader
from cruise.kube_json.patches.json_patch import tried_patch
from cruise.kube_json.patches.steering_patch import affinity_operations, check_affinity, preferred_terms
from cruise.kube_json.refusals import convert
from cruise.kube_json.wire.pod_json import PodObject
from cruise.runtime.admission.admission import Admitter
from cruise.runtime.admission.steering import Expected

log = structlog.get_logger()

Verdict = tuple[str, str]
"""What was answered (`mutated`, `left` or `failed`), and the reason in one word."""

MUTATED: Verdict = ("mutated", "")
STEERED: Verdict = ("mutated", "steered")
NOT_A_NEW_POD: Verdict = ("left", "not-a-new-pod")
NOT_READY: Verdict = ("failed", "not-ready")
UNREADABLE: Verdict = ("failed", "unreadable")
PATCH_IN_DOUBT: Verdict = ("failed", "patch-in-doubt")
MISTAKE: Verdict = ("failed", "mistake")

SECONDS_BOUNDS = (0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.1)

_AS_IT_IS = Answer()
# Each answer takes about a kilobyte.
_MOST_REMEMBERED = 32_768
# What may be different a moment later without any new state: an owner that the watch had not seen yet.
_PASSING = frozenset({Reason.NO_STATISTICS, Reason.NO_CONTROLLER})


@dataclass(slots=True)
class AdmissionCounts:
    """What became of the reviews so far; `remembered` counts those that were answered as an equal one before.

    `seconds` counts reviews by the first of `SECONDS_BOUNDS` that they did not exceed, its last entry the slower ones.
    """

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    remembered: int = 0
    seconds: list[int] = field(default_factory=lambda: [0] * (len(SECONDS_BOUNDS) + 1))
    seconds_sum: float = 0.0


@dataclass(frozen=True, slots=True)
class _State:
    """Under what pods are admitted now, and what was answered under it, by the digest of what the answer depends on."""

    admitter: Admitter
    reader: PodReader
    unpatched: Reason | None
    answers: dict[bytes, tuple[Answer, Verdict]] = field(default_factory=dict)


class Reviewer:
    """Answers reviews under the state that it was last given; without any, pods are created as they are.

    Those `expected` by a packing plan are steered besides.
    """

    def __init__(self, expected: Expected | None = None) -> None:
        self.counts = AdmissionCounts()
        self.why_idle = "not ready yet"
        self.decided = 0
        """How many pods were decided on under the present state: what it remembers of them takes memory."""
        self._state: _State | None = None
        self._expected = expected

    @property
    def ready(self) -> bool:
        """Tell whether there is a state to decide under."""
        return self._state is not None

    def use(self, admitter: Admitter, owners: Owners, unpatched: Reason | None = None) -> None:
        """Decide by `admitter` from now on; with a reason not to patch, count that in place of each mutation."""
        self._state = _State(admitter, PodReader(owners), unpatched)
        self.decided = 0

    def suspend(self, why: str) -> None:
        """Leave every pod as it is from now on, with `why` as the warning."""
        self.why_idle = why
        self._state = None

    def review(self, body: bytes) -> bytes:
        """Return the answer to a review, or to whatever came in its place."""
        began = perf_counter()
        try:
            answer = self._review(body)
        except BadInput as error:
            answer = self._unchanged(uid_in(body), UNREADABLE, str(error))
        except Exception as error:
            # The one place where anything at all is caught: whatever is wrong with cruise, the pod must be created.
            log.error("admission failed", error=repr(error), exc_info=True)
            answer = self._unchanged(uid_in(body), MISTAKE, "deciding failed")
        seconds = perf_counter() - began
        counts = self.counts
        counts.seconds[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        counts.seconds_sum += seconds
        return answer

    def refuse_to_read(self, beginning: bytes, why: str) -> bytes:
        """Return the answer to what is not read to its end: unchanged, with a warning."""
        return self._unchanged(uid_in(beginning), UNREADABLE, why)

    def _review(self, body: bytes) -> bytes:
        state = self._state
        if state is None:
            return self._unchanged(uid_in(body), NOT_READY, self.why_idle)
        seen = glance(body)
        if seen is None or (self._expected is not None and self._expected.may_concern(body)):
            return self._answer_in_full(body, state, None)
        uid, digest = seen
        known = state.answers.get(digest)
        if known is None:
            return self._answer_in_full(body, state, digest)
        answer, verdict = known
        self.counts.verdicts[verdict] += 1
        self.counts.remembered += 1
        return answer.to(uid)

    def _answer_in_full(self, body: bytes, state: _State, digest: bytes | None) -> bytes:
        question = decode_question(body)
        self.decided += 1
        answer, verdict, lasting = self._steered(question, state) or _decide(question, state)
        self.counts.verdicts[verdict] += 1
        if digest is not None and lasting:
            if len(state.answers) >= _MOST_REMEMBERED:
                state.answers.clear()
            state.answers[digest] = (answer, verdict)
        return answer.to(question.uid)

    def _steered(self, question: Question, state: _State) -> tuple[Answer, Verdict, bool] | None:
        """Return the answer to a pod that a packing plan expects, None for any other."""
        expected = self._expected
        if expected is None or not expected.any or state.unpatched is not None or not question.creates_pod:
            return None
        pod = state.reader.read(pod_in_creation(question))
        one = expected.find(pod)
        if one is None:
            return None
        created, is_steered = state.admitter.admit_steered(pod, one)
        if not is_steered:
            return None
        answer = _patched(question, state.reader, pod, created, one.node)
        if answer[1] == STEERED:
            expected.claim(one)
        return answer

    def _unchanged(self, uid: str, verdict: Verdict, why: str) -> bytes:
        self.counts.verdicts[verdict] += 1
        return _with_warning(why).to(uid)


def _decide(question: Question, state: _State) -> tuple[Answer, Verdict, bool]:
    """Return the answer, its verdict, and whether both hold as long as the state does."""
    if not question.creates_pod:
        return _AS_IT_IS, NOT_A_NEW_POD, False
    pod = state.reader.read(pod_in_creation(question))
    created, decision = state.admitter.admit(pod)
    match decision:
        case Leave(reason=Reason.UNREADABLE_ANNOTATION, detail=detail):
            return _with_warning(detail), ("left", decision.reason.value), True
        case Leave(reason=reason):
            return _AS_IT_IS, ("left", reason.value), reason not in _PASSING
        case Mutate() if state.unpatched is not None:
            return _AS_IT_IS, ("left", state.unpatched.value), True
        case Mutate():
            return _patched(question, state.reader, pod, created)


def _patched(
    question: Question, reader: PodReader, pod: Pod, created: Pod, node: str | None = None
) -> tuple[Answer, Verdict, bool]:
    """Return the patch that makes a submitted pod the created one, and with `node` prefer that."""

    def read(document: dict[str, Any]) -> Pod:
        return reader.read(placed(convert(document, PodObject), question.namespace))

    document = submitted(question)
    before = preferred_terms(document)
    beside = affinity_operations(document, node) if node is not None else ()
    try:
        patch = tried_patch(document, pod, created, read, beside)
        if node is not None:
            check_affinity(before, document, node)
    except BadInput as error:
        log.error("patch not sent", namespace=pod.namespace, workload=str(pod.workload), error=str(error))
        return _with_warning(str(error)), PATCH_IN_DOUBT, True
    return Answer(patch), MUTATED if node is None else STEERED, True


def _with_warning(why: str) -> Answer:
    return Answer(warnings=[f"cruise leaves the pod as it is: {why}"])
