"""One admission review in, its answer out: always allowed, patched only where nothing is in doubt."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import msgspec
import structlog

from cruise.decisions.admission import Leave, Mutate
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
    uid_in,
)
from cruise.kube_json.json_patch import tried_patch
from cruise.kube_json.owners import Owners
from cruise.kube_json.pod import PodReader
from cruise.kube_json.refusals import convert
from cruise.kube_json.wire import PodObject
from cruise.runtime.admission import Admitter

log = structlog.get_logger()

PATCHED, OBSERVED, NOT_A_NEW_POD, NOT_READY = "patched", "observed", "not-a-new-pod", "not-ready"
UNREADABLE, PATCH_IN_DOUBT, MISTAKE = "unreadable", "patch-in-doubt", "mistake"
SECONDS_BOUNDS = (0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.1)

_AS_IT_IS = Answer()

# Each answer takes about a kilobyte.
_MOST_REMEMBERED = 32_768
# What may be different a moment later without any new state: an owner that the watch had not seen yet.
_PASSING = frozenset({Reason.NO_STATISTICS, Reason.NO_CONTROLLER})


@dataclass(slots=True)
class AdmissionCounts:
    """What became of the reviews so far: `verdicts` has all of them, `failures` those that went wrong.

    `seconds` counts reviews by the first of `SECONDS_BOUNDS` that they stayed under, the last entry the slower ones.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    remembered: int = 0
    seconds: list[int] = field(default_factory=lambda: [0] * (len(SECONDS_BOUNDS) + 1))
    seconds_sum: float = 0.0


@dataclass(frozen=True, slots=True)
class _State:
    """Under what pods are admitted now; what was answered under it, by the digest of what the answer depends on."""

    admitter: Admitter
    reader: PodReader
    why_unpatched: str | None
    answers: dict[bytes, tuple[Answer, str]] = field(default_factory=dict)


class Reviewer:
    """Answers reviews under the state that it was last given; without any, pods are created as they are."""

    def __init__(self, counts: AdmissionCounts) -> None:
        self.counts = counts
        self._state: _State | None = None

    def use(self, admitter: Admitter, owners: Owners, why_unpatched: str | None = None) -> None:
        """Decide by `admitter` from now on; where `why_unpatched` names a verdict, count that and patch nothing."""
        self._state = _State(admitter, PodReader(owners), why_unpatched)

    def review(self, body: bytes) -> bytes:
        """Return the answer to a review, or to whatever came instead of one."""
        began = perf_counter()
        answer = self._review(body)
        seconds = perf_counter() - began
        counts = self.counts
        counts.seconds[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        counts.seconds_sum += seconds
        return answer

    def _review(self, body: bytes) -> bytes:
        state = self._state
        seen = glance(body) if state is not None else None
        if state is None or seen is None:
            return self._answer_in_full(body, state, None)
        uid, digest = seen
        known = state.answers.get(digest)
        if known is None:
            return self._answer_in_full(body, state, digest)
        answer, verdict = known
        self.counts.verdicts[verdict] += 1
        self.counts.remembered += 1
        return answer.to(uid)

    def _answer_in_full(self, body: bytes, state: _State | None, digest: bytes | None) -> bytes:
        uid = ""
        try:
            question = decode_question(body)
            uid = question.uid
            answer, verdict, lasting = self._decide(question, state)
        except BadInput as error:
            return self._unchanged(uid or uid_in(body), UNREADABLE, str(error))
        except Exception as error:
            # The one place where anything at all is caught: whatever is wrong with us, the pod is created.
            log.error("admission failed", uid=uid, error=repr(error), exc_info=True)
            return self._unchanged(uid or uid_in(body), MISTAKE, "cruise failed to decide; the pod is left as it is")
        self.counts.verdicts[verdict] += 1
        if digest is not None and lasting and state is not None:
            if len(state.answers) >= _MOST_REMEMBERED:
                state.answers.clear()
            state.answers[digest] = (answer, verdict)
        return answer.to(uid)

    def _decide(self, question: Question, state: _State | None) -> tuple[Answer, str, bool]:
        """Return the answer, its verdict, and whether it holds as long as the state does."""
        if state is None:
            return Answer(warnings=["cruise: not ready yet; the pod is left as it is"]), NOT_READY, False
        if not question.creates_pod:
            return _AS_IT_IS, NOT_A_NEW_POD, False
        pod = state.reader.read(pod_in_creation(question))
        created, decision = state.admitter.admit(pod)
        match decision:
            case Leave():
                return _left(decision), decision.reason.value, decision.reason not in _PASSING
            case Mutate() if state.why_unpatched is not None:
                return _AS_IT_IS, state.why_unpatched, True
            case Mutate():
                return self._patched(question, state.reader, pod, created)

    def _patched(self, question: Question, reader: PodReader, pod: Pod, created: Pod) -> tuple[Answer, str, bool]:
        def read(document: dict[str, Any]) -> Pod:
            return reader.read(placed(convert(document, PodObject), question.namespace))

        try:
            return Answer(tried_patch(msgspec.json.decode(question.object), pod, created, read)), PATCHED, True
        except BadInput as error:
            log.error("patch not sent", namespace=pod.namespace, workload=str(pod.workload), error=str(error))
            self.counts.failures[PATCH_IN_DOUBT] += 1
            return Answer(warnings=[f"cruise: {error}; the pod is left as it is"]), PATCH_IN_DOUBT, True

    def _unchanged(self, uid: str, failure: str, why: str) -> bytes:
        counts = self.counts
        counts.verdicts[failure] += 1
        counts.failures[failure] += 1
        return Answer(warnings=[f"cruise: {why}"]).to(uid)


def _left(decision: Leave) -> Answer:
    if decision.reason is not Reason.UNREADABLE_ANNOTATION:
        return _AS_IT_IS
    return Answer(warnings=[f"cruise: {decision.detail}; the pod is left as it is"])
