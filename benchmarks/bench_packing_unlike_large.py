"""Full clusters of five makes with 500 to 5,000 nodes, by the packer and by the simple way."""

from benchmarks.bench_packing_unlike import Shape, measure
from benchmarks.table import Row
from benchmarks.unlike_clusters import Budgets

NAME = "packing-unlike-large"
LIMIT_SECONDS = 30.0
SHAPES: tuple[Shape, ...] = (
    (500, 30, 4, Budgets.USUAL, 100),
    (1000, 30, 4, Budgets.USUAL, 100),
    (1000, 60, 6, Budgets.SHUT, 101),
    (5000, 30, 1, Budgets.USUAL, 100),
    (5000, 30, 4, Budgets.USUAL, 100),
)


def run() -> list[Row]:
    """Measure each cluster once, the kernels warm; the worst of all comes last."""
    return measure(NAME, SHAPES, LIMIT_SECONDS)
