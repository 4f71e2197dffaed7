"""Full clusters of every kind with 500 to 5,000 nodes, by the packer and by a simple heuristic."""

from benchmarks.bench_packing_unlike import Shape, draw_cluster, measure
from benchmarks.table import BenchmarkRow
from benchmarks.unlike_clusters import DrawnBudgets

NAME = "packing-unlike-large"
LIMIT_SECONDS = 10.0
EVERY: tuple[Shape, ...] = (
    (500, 60, 3, DrawnBudgets.SHUT, 101),
    (1000, 30, 6, DrawnBudgets.USUAL, 100),
    (5000, 30, 4, DrawnBudgets.USUAL, 100),
)


def run() -> list[BenchmarkRow]:
    """Measure each cluster once, with compiled kernels; the worst one is last."""
    return measure(NAME, draw_cluster(EVERY, (), 0), LIMIT_SECONDS)
