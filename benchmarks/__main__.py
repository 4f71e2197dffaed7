"""Runs every benchmark in a separate process, one after the other, and prints one table."""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

from rich.console import Console

from benchmarks.table import BenchmarkOutcome, BenchmarkRow, peak_memory_mib, render


def discover() -> dict[str, str]:
    """Return the module of each benchmark's NAME, sorted by module."""
    modules = sorted(f"benchmarks.{path.stem}" for path in Path(__file__).parent.glob("bench_*.py"))
    return {importlib.import_module(module).NAME: module for module in modules}


def run_module(module_name: str, result: Path) -> None:
    """Run one benchmark in this process and write its outcome to `result`."""
    module: ModuleType = importlib.import_module(module_name)
    rows: list[BenchmarkRow] = module.run()
    document = {"rows": [asdict(row) for row in rows], "peak_memory_mib": peak_memory_mib()}
    result.write_text(json.dumps(document))


def run_apart(module_name: str) -> BenchmarkOutcome:
    """Run one benchmark in a new interpreter, without the memory and caches of others."""
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "outcome.json"
        # The child writes to stderr: stdout is for the table or the document.
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks", "--run-module", module_name, "--result", str(result)],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            check=False,
        )
        if child.returncode != 0:
            return BenchmarkOutcome(failure=f"exit {child.returncode}, see above")
        document = json.loads(result.read_text())
    return BenchmarkOutcome(tuple(BenchmarkRow(**row) for row in document["rows"]), document["peak_memory_mib"])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line of `python -m benchmarks`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", help="run this benchmark alone (repeatable)")
    parser.add_argument("--list", action="store_true", help="print the benchmarks' names")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    parser.add_argument("--run-module", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if every benchmark ran, 1 if one failed, 2 for an unknown name."""
    options = parse(arguments)
    if options.run_module:
        run_module(options.run_module, options.result)
        return 0
    benchmarks = discover()
    if options.list:
        for name in benchmarks:
            print(name)
        return 0
    unknown = [name for name in options.only or () if name not in benchmarks]
    if unknown:
        print(f"no benchmark is called {unknown[0]}; there are: {', '.join(benchmarks) or 'none'}", file=sys.stderr)
        return 2
    outcomes: dict[str, BenchmarkOutcome] = {}
    for name in options.only or benchmarks:
        print(f"bench: {name}", file=sys.stderr)
        outcomes[name] = run_apart(benchmarks[name])
    if options.json:
        print(json.dumps({name: asdict(outcome) for name, outcome in outcomes.items()}))
    else:
        # Wide enough for a table in a log file or a pipe.
        console = Console() if sys.stdout.isatty() else Console(width=160)
        console.print(render(outcomes))
    return 1 if any(outcome.failure for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
