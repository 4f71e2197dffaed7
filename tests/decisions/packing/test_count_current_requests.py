"""The requests of pods whose sizes are variables."""

from dataclasses import replace

from cruise.decisions.packing.problem import FULL_MODE, BuiltProblem, UsageInputs, build_packing_problem
from cruise.domain.cluster import ClusterSnapshot, Container, ContainerRole, Pod
from cruise.domain.packing_plan import PackingSizes
from cruise.domain.resources import MEBIBYTE, ResizePending, ResizeState, Resources, StatedResources
from cruise.domain.usage import Statistic, StatisticKey, StatisticsTable
from cruise.packer.problem import PackingObjective
from tests.builders import NOW, NOW_SECONDS
from tests.decisions.packing.shop import make_shop_node, make_shop_pod


def statistic(pod: str = "", container: str = "app", base: int = 100, peak: int = 400) -> Statistic:
    return Statistic(
        StatisticKey("shop", pod, "Deployment/web", container),
        updated_at=NOW_SECONDS,
        history_since=NOW_SECONDS - 200 * 3600,
        cpu_base_millicores=base,
        cpu_peak_millicores=peak,
        memory_base_bytes=base * MEBIBYTE,
        memory_peak_bytes=peak * MEBIBYTE,
        memory_7d_max_bytes=peak * MEBIBYTE,
    )


def sized(
    *pods: Pod, unsizable: frozenset[str] = frozenset(), rows: tuple[Statistic, ...] = (statistic(),)
) -> BuiltProblem:
    usage = UsageInputs(StatisticsTable.from_rows(rows), NOW, not_resizable=unsizable)
    snapshot = ClusterSnapshot(nodes=(make_shop_node("n1"),), pods=pods)
    return build_packing_problem(snapshot, FULL_MODE, PackingSizes.RIGHTSIZED, usage)


def needs(built: BuiltProblem) -> list[tuple[list[int], list[int]]]:
    """CPU and memory in MiB: demand and headroom of each pod."""
    problem = built.problem
    rows = []
    for pod_class in problem.pod_class.tolist():
        demand, headroom = problem.demands[pod_class], problem.headroom[pod_class]
        rows.append(
            (
                [int(demand[0]), int(demand[1]) // MEBIBYTE],
                [int(headroom[0]), int(headroom[1]) // MEBIBYTE],
            )
        )
    return rows


def test_a_pending_pod_takes_its_workloads_base_and_shares_its_headroom() -> None:
    built = sized(make_shop_pod("a", "n1"), make_shop_pod("b"), rows=(statistic(), statistic("a", base=50, peak=450)))
    assert needs(built) == [([50, 50], [400, 400]), ([100, 100], [300, 300])]
    assert built.problem.objective is PackingObjective.OPERATOR


def test_overhead_and_init_containers_count_as_the_scheduler_counts_them() -> None:
    warm = Container("warm", ContainerRole.INIT, StatedResources(300, 10 * MEBIBYTE))
    pod = make_shop_pod("a", "n1", overhead=Resources(20, 5 * MEBIBYTE))
    pod = replace(pod, containers=(warm, *pod.containers))
    assert needs(sized(pod)) == [([320, 105], [300, 300])]


def test_who_cannot_be_sized_takes_what_is_counted() -> None:
    waiting = ResizeState(ResizePending.DEFERRED, NOW)
    built = sized(
        make_shop_pod("a", "n1", resize=waiting),
        make_shop_pod("b", "n1"),
        make_shop_pod("c", "n1", owner_kind=None, workload=None),
        unsizable=frozenset({"uid-b"}),
    )
    assert needs(built) == [([500, 1024], [0, 0])] * 3


def test_pending_pods_of_the_highest_priority_are_displaced_by_no_pod() -> None:
    built = sized(make_shop_pod("high", "n1", priority=5), make_shop_pod("low", "n1"), make_shop_pod("new", priority=5))
    problem = built.problem
    by_name = {pod.name: bool(problem.preemptible[problem.pod_class[at]]) for at, pod in enumerate(built.pods)}
    assert by_name == {"high": False, "low": True, "new": False}
