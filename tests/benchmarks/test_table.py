import io

from rich.console import Console

from benchmarks.table import BenchmarkOutcome, BenchmarkRow, number, peak_memory_mib, render


def shown(outcomes: dict[str, BenchmarkOutcome]) -> str:
    text = io.StringIO()
    Console(file=text, width=160).print(render(outcomes))
    return text.getvalue()


def test_a_figure_keeps_four_significant_digits():
    assert [number(value) for value in (0, 0.00123456, 1.23456, 314572800)] == ["0", "0.001235", "1.235", "314,572,800"]


def test_the_table_has_a_failed_benchmark_next_to_the_others():
    text = shown(
        {
            "pass": BenchmarkOutcome(
                (BenchmarkRow("pass", "deciding", 2.5, "s", "5,000 nodes", 0.5, 80.0),), peak_memory_mib=91.5
            ),
            "store": BenchmarkOutcome(failure="exit 1, see above"),
        }
    )
    assert "deciding" in text
    assert "91.5" in text
    assert "failed: exit 1" in text


def test_peak_memory_increases_with_allocations():
    before = peak_memory_mib()
    held = b"x" * (64 * 2**20)
    assert peak_memory_mib() >= before
    assert peak_memory_mib() >= len(held) / 2**20
