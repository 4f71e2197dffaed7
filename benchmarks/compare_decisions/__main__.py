"""Compares what two checkouts decide, byte for byte: plan, scan, explain, pack and backtest.

    python -m benchmarks.compare_decisions --before DIR --after DIR --clusters 40
    python -m benchmarks.compare_decisions --before DIR --save REFERENCE --traces traces/*
    python -m benchmarks.compare_decisions --reference REFERENCE --after DIR --traces traces/*

Inputs are drawn with fixed seeds, once for both; a reference keeps them with the results of its checkout. Seconds in
the output do not count. Messages on standard error may be reworded on purpose, so they are counted apart.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.compare_decisions.cases import CASES_FILE, read_cases, write_inputs
from benchmarks.compare_decisions.comparison import Checkout, Reference, Side, compare, print_result

_CLUSTERS = 200
_DIFFERENT, _UNUSABLE = 1, 2


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare_decisions",
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    first = parser.add_mutually_exclusive_group(required=True)
    first.add_argument("--before", type=Path, metavar="DIR", help="the checkout to compare with")
    first.add_argument("--reference", type=Path, metavar="DIR", help="its results, as --save left them")
    second = parser.add_mutually_exclusive_group(required=True)
    second.add_argument("--after", type=Path, metavar="DIR", help="the checkout that is compared")
    second.add_argument("--save", type=Path, metavar="DIR", help="run --before alone; what is saved already stays")
    parser.add_argument("--clusters", type=int, default=_CLUSTERS, metavar="N", help=f"by default {_CLUSTERS}")
    parser.add_argument("--traces", type=Path, nargs="+", default=(), metavar="DIR", help="none by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes of a checkout")
    parser.add_argument("--differences", type=Path, metavar="DIR", help="where differing pairs are written")
    options = parser.parse_args(arguments)
    if options.save and options.reference:
        parser.error("--save needs --before")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where all output and exit codes are equal, 1 where any differ, 2 where a reference lacks some."""
    options = parse(arguments)
    differences = options.differences or Path(tempfile.gettempdir()) / f"cruise-differences-{os.getpid()}"
    with ExitStack() as stack:
        root = options.reference or options.save
        if root is None:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cruise-inputs-")))
        inputs = (root / "inputs").resolve()
        if not (inputs / CASES_FILE).exists():
            print_result(f"drawing {options.clusters} clusters")
            write_inputs(inputs, options.clusters)
        cases = read_cases(inputs, options.clusters, options.traces)

        def checkout(directory: Path) -> Checkout:
            found = Checkout(directory, inputs, options.jobs)
            stack.callback(found.close)
            return found

        before: Side
        if options.before:
            before = checkout(options.before)
            before = Reference(root, before) if options.save else before
        else:
            before = saved = Reference(root)
            if missing := saved.missing(cases):
                print_result(
                    f"{root} lacks {len(missing)} cases, e.g. {missing[0]}; add them with --before DIR --save {root}"
                )
                return _UNUSABLE
        after = checkout(options.after) if options.after else before
        tally = compare(cases, before, after, options.jobs, differences)
    for line in tally.lines():
        print(line)
    if differences.exists():
        print(f"differing pairs: {differences}")
    return _DIFFERENT if tally.different else 0


if __name__ == "__main__":
    sys.exit(main())
