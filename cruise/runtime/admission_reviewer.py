"""Answers admission reviews: pods are always allowed, and patched only if nothing is uncertain."""

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
from cruise.domain.reasons import ReasonDetailCode, parse_detail_code
from cruise.errors import BadInputError
from cruise.kube_json.admission_review import (
    ReviewLimits,
    ReviewRequest,
    ReviewResponse,
    ReviewTooLargeError,
    check_element_counts,
    check_pod_size,
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
from cruise.kube_json.objects.pod import PodDecoder
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
"""The answer (`mutated`, `left` or `failed`) and its reason in one word; for a mutation, the basis of the size."""

HINTED: ReviewAnswer = ("mutated", "placement-hint")
NOT_A_POD_CREATION: ReviewAnswer = ("left", "not-a-new-pod")
NOT_READY: ReviewAnswer = ("failed", "not-ready")
UNREADABLE: ReviewAnswer = ("failed", "unreadable")
PATCH_DIFFERS: ReviewAnswer = ("failed", "patch-differs")
INTERNAL_ERROR: ReviewAnswer = ("failed", "mistake")
TOO_LARGE: ReviewAnswer = ("left", "too-large")
TOO_LATE: ReviewAnswer = ("failed", "too-late")
UNKNOWN_CALLER: ReviewAnswer = ("refused", "unknown-caller")

SECONDS_BOUNDS = (0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.1)
_UNCHANGED = ReviewResponse()
_DEFAULT_BOUNDS = ReviewLimits()
# An answer takes about a kilobyte, and its entry another hundred bytes.
_MAX_ANSWER_BYTES = 24 << 20
_ENTRY_BYTES = 100
# A decoded pod takes one or two kilobytes; texts may be kept several times.
_MAX_DECODED_BYTES = 4 << 20
# Reasons that may no longer apply a moment later, under the same state: the watch may not have the owner yet.
_TEMPORARY_REASONS = frozenset({ReasonCode.NO_STATISTICS, ReasonCode.NO_CONTROLLER, ReasonCode.LOOKUP_PENDING})
# Objects that the watch has a moment after their creation.
_DELAYED_DETAILS = frozenset({ReasonDetailCode.OWNER_NOT_SEEN, ReasonDetailCode.NAMESPACE_NOT_SEEN})
# Share of a review's time budget for waiting for these objects.
_WAIT_SHARE = 0.8

_DecidedAnswer = tuple[ReviewResponse, ReviewAnswer, bool]  # the last: whether it may be cached


class ReviewTimeout(Exception):
    """The time budget of a review is exceeded."""


class _NotInWatchYet(Exception):
    """An object that the decision needs is not in the watch yet, and the workload has statistics."""


@dataclass(slots=True)
class ReviewCounts:
    """The counts of answered reviews; `from_cache` counts those that were answered like an equal earlier one.

    `seconds` counts reviews by the first of `SECONDS_BOUNDS` that they did not exceed; its last entry counts slower
    ones.
    """

    answers: Counter[ReviewAnswer] = field(default_factory=Counter)
    from_cache: int = 0
    seconds: list[int] = field(default_factory=lambda: [0] * (len(SECONDS_BOUNDS) + 1))
    seconds_sum: float = 0.0


@dataclass(frozen=True, slots=True)
class _CachedPatch:
    """A verified patch. It applies to pods of the same decision that differ in labels and owners only.

    It changes neither of the two, and only the signature depends on them.
    """

    decision: MutatePod
    operations: bytes
    signature: str

    def to(self, created: Pod) -> bytes:
        """Return the patch for another pod."""
        signature = _signature(created)
        if signature == self.signature:
            return self.operations
        return self.operations.replace(self.signature.encode(), signature.encode())


@dataclass(frozen=True, slots=True)
class _ReviewState:
    """The state under which pods are admitted, and the answers under it, by the digest of what they depend on.

    The key of `patches` is the digest without labels and owners, and the decision's id; they are dropped together with
    the decoded pods.
    """

    admitter: PodAdmitter
    reader: PodDecoder
    unpatched: ReasonCode | None
    answers: dict[bytes, tuple[ReviewResponse, ReviewAnswer]] = field(default_factory=dict)
    patches: dict[tuple[bytes, int], _CachedPatch] = field(default_factory=dict)


class AdmissionReviewer:
    """Answers reviews under the state that was last set; without one, pods are created unchanged.

    Pods `expected` by a packing plan also get placement hints. Reviews beyond `bounds`, or not decided within
    `budget_seconds`, are answered unchanged. `clock` is monotonic, in seconds.
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
        """How many pods were decided on under the present state, which caches their decisions."""
        self._state: _ReviewState | None = None
        self._answer_bytes = 0
        self._read_bytes = 0
        self.waiting = 0
        """How many reviews are waiting for the next state."""
        self._state_changed = asyncio.Event()
        self._expected = expected
        self._bounds = bounds
        self._budget_seconds = budget_seconds
        self._clock = clock

    @property
    def ready(self) -> bool:
        """Whether there is a state to decide under."""
        return self._state is not None

    def set_state(self, admitter: PodAdmitter, owners: OwnerIndex, unpatched: ReasonCode | None = None) -> None:
        """Decide by `admitter`; with a reason in `unpatched`, send no patches and count that reason instead."""
        self._state = _ReviewState(admitter, PodDecoder(owners), unpatched)
        self.decided = self._answer_bytes = self._read_bytes = 0
        self._state_changed.set()
        self._state_changed = asyncio.Event()

    def suspend(self, reason: str) -> None:
        """Leave every pod unchanged until the next state, with a warning that states the reason."""
        self.idle_reason = reason
        self._state = None

    def now(self) -> float:
        """Return the present time, for `review`."""
        return self._clock()

    async def answer(self, body: bytes) -> bytes:
        """Return the answer to a review; wait for a moment if the watch has the pod's owner not yet."""
        received_at = self._clock()
        latest = received_at + _WAIT_SHARE * self._budget_seconds
        while True:
            try:
                return self._timed_review(body, received_at, may_wait=self._clock() < latest)
            except _NotInWatchYet:
                self.waiting += 1
                try:
                    await asyncio.wait_for(self._state_changed.wait(), max(0.0, latest - self._clock()))
                except TimeoutError:
                    return self._timed_review(body, received_at, may_wait=False)
                finally:
                    self.waiting -= 1

    def review(self, body: bytes, received_at: float | None = None) -> bytes:
        """Return the answer to a review, or to an invalid body."""
        return self._timed_review(body, received_at, may_wait=False)

    def _timed_review(self, body: bytes, received_at: float | None, *, may_wait: bool) -> bytes:
        started = self._clock()
        latest = (started if received_at is None else received_at) + self._budget_seconds
        try:
            answer = self._review(body, latest, may_wait=may_wait)
        except _NotInWatchYet:
            raise
        except ReviewTimeout:
            answer = self._answer_unchanged(find_uid(body), TOO_LATE, "there was no time to decide")
        except ReviewTooLargeError as error:
            answer = self._answer_unchanged(find_uid(body), ("left", error.reason), str(error))
        except BadInputError as error:
            answer = self._answer_unchanged(find_uid(body), UNREADABLE, str(error))
        except Exception as error:
            # The only place that catches every exception: pods must be created even if cruise has a defect.
            log.error("admission failed", error=repr(error), exc_info=True)
            answer = self._answer_unchanged(find_uid(body), INTERNAL_ERROR, "deciding failed")
        seconds = self._clock() - started
        counts = self.counts
        counts.seconds[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        counts.seconds_sum += seconds
        return answer

    def answer_unreadable(self, beginning: bytes, answer_key: ReviewAnswer, reason: str) -> bytes:
        """Return the answer to a body that is not read completely: unchanged, with a warning."""
        return self._answer_unchanged(find_uid(beginning), answer_key, reason)

    def answer_without_patch(self, answer_key: ReviewAnswer) -> None:
        """Count a review that gets no answer."""
        self.counts.answers[answer_key] += 1

    def _review(self, body: bytes, latest: float, *, may_wait: bool) -> bytes:
        state = self._state
        if state is None:
            return self._answer_unchanged(find_uid(body), NOT_READY, self.idle_reason)
        check_element_counts(body, self._bounds)
        summary = decode_summary(body)
        if summary is None or (self._expected is not None and self._expected.may_match(body)):
            return self._answer_in_full(decode_request(body), state, latest, may_wait=may_wait)
        request, digest = summary
        cached = state.answers.get(digest)
        if cached is None:
            digests = digest, compute_digest_without_names(request)
            return self._answer_in_full(request.to_request(), state, latest, *digests, may_wait=may_wait)
        answer, answer_key = cached
        self.counts.answers[answer_key] += 1
        self.counts.from_cache += 1
        return answer.render_for_request(request.uid)

    def _answer_in_full(
        self,
        request: ReviewRequest,
        state: _ReviewState,
        latest: float,
        digest: bytes | None = None,
        digest_but_names: bytes | None = None,
        *,
        may_wait: bool,
    ) -> bytes:
        self.decided += 1
        state = self._limit_decoded_pods(len(request.object), state)
        answer, answer_key, is_cacheable = self._decide(request, state, latest, digest_but_names, may_wait=may_wait)
        self.counts.answers[answer_key] += 1
        if digest is not None and is_cacheable:
            self._answer_bytes += answer.size + _ENTRY_BYTES
            if self._answer_bytes > _MAX_ANSWER_BYTES:
                state.answers.clear()
                self._answer_bytes = answer.size + _ENTRY_BYTES
            state.answers[digest] = (answer, answer_key)
        return answer.render_for_request(request.uid)

    def _limit_decoded_pods(self, read_bytes: int, state: _ReviewState) -> _ReviewState:
        """Drop decoded pods, but not answers, once they take too much memory: clients may send long texts."""
        self._read_bytes += read_bytes
        if self._read_bytes > _MAX_DECODED_BYTES:
            state.admitter.forget_pods()
            state = self._state = replace(state, reader=PodDecoder(state.reader.owners), patches={})
            self._read_bytes = read_bytes
        return state

    def _decide(
        self, request: ReviewRequest, state: _ReviewState, latest: float, digest: bytes | None, *, may_wait: bool
    ) -> _DecidedAnswer:
        """Return the answer to one pod. Raises BadInputError and ReviewTimeout."""
        if not request.creates_pod:
            return _UNCHANGED, NOT_A_POD_CREATION, False
        document = get_created_pod(request)
        try:
            check_pod_size(document, self._bounds)
        except ReviewTooLargeError as error:
            return _with_warning(str(error)), ("left", error.reason), True
        self._check_time(latest)
        pod = state.reader.read(document)
        hinted = self._answer_expected_pod(request, pod, state)
        if hinted is not None:
            return hinted
        created, decision = state.admitter.admit(pod)
        if may_wait and isinstance(decision, LeaveUnchanged) and parse_detail_code(decision.detail) in _DELAYED_DETAILS:
            if state.admitter.has_statistics(pod):
                raise _NotInWatchYet
        self._check_time(latest)
        return _build_answer(request, state, pod, created, decision, digest)

    def _check_time(self, latest: float) -> None:
        if self._clock() > latest:
            raise ReviewTimeout

    def _answer_expected_pod(self, request: ReviewRequest, pod: Pod, state: _ReviewState) -> _DecidedAnswer | None:
        """Return the answer to a pod that a packing plan expects, None for other pods.

        A dry run gets the same answer, but does not use the hint.
        """
        expected = self._expected
        if expected is None or not expected.has_any or state.unpatched is not None:
            return None
        one = expected.find(pod)
        if one is None:
            return None
        created, has_hint = state.admitter.admit_with_placement_hint(pod, one)
        if not has_hint:
            return None
        result = _build_patch(request, state.reader, pod, created, HINTED, one.node)[0]
        if result[1] == HINTED and not request.dry_run:
            expected.claim(one)
        return result

    def _answer_unchanged(self, uid: str, answer_key: ReviewAnswer, reason: str) -> bytes:
        self.counts.answers[answer_key] += 1
        return _with_warning(reason).render_for_request(uid)


def _build_answer(
    request: ReviewRequest,
    state: _ReviewState,
    pod: Pod,
    created: Pod,
    decision: MutatePod | LeaveUnchanged,
    digest: bytes | None,
) -> _DecidedAnswer:
    match decision:
        case LeaveUnchanged(reason=ReasonCode.UNREADABLE_ANNOTATION, detail=detail):
            return _with_warning(detail), ("left", decision.reason.value), True
        case LeaveUnchanged(reason=reason):
            return _UNCHANGED, ("left", reason.value), reason not in _TEMPORARY_REASONS
        case MutatePod() if state.unpatched is not None:
            return _UNCHANGED, ("left", state.unpatched.value), True
        case MutatePod():
            return _build_mutation(request, state, pod, created, decision, digest)


def _build_mutation(
    request: ReviewRequest, state: _ReviewState, pod: Pod, created: Pod, decision: MutatePod, digest: bytes | None
) -> _DecidedAnswer:
    answer_key = ("mutated", _get_size_basis(decision))
    # The cached patch keeps its decision, so that its id is not reused.
    cached = state.patches.get((digest, id(decision))) if digest is not None else None
    if cached is not None:
        return ReviewResponse(cached.to(created)), answer_key, True
    result, patch = _build_patch(request, state.reader, pod, created, answer_key)
    if digest is not None and patch:
        state.patches[digest, id(decision)] = _CachedPatch(decision, patch, _signature(created))
    return result


def _signature(created: Pod) -> str:
    return created.annotations.get(ORIGINAL_RESOURCES_SIGNATURE, "")


def _get_size_basis(decision: MutatePod) -> str:
    """Return the basis of a new pod's requests: `stated` in the template of a new revision, or the admission size."""
    return "stated" if decision.new_revision or decision.admission_size is None else decision.admission_size.value


def _build_patch(
    request: ReviewRequest, decoder: PodDecoder, pod: Pod, created: Pod, key: ReviewAnswer, node: str | None = None
) -> tuple[_DecidedAnswer, bytes]:
    """Return the patch that turns the submitted pod into the created one, preferring `node`; empty if uncertain."""

    def read(document: dict[str, Any]) -> Pod:
        return decoder.read(decode_pod_in_namespace(convert_to_struct(document, PodObject), request.namespace))

    document = decode_submitted_pod(request)
    existing_terms = get_preferred_terms(document)
    affinity = build_preferred_affinity(document, node) if node is not None else ()
    try:
        patch = build_verified_patch(document, pod, created, read, affinity)
        if node is not None:
            check_preferred_affinity(existing_terms, document, node)
    except BadInputError as error:
        log.error("patch not sent", namespace=pod.namespace, workload=str(pod.workload), error=str(error))
        return (_with_warning(str(error)), PATCH_DIFFERS, True), b""
    return (ReviewResponse(patch), key, True), patch


def _with_warning(reason: str) -> ReviewResponse:
    return ReviewResponse(warnings=[f"cruise leaves the pod as it is: {reason}"])
