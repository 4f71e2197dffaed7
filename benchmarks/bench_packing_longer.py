"""Packing clusters like the paper's within ten seconds: instances that a second does not prove."""

from benchmarks.bench_packing import PAPER_WORKERS, SEEDS, PackingRun, run_cruise, run_paper
from benchmarks.packing_instances import PAPER_RANGE, draw_pending
from benchmarks.table import BenchmarkRow
from cruise.packer.warm_up import warm_up_kernels

NAME = "packing-10s"
SHORT_SECONDS, LONG_SECONDS = 1.0, 10.0
PROVED_SHARE = 0.95


def run() -> list[BenchmarkRow]:
    """Measure every shape and seed, one after the other; instances proved within a second are not repeated."""
    warm_up_kernels()
    short: list[PackingRun] = []
    longer: list[PackingRun] = []
    papers: list[PackingRun] = []
    for instance in (draw_pending(shape, seed) for shape in PAPER_RANGE for seed in SEEDS):
        short.append(run_cruise(instance, SHORT_SECONDS))
        longer.append(short[-1] if short[-1].proved else run_cruise(instance, LONG_SECONDS))
        papers.append(run_paper(instance, LONG_SECONDS))
        contradicted = short[-1].counts_proved and short[-1].placed < papers[-1].placed
        assert not contradicted, (short[-1].placed, papers[-1].placed)
    return _rows(short, longer, papers)


def _rows(short: list[PackingRun], longer: list[PackingRun], papers: list[PackingRun]) -> list[BenchmarkRow]:
    count = len(short)

    def share(results: list[PackingRun], counts_only: bool) -> float:
        return 100 * sum(r.counts_proved if counts_only else r.proved for r in results) / count

    def fewer(results: list[PackingRun]) -> int:
        return sum(mine.placed < theirs.placed for mine, theirs in zip(results, papers, strict=True))

    proved, paper = share(longer, False), f"paper, {PAPER_WORKERS} workers, {share(papers, False):.0f} %"
    seconds = sum(r.seconds for r in papers) / count
    return [
        BenchmarkRow(
            NAME, f"all {count}: proved", proved, "%", f"95 % promised, {paper}", proved / (100 * PROVED_SHARE)
        ),
        BenchmarkRow(
            NAME, f"all {count}: counts proved", share(longer, True), "%", f"paper {share(papers, True):.0f} %"
        ),
        BenchmarkRow(NAME, f"all {count}: mean", sum(r.seconds for r in longer) / count, "s", f"paper {seconds:.2f} s"),
        BenchmarkRow(
            NAME, f"all {count}: fewer placed in 1 s than the paper in 10 s", fewer(short), "plans", "0 promised"
        ),
        BenchmarkRow(
            NAME, f"all {count}: fewer placed in 10 s than the paper in 10 s", fewer(longer), "plans", "0 promised"
        ),
    ]
