"""Which pods are resized for a plan, and to what."""

from dataclasses import replace
from datetime import timedelta

from cruise.decisions.packing.problem import FULL_MODE, UsageInputs, build_packing_problem
from cruise.decisions.packing.proposal import MoveOrderFailure, build_proposal
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ClusterSnapshot, Container, Node, Pod, QosClass
from cruise.domain.packing_plan import PackingProposal, PackingSizes
from cruise.domain.policy import GuaranteedPolicy
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.domain.resources import MEBIBYTE, Resources, StatedResources
from cruise.domain.usage import Statistic, StatisticsTable
from cruise.packer.answer import build_packing, compute_figures
from cruise.packer.greedy import pack_quickly
from tests.builders import NOW
from tests.decisions.packing.shop import make_shop_pod
from tests.decisions.packing.test_count_current_requests import statistic


def node(name: str = "n1", cpu: int = 1000) -> Node:
    return Node(name, Resources(cpu, 4096 * MEBIBYTE))


def proposed(
    snapshot: ClusterSnapshot,
    *rows: Statistic,
    places: dict[str, int] | None = None,
    unsizable: frozenset[str] = frozenset(),
) -> PackingProposal | MoveOrderFailure:
    """Propose the result of the quick method, or the `places` of some pods."""
    usage = UsageInputs(StatisticsTable.from_rows(rows), NOW, not_resizable=unsizable)
    built = build_packing_problem(snapshot, FULL_MODE, PackingSizes.RIGHTSIZED, usage)
    if places is None:
        return build_proposal(built, pack_quickly(built.problem))
    pod_node = built.problem.pod_node.copy()
    for at, pod in enumerate(built.pods):
        pod_node[at] = places.get(pod.name, pod_node[at])
    bound = compute_figures(built.problem, pod_node).get_key(built.problem.objective)
    return build_proposal(built, build_packing(built.problem, pod_node, bound))


def resized(proposal: PackingProposal | MoveOrderFailure) -> list[tuple[str, str | None, int | None]]:
    assert isinstance(proposal, PackingProposal)
    return [(one.pod, one.node, one.containers[0].requests.cpu_millicores) for one in proposal.resizes]


def test_only_one_neighbour_that_frees_enough_is_resized() -> None:
    pods = (make_shop_pod("a", "n1", 400), make_shop_pod("b", "n1", 600), make_shop_pod("new", cpu=300))
    found = proposed(
        ClusterSnapshot(nodes=(node(),), pods=pods),
        statistic("a", base=150, peak=300),
        statistic("b", base=150, peak=300),
    )
    # Bases 150 each and the newcomer's own 300: of the largest headroom of 150 each gets its half.
    assert resized(found) == [("b", "n1", 225)]
    assert isinstance(found, PackingProposal)
    assert [(len(stage.resizes), [one.pod for one in stage.arrivals]) for stage in found.stages] == [(1, ["new"])]


def test_a_pending_pod_shrinks_from_its_peak_where_that_alone_does() -> None:
    pods = (make_shop_pod("a", "n1", 700, owner_kind=None, workload=None), make_shop_pod("new", cpu=400))
    found = proposed(ClusterSnapshot(nodes=(node(),), pods=pods), statistic(base=100, peak=300))
    assert resized(found) == [("new", None, 300)]


def test_no_pod_is_resized_where_there_is_free_capacity() -> None:
    pods = (make_shop_pod("a", "n1", 400), make_shop_pod("new", cpu=600))
    assert resized(proposed(ClusterSnapshot(nodes=(node(),), pods=pods), statistic(base=100, peak=300))) == []


def test_a_moved_pod_is_recreated_with_the_size_for_its_new_node() -> None:
    pods = (make_shop_pod("a", "n1", 900), make_shop_pod("new", cpu=900, owner_kind=None, workload=None))
    snapshot = ClusterSnapshot(nodes=(node(), node("n2", 500)), pods=pods)
    found = proposed(snapshot, statistic(base=100, peak=300), places={"a": 1, "new": 0})
    assert isinstance(found, PackingProposal)
    assert found.resizes == ()
    (move,) = found.moves
    assert [target.requests.cpu_millicores for target in move.containers] == [300]
    assert found.stages[0].evictions == (move,)


def unwritable() -> tuple[ClusterSnapshot, Statistic]:
    """A neighbour that a LimitRange keeps from giving back what its statistics say it could."""
    item = LimitRangeItem(is_for_pod=True, maximum=StatedResources(None, 1 << 40))  # no container states a limit
    pods: tuple[Pod, ...] = (
        make_shop_pod("a", "n1", 900),
        make_shop_pod("new", cpu=500, owner_kind=None, workload=None),
    )
    return ClusterSnapshot(nodes=(node(),), pods=pods, limit_ranges={"shop": (item,)}), statistic(base=100, peak=300)


def test_a_pod_that_cannot_shrink_is_named_and_unchanged() -> None:
    snapshot, row = unwritable()
    found = proposed(snapshot, row)
    assert found == MoveOrderFailure(PlanCondition(PlanStatusReason.NODE_TOO_SMALL, "n1"), frozenset({"uid-a"}))
    again = proposed(snapshot, row, unsizable=frozenset({"uid-a"}))
    assert isinstance(again, PackingProposal)
    assert [one.pod for one in again.unplaced] == ["new"]


def test_a_full_node_accepts_pods_that_request_none_of_the_exhausted_resource() -> None:
    nothing = make_shop_pod("new", owner_kind=None, workload=None)
    nothing = replace(
        nothing, containers=(replace(nothing.containers[0], requests=StatedResources(None, 5 * MEBIBYTE)),)
    )
    pods = (make_shop_pod("a", "n1", 1500, owner_kind=None, workload=None), nothing)
    found = proposed(ClusterSnapshot(nodes=(node(),), pods=pods), statistic())
    assert isinstance(found, PackingProposal)
    assert [one.pod for one in found.placed] == ["new"]


def test_a_guaranteed_pod_shrinks_to_its_largest_use_with_equal_limits() -> None:
    amounts = StatedResources(800, 1024 * MEBIBYTE)
    guaranteed = make_shop_pod("a", "n1", containers=(Container("app", requests=amounts, limits=amounts),))
    guaranteed = replace(guaranteed, qos=QosClass.GUARANTEED)
    policy = replace(FULL_MODE, guaranteed=GuaranteedPolicy.RESIZE, memory_limit_history=timedelta(days=7))
    row = statistic("a", base=100, peak=300)
    usage = UsageInputs(StatisticsTable.from_rows([row]), NOW)

    def propose(cpu: int) -> PackingProposal | MoveOrderFailure:
        new = make_shop_pod("new", cpu=cpu, owner_kind=None, workload=None)
        snapshot = ClusterSnapshot(nodes=(node(),), pods=(guaranteed, new))
        built = build_packing_problem(snapshot, policy, PackingSizes.RIGHTSIZED, usage)
        return build_proposal(built, pack_quickly(built.problem))

    # 1.5 x its peak of 300m; with its base of 100m the pod of 551m would have fitted as well.
    found = propose(550)
    assert resized(found) == [("a", "n1", 450)]
    assert isinstance(found, PackingProposal)
    assert found.resizes[0].containers[0].limits == found.resizes[0].containers[0].requests
    assert resized(propose(551)) == []
