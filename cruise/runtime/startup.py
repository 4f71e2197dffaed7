"""The startup pass: takes back the CPU that pods got for their start, within seconds after it is due."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cruise.decisions.admission.startup import decide_boost_ends, select_boosted_pods
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.domain.actions import ActionResult, Outcome, ReasonCode, ResizePod
from cruise.domain.records import RETENTION
from cruise.domain.usage import StatisticsTable
from cruise.runtime.ports import PassContext, StorePort
from cruise.runtime.writing.writer import ClusterWriter

STARTUP_INTERVAL = timedelta(seconds=5)
# What the server refused is tried, and audited, this often.
_RETRY_INTERVAL = timedelta(minutes=1)


class StartupPass:
    """Ends the boosts of started pods, each once: later a pod may have the same CPU again for its usage.

    What it knows is in the pods and in the audit, so it continues where another leader stopped.
    """

    def __init__(self, writer: ClusterWriter | None = None) -> None:
        self._writer = writer
        self._ended: set[str] = set()
        self._refused_at: dict[str, datetime] = {}

    async def run(self, inputs: PassContext) -> Sequence[Outcome]:
        """Run once. Raises UnavailableError."""
        snapshot = await inputs.cluster.snapshot()
        boosted = select_boosted_pods(snapshot, inputs.now)
        self._ended &= {pod.uid for pod in boosted}
        retried = inputs.now - _RETRY_INTERVAL
        self._refused_at = {uid: at for uid, at in self._refused_at.items() if at > retried}
        open_boosts = [pod for pod in boosted if pod.uid not in self._ended and pod.uid not in self._refused_at]
        if not open_boosts:
            return ()
        store, policy = inputs.store, inputs.policy
        of_boosts = replace(snapshot, pods=tuple(open_boosts))
        eligibility = Eligibility(
            of_boosts, StatisticsTable.from_rows([]), await store.read_paused_workloads(), policy, inputs.now
        )
        decided = decide_boost_ends(open_boosts, eligibility, await store.read_refused_resizes(), inputs.now)
        resizes = [one for one in decided if not await self._is_ended(one, store, inputs)]
        if not resizes or await store.is_paused():
            # What a pause stops is not repeated in the figures every few seconds.
            return ()
        writer = self._writer or ClusterWriter(inputs.cluster, store, policy)
        outcomes = await writer.apply_plan(resizes, of_boosts, inputs.now)
        self._ended |= {
            one.uid for one, outcome in zip(resizes, outcomes, strict=True) if outcome.result is ActionResult.DONE
        }
        self._refused_at |= {
            one.uid: inputs.now
            for one, outcome in zip(resizes, outcomes, strict=True)
            if outcome.result is ActionResult.REFUSED or outcome.reason is ReasonCode.FORBIDDEN
        }
        return outcomes

    async def _is_ended(self, resize: ResizePod, store: StorePort, inputs: PassContext) -> bool:
        """Return whether the boost was ended before: the pod has grown to the same CPU since."""
        lines = await store.read_pod_outcomes(resize.namespace, resize.pod, inputs.now - RETENTION.outcomes)
        is_ended = any(
            isinstance(one.action, ResizePod)
            and one.action.uid == resize.uid
            and one.action.reason is ReasonCode.START_COMPLETED
            and one.result is ActionResult.DONE
            for one in lines
        )
        if is_ended:
            self._ended.add(resize.uid)
        return is_ended
