"""Full clusters of every make with 500 to 5,000 nodes, by the packer and by the simple way."""

from benchmarks.bench_packing_unlike import Shape, drawn, measure
from benchmarks.table import Row
from benchmarks.unlike_clusters import Budgets

NAME = "packing-unlike-large"
LIMIT_SECONDS = 10.0
EVERY: tuple[Shape, ...] = (
    (500, 60, 3, Budgets.SHUT, 101),
    (1000, 30, 6, Budgets.USUAL, 100),
    (5000, 30, 4, Budgets.USUAL, 100),
)


def run() -> list[Row]:
    """Measure each cluster once, the kernels warm; the worst of all comes last."""
    return measure(NAME, drawn(EVERY, (), 0), LIMIT_SECONDS)
