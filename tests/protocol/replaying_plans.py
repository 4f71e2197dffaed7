"""A run of the packing model, step by step on the simulated cluster with the real plan executor and the real writer."""

from dataclasses import replace
from datetime import datetime, timedelta

from cruise.decisions.packing.execution import start_plan
from cruise.domain.actions import EvictPod, ReasonCode, ResizePod
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.packing_plan import PackingPlan, PlannedPlacement, PlanPhase, PlanStage
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, Resources
from cruise.runtime.packing.packing_pass import gather_inputs
from cruise.runtime.packing.plan_execution import PlanExecutor
from tests.protocol.replaying import Differs, Replay
from tests.protocol.replicas import Construction, Replica, number_of
from tests.protocol.scene import EVICTABLE, UNIT, PackingWorld
from tests.runtime.packing.packing_scenes import make_planned_move, proposal
from tests.simulation.scenes import amounts
from tests.simulation.scenes import resize as make_resize

SMALL, GROWN = 3, 3
_FINISHES, _DROPS, _SHRINKS, _EVICTS, _WAITS = range(5)
_PHASES = (None, PlanPhase.IN_PROGRESS, PlanPhase.FINISHED, PlanPhase.DROPPED)
# Longer than the webhook needs for a hint, and shorter than kube-scheduler may take to bind a pod.
_STEP = timedelta(seconds=3)
# The pod has been pending for longer than kube-scheduler may take to bind it after an eviction.
_PENDING_FOR = timedelta(minutes=1)


class PackingReplay(Replay):
    """One run of the packing model."""

    world: PackingWorld

    def __init__(self, construction: Construction | None = None, *, compares: bool = True) -> None:
        super().__init__(construction, compares=compares, world=PackingWorld())
        self._elapsed = _PENDING_FOR
        self._has_begun = False
        self._resumed: set[int] = set()

    def now(self) -> datetime:
        """Return the wall time of all replicas."""
        return self.world.cluster.now + self._elapsed

    async def _acquire(self, number: str) -> None:
        self._resumed.discard(int(number))
        await super()._acquire(number)

    async def _pack(self, number: str, victim: str) -> None:
        replica = self._replicas[int(number)]
        self.counts["passes"] += 1
        snapshot = await replica.cluster.snapshot()
        inputs = await gather_inputs(snapshot, replica.store, replica.usage, replica.construction.policy, self.now())
        if inputs.allowance.total is None or inputs.allowance.total < 1:
            raise Differs(f"no eviction is left for a plan; in the model {victim} may be evicted")
        evicted = self._find(snapshot, EVICTABLE[int(victim) - 3])
        move, arrival = make_planned_move(evicted, "n2"), _make_arrival(self.world.pending)
        small = self._find(snapshot, "a")
        resizes = () if _requests(small) == SMALL else (_resize(small, SMALL, NO_RESOURCES),)
        stage = PlanStage(
            tuple(replace(one, reason=ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS) for one in resizes),
            (move,),
            (move, arrival),
        )
        await replica.store.write_packing_plan(
            start_plan(proposal(stage), self.now(), self.now(), 0.1, replica.construction.policy.mode)
        )
        await self._executor(replica).start()
        self._has_begun = False

    async def _step(self, number: str, choice: str) -> None:
        replica = self._replicas[int(number)]
        self.counts["passes"] += 1

        async def run(one: Replica) -> PackingPlan:
            executor = self._executor(one)
            plan = await executor.start()
            assert plan is not None
            after, _ = await executor.step(plan)
            return after

        replica.begin(run)
        await self._until_at(replica, "reconcile" if int(choice) in (_SHRINKS, _EVICTS) else None)
        decided = {(type(one), number_of(one.pod)) for one in replica.writer.actions if isinstance(one, _WRITES)}
        plan = await self.database.read_packing_plan()
        assert plan is not None
        [leaving] = plan.proposal.stages[0].evictions
        expected = {_SHRINKS: {(ResizePod, 0)}, _EVICTS: {(EvictPod, number_of(leaving.pod))}}
        if decided != expected.get(int(choice), set()):
            raise Differs(f"the plan's next step is {decided}, in the model it is {choice}")
        if not self._has_begun:
            self._has_begun = True
            self._elapsed += _STEP

    async def _grow(self, number: str) -> None:
        """Run what a node pass does after its decision: it would give the free unit to G."""
        replica = self._replicas[int(number)]
        self.counts["passes"] += 1

        async def run(one: Replica) -> object:
            # As the controller does before its first node pass.
            if one.number not in self._resumed and one.construction.resumes_plans:
                await self._executor(one).start()
            self._resumed.add(one.number)
            snapshot = await one.cluster.snapshot()
            pod = self._find(snapshot, "g")
            growth = Resources(0, (GROWN - _requests(pod)) * UNIT * MEBIBYTE)
            action = replace(_resize(pod, GROWN, growth), reason=ReasonCode.RIGHTSIZED)
            return await one.writer.apply_plan([action], snapshot, self.now())

        replica.begin(run)
        await self._until_at(replica, "reconcile")

    async def _bind(self) -> None:
        self.world.bind()

    async def _age(self) -> None:
        self._elapsed += self._construction.policy.pass_interval

    def _executor(self, replica: Replica) -> PlanExecutor:
        policy = replica.construction.policy
        return PlanExecutor(replica.cluster, replica.store, policy, replica.writer, replica.exclusions, self.now)

    def _find(self, snapshot: ClusterSnapshot, app: str) -> Pod:
        """Return a pod of the model's node."""
        return next(one for one in snapshot.pods if one.labels["app"] == app and one.node == "n1")

    async def _seen(self) -> str:
        plan = await self.database.read_packing_plan()
        phase = _PHASES.index(None if plan is None else plan.phase)
        return f"{await super()._seen()} {phase}{int(self.world.pending.node is not None)}"

    async def _judge_sending(self, replica: Replica) -> None:
        await super()._judge_sending(replica)
        plan = await self.database.read_packing_plan()
        is_in_progress = plan is not None and plan.phase is PlanPhase.IN_PROGRESS
        is_of_plan = replica.sent.reason is ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS
        self._judge("law_reserved", is_of_plan or not is_in_progress, "a plan counts on the node")
        if isinstance(replica.sent, EvictPod):
            sizes = self.world.seen().split()
            is_small = all(one[0] == str(SMALL) for one in sizes[:2])
            self._judge("law_actual", is_small, f"sizes are {sizes[0]}, and {sizes[1]} are actual")


_WRITES = (ResizePod, EvictPod)


def _make_arrival(pod: Pod) -> PlannedPlacement:
    return make_planned_move(pod, "n1")


def _requests(pod: Pod) -> int:
    """Return what a pod requests, in units."""
    return (pod.containers[0].requests.memory_bytes or 0) // (UNIT * MEBIBYTE)


def _resize(pod: Pod, units: int, growth: Resources) -> ResizePod:
    sizes = amounts(pod.containers[0].requests.cpu_millicores, units * UNIT)
    return replace(make_resize(pod, sizes), growth=growth)
