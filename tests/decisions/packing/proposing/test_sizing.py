"""Which pods are resized for a plan, and to what."""

from dataclasses import replace

from cruise.decisions.packing.building import AS_FULL, Usage, build_problem
from cruise.decisions.packing.proposing import NoOrder, propose
from cruise.domain.cluster import LimitRangeItem, Node, Pod, Snapshot
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.packing import Proposal, Sizes
from cruise.domain.resources import MEBIBYTE, Amounts, Resources
from cruise.domain.usage import Statistic, StatisticsTable
from cruise.packer.answer import figures_of, packing_of
from cruise.packer.pack import quick_packing
from tests.builders import NOW
from tests.decisions.packing.building.test_needs import statistic
from tests.decisions.packing.shop import a_pod


def node(name: str = "n1", cpu: int = 1000) -> Node:
    return Node(name, Resources(cpu, 4096 * MEBIBYTE))


def proposed(
    snapshot: Snapshot, *rows: Statistic, places: dict[str, int] | None = None, unsizable: frozenset[str] = frozenset()
) -> Proposal | NoOrder:
    """Propose what the quick method finds, or what `places` says of some pods."""
    usage = Usage(StatisticsTable.of_rows(rows), NOW, unsizable=unsizable)
    built = build_problem(snapshot, AS_FULL, Sizes.RIGHTSIZED, usage)
    if places is None:
        return propose(built, quick_packing(built.problem))
    pod_node = built.problem.pod_node.copy()
    for at, pod in enumerate(built.pods):
        pod_node[at] = places.get(pod.name, pod_node[at])
    bound = figures_of(built.problem, pod_node).key(built.problem.objective)
    return propose(built, packing_of(built.problem, pod_node, bound))


def resized(proposal: Proposal | NoOrder) -> list[tuple[str, str | None, int | None]]:
    assert isinstance(proposal, Proposal)
    return [(one.pod, one.node, one.containers[0].requests.cpu_millicores) for one in proposal.resizes]


def test_one_neighbour_that_gives_back_enough_is_resized_and_nobody_else() -> None:
    pods = (a_pod("a", "n1", 400), a_pod("b", "n1", 600), a_pod("new", cpu=300))
    found = proposed(
        Snapshot(nodes=(node(),), pods=pods), statistic("a", base=150, peak=300), statistic("b", base=150, peak=300)
    )
    # Bases 150 each and the newcomer's own 300: of the largest headroom of 150 each gets its half.
    assert resized(found) == [("b", "n1", 225)]
    assert isinstance(found, Proposal)
    assert [(len(stage.resizes), [one.pod for one in stage.arrivals]) for stage in found.stages] == [(1, ["new"])]


def test_a_pending_pod_shrinks_from_its_peak_where_that_alone_does() -> None:
    pods = (a_pod("a", "n1", 700, owner_kind=None, workload=None), a_pod("new", cpu=400))
    found = proposed(Snapshot(nodes=(node(),), pods=pods), statistic(base=100, peak=300))
    assert resized(found) == [("new", None, 300)]


def test_nobody_is_resized_where_there_is_room() -> None:
    pods = (a_pod("a", "n1", 400), a_pod("new", cpu=600))
    assert resized(proposed(Snapshot(nodes=(node(),), pods=pods), statistic(base=100, peak=300))) == []


def test_who_moves_is_created_with_the_size_for_its_new_node() -> None:
    pods = (a_pod("a", "n1", 900), a_pod("new", cpu=900, owner_kind=None, workload=None))
    snapshot = Snapshot(nodes=(node(), node("n2", 500)), pods=pods)
    found = proposed(snapshot, statistic(base=100, peak=300), places={"a": 1, "new": 0})
    assert isinstance(found, Proposal)
    assert found.resizes == ()
    (move,) = found.moves
    assert [target.requests.cpu_millicores for target in move.containers] == [300]
    assert found.stages[0].leaves == (move,)


def unwritable() -> tuple[Snapshot, Statistic]:
    """A neighbour that a LimitRange keeps from giving back what its statistics say it could."""
    item = LimitRangeItem(of_pod=True, maximum=Amounts(None, 1 << 40))  # no container states a limit
    pods: tuple[Pod, ...] = (a_pod("a", "n1", 900), a_pod("new", cpu=500, owner_kind=None, workload=None))
    return Snapshot(nodes=(node(),), pods=pods, limit_ranges={"shop": (item,)}), statistic(base=100, peak=300)


def test_who_cannot_be_made_smaller_is_named_and_then_left_as_it_is() -> None:
    snapshot, row = unwritable()
    found = proposed(snapshot, row)
    assert found == NoOrder(Halt(HaltCode.NODE_TOO_SMALL, "n1"), frozenset({"uid-a"}))
    again = proposed(snapshot, row, unsizable=frozenset({"uid-a"}))
    assert isinstance(again, Proposal)
    assert [one.pod for one in again.unplaced] == ["new"]


def test_a_node_that_is_over_already_takes_who_asks_for_nothing_of_that() -> None:
    nothing = a_pod("new", owner_kind=None, workload=None)
    nothing = replace(nothing, containers=(replace(nothing.containers[0], requests=Amounts(None, 5 * MEBIBYTE)),))
    pods = (a_pod("a", "n1", 1500, owner_kind=None, workload=None), nothing)
    found = proposed(Snapshot(nodes=(node(),), pods=pods), statistic())
    assert isinstance(found, Proposal)
    assert [one.pod for one in found.placed] == ["new"]
