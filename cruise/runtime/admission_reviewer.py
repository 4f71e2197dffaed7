"""One admission review in, its answer out: always allowed, patched only where nothing is in doubt."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import structlog

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod
from cruise.domain.actions import ReasonCode
from cruise.domain.annotations import ORIGINAL_RESOURCES_SIGNATURE
from cruise.domain.cluster import Pod
from cruise.domain.reasons import ReasonDetail, parse_detail_code
from cruise.errors import BadInputError
from cruise.kube_json.admission_review import (
    ReviewLimits,
    ReviewRequest,
    ReviewResponse,
    ReviewTooLarge,
    check_elements,
    check_pod,
    compute_digest_without_names,
    decode_pod_in_namespace,
    decode_request,
    decode_submitted_pod,
    decode_summary,
    find_uid,
    get_created_pod,
)
from cruise.kube_json.object_errors import convert_to_struct
from cruise.kube_json.objects.owners import OwnerIndex
from cruise.kube_json.objects.pod import PodReader
from cruise.kube_json.patches import (
    build_preferred_affinity,
    build_verified_patch,
    check_preferred_affinity,
    get_preferred_terms,
)
from cruise.kube_json.wire.pod_json import PodObject
from cruise.runtime.admission import ExpectedPods, PodAdmitter

log = structlog.get_logger()

ReviewAnswer = tuple[str, str]
"""What was answered (`mutated`, `left` or `failed`), and the reason in one word; of a mutation what its size is by."""

HINTED: ReviewAnswer = ("mutated", "steered")
NOT_A_POD_CREATION: ReviewAnswer = ("left", "not-a-new-pod")
NOT_READY: ReviewAnswer = ("failed", "not-ready")
UNREADABLE: ReviewAnswer = ("failed", "unreadable")
PATCH_IN_DOUBT: ReviewAnswer = ("failed", "patch-in-doubt")
INTERNAL_ERROR: ReviewAnswer = ("failed", "mistake")
TOO_LARGE: ReviewAnswer = ("left", "too-large")
TOO_LATE: ReviewAnswer = ("failed", "too-late")
UNKNOWN_CALLER: ReviewAnswer = ("refused", "unknown-caller")

SECONDS_BOUNDS = (0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.1)

_AS_IT_IS = ReviewResponse()
_DEFAULT_BOUNDS = ReviewLimits()
# Mostly an answer takes about a kilobyte, and its place another hundred bytes.
_MOST_ANSWER_BYTES = 24 << 20
_PLACE_BYTES = 100
# What is read of a pod is mostly a kilobyte or two; a text may be kept several times.
_MOST_READ_BYTES = 4 << 20
# What may be different a moment later without any new state: an owner that the watch had not seen yet.
_PASSING = frozenset({ReasonCode.NO_STATISTICS, ReasonCode.NO_CONTROLLER, ReasonCode.LOOKUP_PENDING})
# What a watch shows a moment after it was created.
_SOON_SEEN = frozenset({ReasonDetail.OWNER_NOT_SEEN, ReasonDetail.NAMESPACE_NOT_SEEN})
# How much of the time for a review may be spent on waiting for that.
_WAITED_SHARE = 0.8


DecisionListener = tuple[ReviewResponse, ReviewAnswer, bool]
"""An answer, its verdict, and whether both hold as long as what is decided by does."""


class ReviewTimeout(Exception):
    """The time in which a review is decided is over."""


class _SeenSoon(Exception):
    """What decides about a pod whose workload has statistics was not seen yet; the watches will show it."""


@dataclass(slots=True)
class ReviewCounts:
    """What became of the reviews so far; `remembered` counts those that were answered as an equal one before.

    `seconds` counts reviews by the first of `SECONDS_BOUNDS` that they did not exceed, its last entry the slower ones.
    """

    answers: Counter[ReviewAnswer] = field(default_factory=Counter)
    from_cache: int = 0
    seconds: list[int] = field(default_factory=lambda: [0] * (len(SECONDS_BOUNDS) + 1))
    seconds_sum: float = 0.0


@dataclass(frozen=True, slots=True)
class _CachedPatch:
    """A patch that was tried. It holds for each pod of the decision that is written alike but for labels and owners.

    It touches neither of the two, and of what it writes the signature alone depends on them.
    """

    decision: MutatePod
    operations: bytes
    signature: str

    def to(self, created: Pod) -> bytes:
        """Return the patch that makes another pod the created one."""
        signature = _signature(created)
        if signature == self.signature:
            return self.operations
        return self.operations.replace(self.signature.encode(), signature.encode())


@dataclass(frozen=True, slots=True)
class _ReviewState:
    """Under what pods are admitted now, and what was answered under it, by the digest of what the answer depends on.

    `patches` are by the digest of that without labels and owners, and by the number of the decision; they are given up
    together with what was read.
    """

    admitter: PodAdmitter
    reader: PodReader
    unpatched: ReasonCode | None
    answers: dict[bytes, tuple[ReviewResponse, ReviewAnswer]] = field(default_factory=dict)
    patches: dict[tuple[bytes, int], _CachedPatch] = field(default_factory=dict)


class AdmissionReviewer:
    """Answers reviews under the state that it was last given; without any, pods are created as they are.

    Those `expected` by a packing plan are steered besides. What is beyond `bounds`, or not decided `budget_seconds`
    after it came, is answered unchanged. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        expected: ExpectedPods | None = None,
        bounds: ReviewLimits = _DEFAULT_BOUNDS,
        budget_seconds: float = 1.0,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.counts = ReviewCounts()
        self.idle_reason = "not ready yet"
        self.decided = 0
        """How many pods were decided on under the present state: what it remembers of them takes memory."""
        self._state: _ReviewState | None = None
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

    def set_state(self, admitter: PodAdmitter, owners: OwnerIndex, unpatched: ReasonCode | None = None) -> None:
        """Decide by `admitter` from now on; with a reason not to patch, count that in place of each mutation."""
        self._state = _ReviewState(admitter, PodReader(owners), unpatched)
        self.decided = self._answer_bytes = self._read_bytes = 0
        self._renewed.set()
        self._renewed = asyncio.Event()

    def suspend(self, why: str) -> None:
        """Leave every pod as it is from now on, with `why` as the warning."""
        self.idle_reason = why
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
        except ReviewTimeout:
            answer = self._unchanged(find_uid(body), TOO_LATE, "there was no time to decide")
        except ReviewTooLarge as error:
            answer = self._unchanged(find_uid(body), ("left", error.reason), str(error))
        except BadInputError as error:
            answer = self._unchanged(find_uid(body), UNREADABLE, str(error))
        except Exception as error:
            # The one place where anything at all is caught: whatever is wrong with cruise, the pod must be created.
            log.error("admission failed", error=repr(error), exc_info=True)
            answer = self._unchanged(find_uid(body), INTERNAL_ERROR, "deciding failed")
        seconds = self._clock() - began
        counts = self.counts
        counts.seconds[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        counts.seconds_sum += seconds
        return answer

    def answer_unreadable(self, beginning: bytes, verdict: ReviewAnswer, why: str) -> bytes:
        """Return the answer to what is not read to its end: unchanged, with a warning."""
        return self._unchanged(find_uid(beginning), verdict, why)

    def answer_without_patch(self, verdict: ReviewAnswer) -> None:
        """Count a review that is not answered at all."""
        self.counts.answers[verdict] += 1

    def _review(self, body: bytes, latest: float, *, may_wait: bool) -> bytes:
        state = self._state
        if state is None:
            return self._unchanged(find_uid(body), NOT_READY, self.idle_reason)
        check_elements(body, self._bounds)
        seen = decode_summary(body)
        if seen is None or (self._expected is not None and self._expected.may_match(body)):
            return self._answer_in_full(decode_request(body), state, latest, may_wait=may_wait)
        request, digest = seen
        known = state.answers.get(digest)
        if known is None:
            digests = digest, compute_digest_without_names(request)
            return self._answer_in_full(request.to_request(), state, latest, *digests, may_wait=may_wait)
        answer, verdict = known
        self.counts.answers[verdict] += 1
        self.counts.from_cache += 1
        return answer.for_uid(request.uid)

    def _answer_in_full(
        self,
        question: ReviewRequest,
        state: _ReviewState,
        latest: float,
        digest: bytes | None = None,
        digest_but_names: bytes | None = None,
        *,
        may_wait: bool,
    ) -> bytes:
        self.decided += 1
        state = self._with_room_for(len(question.object), state)
        answer, verdict, lasting = self._decided(question, state, latest, digest_but_names, may_wait=may_wait)
        self.counts.answers[verdict] += 1
        if digest is not None and lasting:
            self._answer_bytes += answer.size + _PLACE_BYTES
            if self._answer_bytes > _MOST_ANSWER_BYTES:
                state.answers.clear()
                self._answer_bytes = answer.size + _PLACE_BYTES
            state.answers[digest] = (answer, verdict)
        return answer.for_uid(question.uid)

    def _with_room_for(self, read_bytes: int, state: _ReviewState) -> _ReviewState:
        """Forget what was read of pods, but not the answers, once it comes to much: anybody may send long texts."""
        self._read_bytes += read_bytes
        if self._read_bytes > _MOST_READ_BYTES:
            state.admitter.forget_pods()
            state = self._state = replace(state, reader=PodReader(state.reader.owners), patches={})
            self._read_bytes = read_bytes
        return state

    def _decided(
        self, question: ReviewRequest, state: _ReviewState, latest: float, digest: bytes | None, *, may_wait: bool
    ) -> DecisionListener:
        """Return the answer to one pod, steered or not. Raises BadInputError, and ReviewTimeout."""
        if not question.creates_pod:
            return _AS_IT_IS, NOT_A_POD_CREATION, False
        document = get_created_pod(question)
        try:
            check_pod(document, self._bounds)
        except ReviewTooLarge as error:
            return _with_warning(str(error)), ("left", error.reason), True
        self._see_that_there_is_time(latest)
        pod = state.reader.read(document)
        steered = self._steered(question, pod, state)
        if steered is not None:
            return steered
        created, decision = state.admitter.admit(pod)
        if may_wait and isinstance(decision, LeaveUnchanged) and parse_detail_code(decision.detail) in _SOON_SEEN:
            if state.admitter.has_statistics(pod):
                raise _SeenSoon
        self._see_that_there_is_time(latest)
        return _answered(question, state, pod, created, decision, digest)

    def _see_that_there_is_time(self, latest: float) -> None:
        if self._clock() > latest:
            raise ReviewTimeout

    def _steered(self, question: ReviewRequest, pod: Pod, state: _ReviewState) -> DecisionListener | None:
        """Return the answer to a pod that a packing plan expects, None for any other.

        A dry run is answered alike, and takes no other pod's place.
        """
        expected = self._expected
        if expected is None or not expected.has_any or state.unpatched is not None:
            return None
        one = expected.find(pod)
        if one is None:
            return None
        created, is_steered = state.admitter.admit_with_placement_hint(pod, one)
        if not is_steered:
            return None
        decided = _patched(question, state.reader, pod, created, HINTED, one.node)[0]
        if decided[1] == HINTED and not question.dry_run:
            expected.claim(one)
        return decided

    def _unchanged(self, uid: str, verdict: ReviewAnswer, why: str) -> bytes:
        self.counts.answers[verdict] += 1
        return _with_warning(why).for_uid(uid)


def _answered(
    question: ReviewRequest,
    state: _ReviewState,
    pod: Pod,
    created: Pod,
    decision: MutatePod | LeaveUnchanged,
    digest: bytes | None,
) -> DecisionListener:
    match decision:
        case LeaveUnchanged(reason=ReasonCode.UNREADABLE_ANNOTATION, detail=detail):
            return _with_warning(detail), ("left", decision.reason.value), True
        case LeaveUnchanged(reason=reason):
            return _AS_IT_IS, ("left", reason.value), reason not in _PASSING
        case MutatePod() if state.unpatched is not None:
            return _AS_IT_IS, ("left", state.unpatched.value), True
        case MutatePod():
            return _mutated(question, state, pod, created, decision, digest)


def _mutated(
    question: ReviewRequest, state: _ReviewState, pod: Pod, created: Pod, decision: MutatePod, digest: bytes | None
) -> DecisionListener:
    verdict = ("mutated", _size(decision))
    # The patch keeps its decision, so that no other one comes by its number.
    known = state.patches.get((digest, id(decision))) if digest is not None else None
    if known is not None:
        return ReviewResponse(known.to(created)), verdict, True
    decided, patch = _patched(question, state.reader, pod, created, verdict)
    if digest is not None and patch:
        state.patches[digest, id(decision)] = _CachedPatch(decision, patch, _signature(created))
    return decided


def _signature(created: Pod) -> str:
    return created.annotations.get(ORIGINAL_RESOURCES_SIGNATURE, "")


def _size(decision: MutatePod) -> str:
    """Name what a new pod's requests are by: `stated` is no less than its template, which is a new revision's."""
    return "stated" if decision.new_revision else decision.admission_size.value


def _patched(
    question: ReviewRequest, reader: PodReader, pod: Pod, created: Pod, verdict: ReviewAnswer, node: str | None = None
) -> tuple[DecisionListener, bytes]:
    """Return the patch that makes a submitted pod the created one, and with `node` prefer that; empty if in doubt."""

    def read(document: dict[str, Any]) -> Pod:
        return reader.read(decode_pod_in_namespace(convert_to_struct(document, PodObject), question.namespace))

    document = decode_submitted_pod(question)
    before = get_preferred_terms(document)
    beside = build_preferred_affinity(document, node) if node is not None else ()
    try:
        patch = build_verified_patch(document, pod, created, read, beside)
        if node is not None:
            check_preferred_affinity(before, document, node)
    except BadInputError as error:
        log.error("patch not sent", namespace=pod.namespace, workload=str(pod.workload), error=str(error))
        return (_with_warning(str(error)), PATCH_IN_DOUBT, True), b""
    return (ReviewResponse(patch), verdict, True), patch


def _with_warning(why: str) -> ReviewResponse:
    return ReviewResponse(warnings=[f"cruise leaves the pod as it is: {why}"])
