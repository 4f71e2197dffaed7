"""Runs every case by two sides, a checkout or what one saved earlier, and keeps account of what differs."""

import json
import queue
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.compare_decisions.cases import Case, arguments_of, normalised
from benchmarks.compare_decisions.checkout_process import CheckoutProcess, CommandResult

_REPORTS = 20

Side = Callable[[Case], CommandResult]


class Checkout:
    """Runs cases in a checkout, in as many processes at once as there are jobs."""

    def __init__(self, directory: Path, inputs: Path, jobs: int) -> None:
        self._directory, self._inputs = directory.resolve(), inputs
        self._processes = [CheckoutProcess(self._directory) for _ in range(jobs)]
        self._idle: queue.SimpleQueue[CheckoutProcess] = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)

    def __call__(self, case: Case) -> CommandResult:
        """Run a case in the next process that is idle."""
        process = self._idle.get()
        try:
            result = process.run(arguments_of(case, self._inputs))
        finally:
            self._idle.put(process)
        texts = [normalised(text, self._inputs, self._directory) for text in (result.output, result.errors)]
        return CommandResult(result.exit_code, *texts)

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.close()


class Reference:
    """Results that were saved; with a side to run, those that are missing are run and saved."""

    def __init__(self, directory: Path, run: Side | None = None) -> None:
        self._results, self._run = directory / "results", run
        self._results.mkdir(exist_ok=True)

    def __call__(self, case: Case) -> CommandResult:
        """Return what was saved."""
        file = self._file(case)
        if self._run is not None and not file.exists():
            unfinished = file.with_suffix(".unfinished")
            unfinished.write_text(json.dumps(asdict(self._run(case))))
            unfinished.replace(file)
        return CommandResult(**json.loads(file.read_text()))

    def missing(self, cases: Iterable[Case]) -> list[str]:
        """Return the names of cases that were not saved."""
        return [case.name for case in cases if not self._file(case).exists()]

    def _file(self, case: Case) -> Path:
        return self._results / f"{case.name}.json"


@dataclass(slots=True)
class ComparisonCounts:
    """How many cases of each kind were equal, how many differ, and how many in standard error."""

    equal: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)
    reworded: Counter[str] = field(default_factory=Counter)

    def add(self, case: Case, before: CommandResult, after: CommandResult) -> bool:
        """Count a case; return whether anything differs."""
        same = (before.exit_code, before.output) == (after.exit_code, after.output)
        (self.equal if same else self.different)[case.kind] += 1
        self.reworded[case.kind] += before.errors != after.errors
        return before != after

    def lines(self) -> Iterator[str]:
        """Yield the table."""
        yield f"{'kind':16}{'cases':>8}{'equal':>8}{'different':>11}{'stderr differs':>16}"
        for kind in sorted(self.equal | self.different):
            equal, different = self.equal[kind], self.different[kind]
            yield f"{kind:16}{equal + different:8}{equal:8}{different:11}{self.reworded[kind]:16}"


def compare(cases: Sequence[Case], before: Side, after: Side, jobs: int, differences: Path) -> ComparisonCounts:
    """Run every case by both sides; what differs is written into a directory, and progress to standard error."""
    tally = ComparisonCounts()
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(lambda case: (before(case), after(case)), case): case for case in cases}
        for done, future in enumerate(as_completed(running), start=1):
            case, (first, second) = running[future], future.result()
            if tally.add(case, first, second):
                _write_pair(case, first, second, differences)
                print_result(f"differs: {case.name}: cruise {' '.join(case.arguments)}")
            if done % max(len(cases) // _REPORTS, 1) == 0 or done == len(cases):
                print_result(f"{done} of {len(cases)} cases, {tally.different.total()} different")
    return tally


def print_result(text: str) -> None:
    """Write a line of progress."""
    print(text, file=sys.stderr, flush=True)


def _write_pair(case: Case, before: CommandResult, after: CommandResult, differences: Path) -> None:
    """Write two files for a diff; JSON is laid out in lines, unless it differs in nothing but its layout."""
    differences.mkdir(parents=True, exist_ok=True)
    first, second = (_laid_out(result.output) for result in (before, after))
    if first == second:
        first, second = before.output, after.output
    for result, text, suffix in ((before, first, "before"), (after, second, "after")):
        head = f"cruise {' '.join(case.arguments)}\nexit {result.exit_code}\n{result.errors}\n"
        (differences / f"{case.name}.{suffix}").write_text(head + text)


def _laid_out(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=1)
    except ValueError:
        return text
