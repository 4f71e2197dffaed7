"""Which pods of a replay may be touched, decided again only where something has changed that the answer depends on."""

import numpy as np

from cruise.backtest.policies.known_statistics import KnownStatistics
from cruise.backtest.policies.replayed_pods import ReplayedPods
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.policy import ClusterView
from cruise.decisions.guidance.eligibility import Touchable
from cruise.decisions.sizing.candidate_columns import CandidateColumns, candidate_columns
from cruise.domain.annotations import Guidance
from cruise.domain.arrays import Int64Array
from cruise.domain.policy import Policy

_UNJUDGED = -1


class TouchablePods:
    """The verdicts of the rules on which pods may be touched, and the columns of those that may."""

    def __init__(self, recording: Recording, pods: ReplayedPods, policy: Policy) -> None:
        count = len(recording.containers)
        names = [(one.namespace, one.pod) for one in recording.containers]
        self._pods = pods
        self._policy = policy
        self._by_name = np.array(sorted(range(count), key=names.__getitem__), dtype=np.int64)
        # What each verdict was given on: whether there are statistics, their age and the workload's, and which pod.
        self._judged_on = np.full((count, 2), _UNJUDGED, dtype=np.int64)
        self._verdicts: list[Touchable | None] = [None] * count
        self._touched = np.zeros(count, dtype=np.bool_)
        self._candidates: CandidateColumns | None = None
        self._guidances: list[Guidance] = []

    def candidates(self, view: ClusterView, known: KnownStatistics) -> tuple[CandidateColumns, Int64Array]:
        """Return the touchable pods, and their containers, sorted by name."""
        placed = view.node >= 0
        state = self._state(view, known)
        changed = placed & ((self._judged_on[:, 0] != state) | (self._judged_on[:, 1] != view.born))
        again = np.flatnonzero(changed)
        if len(again):
            eligibility = self._pods.eligibility(view, known.of(again), self._policy)
            for container in again.tolist():
                verdict = eligibility.of(self._pods.pod(container, view))
                self._verdicts[container] = self._shared(verdict) if isinstance(verdict, Touchable) else None
                self._touched[container] = isinstance(verdict, Touchable)
            self._judged_on[again, 0], self._judged_on[again, 1] = state[again], view.born[again]
        gone = self._touched & ~placed
        self._touched[gone] = False
        self._judged_on[gone] = _UNJUDGED
        chosen = self._by_name[self._touched[self._by_name]]
        if self._candidates is None or len(again) or gone.any():
            pods = [verdict for verdict in map(self._verdicts.__getitem__, chosen.tolist()) if verdict is not None]
            self._candidates = candidate_columns(pods, {}, self._policy)
        return self._candidates, chosen

    def _shared(self, verdict: Touchable) -> Touchable:
        """Return a verdict with the same object for the same guidance: the columns work out bounds once for each."""
        for known in self._guidances:
            if known == verdict.guidance:
                return verdict._replace(guidance=known)
        self._guidances.append(verdict.guidance)
        return verdict

    def _state(self, view: ClusterView, known: KnownStatistics) -> Int64Array:
        """Tell containers without statistics, with old ones and of new workloads apart, as `Eligibility` does."""
        state = np.zeros(len(known.row_of), dtype=np.int64)
        spoken_for = np.flatnonzero(known.row_of >= 0)
        rows = known.row_of[spoken_for]
        stale = known.columns.updated_at[rows] < view.at - int(self._policy.max_age.total_seconds())
        young = known.columns.history_since[rows] > view.at - int(self._policy.new_workload_age.total_seconds())
        state[spoken_for] = 1 + 2 * stale + 4 * young
        return state
