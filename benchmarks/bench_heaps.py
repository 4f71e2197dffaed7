"""What JVM, Node.js and Go processes take with a bound of their heap, filled and with a tenth of it alive."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.heap_processes import PROGRAMS, compile_go, compile_java, find_program, measure_peak_bytes
from benchmarks.table import BenchmarkRow
from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.resources import MEBIBYTE

NAME = "heaps"
SIZES_MIB = (128, 256, 512, 1024, 2048, 4096)
FULL, TENTH = ("0.97", "2"), ("0.1", "6")


def run() -> list[BenchmarkRow]:
    """Measure each runtime that this machine has; `ratio` compares with what cruise counts."""
    with tempfile.TemporaryDirectory() as directory:
        return [
            _measure(name, runtime, size, command, environment)
            for size in SIZES_MIB
            for name, runtime, command, environment in _list_processes(Path(directory), size)
        ]


_Process = tuple[str, HeapRuntime, Sequence[str], Mapping[str, str]]


def _list_processes(directory: Path, size: int) -> Iterator[_Process]:
    if find_program("javac"):
        classes = compile_java(directory)
        for collector in ("Serial", "G1", "Parallel"):
            # As in a container whose limit is twice the heap: without, the first heap is a share of this machine.
            options = [f"-XX:MaxRAM={2 * size}m", f"-Xmx{size}m", f"-XX:+Use{collector}GC", "-XX:-UseGCOverheadLimit"]
            command = ["java", *options, "-cp", str(classes), "Fill"]
            yield f"JVM {collector}, full", HeapRuntime.JVM, [*command, *FULL, "40"], {}
            yield f"JVM {collector}, a tenth", HeapRuntime.JVM, [*command, *TENTH, "40"], {}
    if find_program("node"):
        command = ["node", f"--max-old-space-size={size}", str(PROGRAMS / "fill.js")]
        yield "Node.js, full", HeapRuntime.NODE, [*command, "2", "0"], {}
        yield "Node.js, a tenth", HeapRuntime.NODE, [*command, *TENTH], {}
    if find_program("go"):
        program, limit = str(compile_go(directory)), {"GOMEMLIMIT": f"{size}MiB"}
        yield "Go, full", HeapRuntime.GO, [program, "0.9", "2"], limit
        yield "Go, a tenth", HeapRuntime.GO, [program, *TENTH], limit
        yield "Go, GOGC=off, a tenth", HeapRuntime.GO, [program, *TENTH], limit | {"GOGC": "off"}


def _measure(
    name: str, runtime: HeapRuntime, size: int, command: Sequence[str], environment: Mapping[str, str]
) -> BenchmarkRow:
    peak = measure_peak_bytes(command, environment)
    counted = HeapBound(runtime, "", fixed_bytes=size * MEBIBYTE).compute_memory(0, 0)
    return BenchmarkRow(NAME, f"{name}, {size} MiB", peak / MEBIBYTE, "MiB", "what cruise counts", peak / counted)
