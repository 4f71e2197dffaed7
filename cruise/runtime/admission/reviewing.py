"""One admission review in, its answer out: always allowed, patched only where nothing is in doubt."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import structlog

from cruise.decisions.admission.admission import Leave, Mutate
from cruise.domain.actions import Reason
from cruise.domain.annotations import ORIGINAL_RESOURCES_SIGNATURE
from cruise.domain.cluster import Pod
from cruise.domain.details import Detail, code_of
from cruise.errors import BadInput
from cruise.kube_json.admission_review import (
    Answer,
    Question,
    decode_question,
    digest_but_names,
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
from cruise.kube_json.review_bounds import ReviewBounds, TooMuch, check_elements, check_pod
from cruise.kube_json.wire.pod_json import PodObject
from cruise.runtime.admission.admission import Admitter
from cruise.runtime.admission.steering import Expected

log = structlog.get_logger()

Verdict = tuple[str, str]
"""What was answered (`mutated`, `left` or `failed`), and the reason in one word; of a mutation what its size is by."""

STEERED: Verdict = ("mutated", "steered")
NOT_A_NEW_POD: Verdict = ("left", "not-a-new-pod")
NOT_READY: Verdict = ("failed", "not-ready")
UNREADABLE: Verdict = ("failed", "unreadable")
PATCH_IN_DOUBT: Verdict = ("failed", "patch-in-doubt")
MISTAKE: Verdict = ("failed", "mistake")
TOO_LARGE: Verdict = ("left", "too-large")
TOO_LATE: Verdict = ("failed", "too-late")
UNKNOWN_CALLER: Verdict = ("refused", "unknown-caller")

SECONDS_BOUNDS = (0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.1)

_AS_IT_IS = Answer()
_DEFAULT_BOUNDS = ReviewBounds()
# Mostly an answer takes about a kilobyte, and its place another hundred bytes.
_MOST_ANSWER_BYTES = 24 << 20
_PLACE_BYTES = 100
# What is read of a pod is mostly a kilobyte or two; a text may be kept several times.
_MOST_READ_BYTES = 4 << 20
# What may be different a moment later without any new state: an owner that the watch had not seen yet.
_PASSING = frozenset({Reason.NO_STATISTICS, Reason.NO_CONTROLLER, Reason.LOOKUP_PENDING})
# What a watch shows a moment after it was created.
_SOON_SEEN = frozenset({Detail.OWNER_NOT_SEEN, Detail.NAMESPACE_NOT_SEEN})
# How much of the time for a review may be spent on waiting for that.
_WAITED_SHARE = 0.8


Decided = tuple[Answer, Verdict, bool]
"""An answer, its verdict, and whether both hold as long as what is decided by does."""


class TooLate(Exception):
    """The time in which a review is decided is over."""


class _SeenSoon(Exception):
    """What decides about a pod whose workload has statistics was not seen yet; the watches will show it."""


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
class _Patch:
    """A patch that was tried. It holds for each pod of the decision that is written alike but for labels and owners.

    It touches neither of the two, and of what it writes the signature alone depends on them.
    """

    decision: Mutate
    operations: bytes
    signature: str

    def to(self, created: Pod) -> bytes:
        """Return the patch that makes another pod the created one."""
        signature = _signature(created)
        if signature == self.signature:
            return self.operations
        return self.operations.replace(self.signature.encode(), signature.encode())


@dataclass(frozen=True, slots=True)
class _State:
    """Under what pods are admitted now, and what was answered under it, by the digest of what the answer depends on.

    `patches` are by the digest of that without labels and owners, and by the number of the decision; they are given up
    together with what was read.
    """

    admitter: Admitter
    reader: PodReader
    unpatched: Reason | None
    answers: dict[bytes, tuple[Answer, Verdict]] = field(default_factory=dict)
    patches: dict[tuple[bytes, int], _Patch] = field(default_factory=dict)


class Reviewer:
    """Answers reviews under the state that it was last given; without any, pods are created as they are.

    Those `expected` by a packing plan are steered besides. What is beyond `bounds`, or not decided `budget_seconds`
    after it came, is answered unchanged. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        expected: Expected | None = None,
        bounds: ReviewBounds = _DEFAULT_BOUNDS,
        budget_seconds: float = 1.0,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.counts = AdmissionCounts()
        self.why_idle = "not ready yet"
        self.decided = 0
        """How many pods were decided on under the present state: what it remembers of them takes memory."""
        self._state: _State | None = None
        self._answer_bytes = 0
        self._read_bytes = 0
        self.waiting = 0
        """How many reviews wait for the next state."""
        self._renewed = asyncio.Event()
        self._expected = expected
        self._bounds = bounds
        self._budget_seconds = budget_seconds
        self._clock = clock

    @property
    def ready(self) -> bool:
        """Tell whether there is a state to decide under."""
        return self._state is not None

    def use(self, admitter: Admitter, owners: Owners, unpatched: Reason | None = None) -> None:
        """Decide by `admitter` from now on; with a reason not to patch, count that in place of each mutation."""
        self._state = _State(admitter, PodReader(owners), unpatched)
        self.decided = self._answer_bytes = self._read_bytes = 0
        self._renewed.set()
        self._renewed = asyncio.Event()

    def suspend(self, why: str) -> None:
        """Leave every pod as it is from now on, with `why` as the warning."""
        self.why_idle = why
        self._state = None

    def now(self) -> float:
        """Return the time now, for `review`."""
        return self._clock()

    async def answer(self, body: bytes) -> bytes:
        """Return the answer to a review; it waits for a moment where the pod came before its owner."""
        came_at = self._clock()
        latest = came_at + _WAITED_SHARE * self._budget_seconds
        while True:
            try:
                return self._timed_review(body, came_at, may_wait=self._clock() < latest)
            except _SeenSoon:
                self.waiting += 1
                try:
                    await asyncio.wait_for(self._renewed.wait(), max(0.0, latest - self._clock()))
                except TimeoutError:
                    return self._timed_review(body, came_at, may_wait=False)
                finally:
                    self.waiting -= 1

    def review(self, body: bytes, came_at: float | None = None) -> bytes:
        """Return the answer to a review, or to whatever came in its place; it may have waited since it came."""
        return self._timed_review(body, came_at, may_wait=False)

    def _timed_review(self, body: bytes, came_at: float | None, *, may_wait: bool) -> bytes:
        began = self._clock()
        latest = (began if came_at is None else came_at) + self._budget_seconds
        try:
            answer = self._review(body, latest, may_wait=may_wait)
        except _SeenSoon:
            raise
        except TooLate:
            answer = self._unchanged(uid_in(body), TOO_LATE, "there was no time to decide")
        except TooMuch as error:
            answer = self._unchanged(uid_in(body), ("left", error.reason), str(error))
        except BadInput as error:
            answer = self._unchanged(uid_in(body), UNREADABLE, str(error))
        except Exception as error:
            # The one place where anything at all is caught: whatever is wrong with cruise, the pod must be created.
            log.error("admission failed", error=repr(error), exc_info=True)
            answer = self._unchanged(uid_in(body), MISTAKE, "deciding failed")
        seconds = self._clock() - began
        counts = self.counts
        counts.seconds[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        counts.seconds_sum += seconds
        return answer

    def refuse_to_read(self, beginning: bytes, verdict: Verdict, why: str) -> bytes:
        """Return the answer to what is not read to its end: unchanged, with a warning."""
        return self._unchanged(uid_in(beginning), verdict, why)

    def refuse_to_answer(self, verdict: Verdict) -> None:
        """Count a review that is not answered at all."""
        self.counts.verdicts[verdict] += 1

    def _review(self, body: bytes, latest: float, *, may_wait: bool) -> bytes:
        state = self._state
        if state is None:
            return self._unchanged(uid_in(body), NOT_READY, self.why_idle)
        check_elements(body, self._bounds)
        seen = glance(body)
        if seen is None or (self._expected is not None and self._expected.may_concern(body)):
            return self._answer_in_full(decode_question(body), state, latest, may_wait=may_wait)
        request, digest = seen
        known = state.answers.get(digest)
        if known is None:
            digests = digest, digest_but_names(request)
            return self._answer_in_full(request.question(), state, latest, *digests, may_wait=may_wait)
        answer, verdict = known
        self.counts.verdicts[verdict] += 1
        self.counts.remembered += 1
        return answer.to(request.uid)

    def _answer_in_full(
        self,
        question: Question,
        state: _State,
        latest: float,
        digest: bytes | None = None,
        digest_but_names: bytes | None = None,
        *,
        may_wait: bool,
    ) -> bytes:
        self.decided += 1
        state = self._with_room_for(len(question.object), state)
        answer, verdict, lasting = self._decided(question, state, latest, digest_but_names, may_wait=may_wait)
        self.counts.verdicts[verdict] += 1
        if digest is not None and lasting:
            self._answer_bytes += answer.size + _PLACE_BYTES
            if self._answer_bytes > _MOST_ANSWER_BYTES:
                state.answers.clear()
                self._answer_bytes = answer.size + _PLACE_BYTES
            state.answers[digest] = (answer, verdict)
        return answer.to(question.uid)

    def _with_room_for(self, read_bytes: int, state: _State) -> _State:
        """Forget what was read of pods, but not the answers, once it comes to much: anybody may send long texts."""
        self._read_bytes += read_bytes
        if self._read_bytes > _MOST_READ_BYTES:
            state.admitter.forget_pods()
            state = self._state = replace(state, reader=PodReader(state.reader.owners), patches={})
            self._read_bytes = read_bytes
        return state

    def _decided(
        self, question: Question, state: _State, latest: float, digest: bytes | None, *, may_wait: bool
    ) -> Decided:
        """Return the answer to one pod, steered or not. Raises BadInput, and TooLate."""
        if not question.creates_pod:
            return _AS_IT_IS, NOT_A_NEW_POD, False
        document = pod_in_creation(question)
        try:
            check_pod(document, self._bounds)
        except TooMuch as error:
            return _with_warning(str(error)), ("left", error.reason), True
        self._see_that_there_is_time(latest)
        pod = state.reader.read(document)
        steered = self._steered(question, pod, state)
        if steered is not None:
            return steered
        created, decision = state.admitter.admit(pod)
        if may_wait and isinstance(decision, Leave) and code_of(decision.detail) in _SOON_SEEN:
            if state.admitter.has_statistics(pod):
                raise _SeenSoon
        self._see_that_there_is_time(latest)
        return _answered(question, state, pod, created, decision, digest)

    def _see_that_there_is_time(self, latest: float) -> None:
        if self._clock() > latest:
            raise TooLate

    def _steered(self, question: Question, pod: Pod, state: _State) -> Decided | None:
        """Return the answer to a pod that a packing plan expects, None for any other.

        A dry run is answered alike, and takes no other pod's place.
        """
        expected = self._expected
        if expected is None or not expected.any or state.unpatched is not None:
            return None
        one = expected.find(pod)
        if one is None:
            return None
        created, is_steered = state.admitter.admit_steered(pod, one)
        if not is_steered:
            return None
        decided = _patched(question, state.reader, pod, created, STEERED, one.node)[0]
        if decided[1] == STEERED and not question.dry_run:
            expected.claim(one)
        return decided

    def _unchanged(self, uid: str, verdict: Verdict, why: str) -> bytes:
        self.counts.verdicts[verdict] += 1
        return _with_warning(why).to(uid)


def _answered(
    question: Question, state: _State, pod: Pod, created: Pod, decision: Mutate | Leave, digest: bytes | None
) -> Decided:
    match decision:
        case Leave(reason=Reason.UNREADABLE_ANNOTATION, detail=detail):
            return _with_warning(detail), ("left", decision.reason.value), True
        case Leave(reason=reason):
            return _AS_IT_IS, ("left", reason.value), reason not in _PASSING
        case Mutate() if state.unpatched is not None:
            return _AS_IT_IS, ("left", state.unpatched.value), True
        case Mutate():
            return _mutated(question, state, pod, created, decision, digest)


def _mutated(
    question: Question, state: _State, pod: Pod, created: Pod, decision: Mutate, digest: bytes | None
) -> Decided:
    verdict = ("mutated", _size(decision))
    # The patch keeps its decision, so that no other one comes by its number.
    known = state.patches.get((digest, id(decision))) if digest is not None else None
    if known is not None:
        return Answer(known.to(created)), verdict, True
    decided, patch = _patched(question, state.reader, pod, created, verdict)
    if digest is not None and patch:
        state.patches[digest, id(decision)] = _Patch(decision, patch, _signature(created))
    return decided


def _signature(created: Pod) -> str:
    return created.annotations.get(ORIGINAL_RESOURCES_SIGNATURE, "")


def _size(decision: Mutate) -> str:
    """Name what a new pod's requests are by: `stated` is no less than its template, which is a new revision's."""
    return "stated" if decision.new_revision else decision.size.value


def _patched(
    question: Question, reader: PodReader, pod: Pod, created: Pod, verdict: Verdict, node: str | None = None
) -> tuple[Decided, bytes]:
    """Return the patch that makes a submitted pod the created one, and with `node` prefer that; empty if in doubt."""

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
        return (_with_warning(str(error)), PATCH_IN_DOUBT, True), b""
    return (Answer(patch), verdict, True), patch


def _with_warning(why: str) -> Answer:
    return Answer(warnings=[f"cruise leaves the pod as it is: {why}"])
