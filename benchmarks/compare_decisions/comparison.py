"""Runs every case on two sides and counts the differences. A side is a checkout, or the saved results of one."""

import json
import queue
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from benchmarks.compare_decisions.cases import Case, get_arguments, normalize
from benchmarks.compare_decisions.checkout_process import CheckoutProcess, CommandResult

_PROGRESS_LINES = 20

Side = Callable[[Case], CommandResult]


class Checkout:
    """Runs cases in a checkout, with one process per job."""

    def __init__(self, directory: Path, inputs: Path, jobs: int) -> None:
        self._directory, self._inputs = directory.resolve(), inputs
        self._processes = [CheckoutProcess(self._directory) for _ in range(jobs)]
        self._idle: queue.SimpleQueue[CheckoutProcess] = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)

    def __call__(self, case: Case) -> CommandResult:
        """Run a case in the next idle process."""
        process = self._idle.get()
        try:
            result = process.run(get_arguments(case, self._inputs))
        finally:
            self._idle.put(process)
        texts = [normalize(text, self._inputs, self._directory) for text in (result.output, result.errors)]
        return CommandResult(result.exit_code, *texts)

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.close()


class Reference:
    """Saved results; with a side to run, missing results are computed and saved."""

    def __init__(self, directory: Path, run: Side | None = None) -> None:
        self._results, self._run = directory / "results", run
        self._results.mkdir(exist_ok=True)

    def __call__(self, case: Case) -> CommandResult:
        """Return the saved result of a case."""
        file = self._get_file(case)
        if self._run is not None and not file.exists():
            unfinished = file.with_suffix(".unfinished")
            unfinished.write_text(json.dumps(asdict(self._run(case))))
            unfinished.replace(file)
        return CommandResult(**json.loads(file.read_text()))

    def find_missing(self, cases: Iterable[Case]) -> list[str]:
        """Return the names of the cases without a saved result."""
        return [case.name for case in cases if not self._get_file(case).exists()]

    def _get_file(self, case: Case) -> Path:
        return self._results / f"{case.name}.json"


class RenamedSide:
    """A side whose output has the names of a later checkout: one text is replaced with another, in order."""

    def __init__(self, side: Side, names: Sequence[tuple[str, str]]) -> None:
        self._side, self._names = side, names

    def __call__(self, case: Case) -> CommandResult:
        """Run a case and replace the names in its output."""
        result = self._side(case)
        output = result.output
        for old, new in self._names:
            output = output.replace(old, new)
        return replace(result, output=output)


def read_renamed(file: Path) -> list[tuple[str, str]]:
    """Read a list of names: one per line, the old text, a tab and the new text. Raises ValueError."""
    names = []
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        old, tab, new = line.partition("\t")
        if not tab or not old:
            raise ValueError(f"{file}: line {number}: not an old text, a tab and a new text")
        names.append((old, new))
    return names


@dataclass(slots=True)
class ComparisonCounts:
    """The numbers of equal and different cases of each kind, and of cases with different messages on standard error."""

    equal: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)
    different_errors: Counter[str] = field(default_factory=Counter)

    def add(self, case: Case, before: CommandResult, after: CommandResult) -> bool:
        """Count a case; return whether anything differs."""
        equal = (before.exit_code, before.output) == (after.exit_code, after.output)
        (self.equal if equal else self.different)[case.kind] += 1
        self.different_errors[case.kind] += before.errors != after.errors
        return before != after

    def format_table(self) -> Iterator[str]:
        """Yield the lines of the table."""
        yield f"{'kind':16}{'cases':>8}{'equal':>8}{'different':>11}{'stderr differs':>16}"
        for kind in sorted(self.equal | self.different):
            equal, different = self.equal[kind], self.different[kind]
            yield f"{kind:16}{equal + different:8}{equal:8}{different:11}{self.different_errors[kind]:16}"


def compare(cases: Sequence[Case], before: Side, after: Side, jobs: int, differences: Path) -> ComparisonCounts:
    """Run every case on both sides; write differing pairs to a directory, and progress to standard error."""
    counts = ComparisonCounts()
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(lambda case: (before(case), after(case)), case): case for case in cases}
        for done, future in enumerate(as_completed(running), start=1):
            case, (first, second) = running[future], future.result()
            if counts.add(case, first, second):
                _write_pair(case, first, second, differences)
                print_progress(f"differs: {case.name}: cruise {' '.join(case.arguments)}")
            if done % max(len(cases) // _PROGRESS_LINES, 1) == 0 or done == len(cases):
                print_progress(f"{done} of {len(cases)} cases, {counts.different.total()} different")
    return counts


def print_progress(text: str) -> None:
    """Write a line of progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def _write_pair(case: Case, before: CommandResult, after: CommandResult, differences: Path) -> None:
    """Write two files to compare; JSON is indented, unless only its layout differs."""
    differences.mkdir(parents=True, exist_ok=True)
    first, second = (_indent_json(result.output) for result in (before, after))
    if first == second:
        first, second = before.output, after.output
    for result, text, suffix in ((before, first, "before"), (after, second, "after")):
        head = f"cruise {' '.join(case.arguments)}\nexit {result.exit_code}\n{result.errors}\n"
        (differences / f"{case.name}.{suffix}").write_text(head + text)


def _indent_json(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=1)
    except ValueError:
        return text
