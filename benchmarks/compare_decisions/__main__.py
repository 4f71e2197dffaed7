"""Compares the decisions of two checkouts byte for byte: plan, scan, explain, pack and backtest.

    python -m benchmarks.compare_decisions --before DIR --after DIR --clusters 40
    python -m benchmarks.compare_decisions --before DIR --save REFERENCE --traces traces/*
    python -m benchmarks.compare_decisions --reference REFERENCE --after DIR --traces traces/*

Both checkouts run on the same inputs, which are drawn with fixed seeds; a reference has the inputs and the results of
its checkout. Durations in the output are ignored. Messages on standard error may be reworded on purpose, so their
differences are counted separately. If names in the output changed on purpose, list them for --renamed.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.compare_decisions.cases import CASES_FILE, read_cases, write_inputs
from benchmarks.compare_decisions.comparison import (
    Checkout,
    Reference,
    RenamedSide,
    Side,
    compare,
    print_progress,
    read_renamed,
)

_CLUSTERS = 200
_DIFFERENT, _UNUSABLE = 1, 2


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare_decisions",
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    first = parser.add_mutually_exclusive_group(required=True)
    first.add_argument("--before", type=Path, metavar="DIR", help="the earlier checkout")
    first.add_argument("--reference", type=Path, metavar="DIR", help="its results, as written with --save")
    second = parser.add_mutually_exclusive_group(required=True)
    second.add_argument("--after", type=Path, metavar="DIR", help="the later checkout")
    second.add_argument("--save", type=Path, metavar="DIR", help="run --before only, and save the missing results")
    parser.add_argument("--renamed", type=Path, metavar="FILE", help='lines "old TAB new", replaced in earlier output')
    parser.add_argument("--clusters", type=int, default=_CLUSTERS, metavar="N", help=f"by default {_CLUSTERS}")
    parser.add_argument("--traces", type=Path, nargs="+", default=(), metavar="DIR", help="none by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes per checkout")
    parser.add_argument("--differences", type=Path, metavar="DIR", help="the directory for differing pairs")
    options = parser.parse_args(arguments)
    if options.save and options.reference:
        parser.error("--save needs --before")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all output and exit codes are equal, 1 if any differ, 2 if the reference is incomplete."""
    options = parse(arguments)
    differences = options.differences or Path(tempfile.gettempdir()) / f"cruise-differences-{os.getpid()}"
    with ExitStack() as stack:
        root = options.reference or options.save
        if root is None:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cruise-inputs-")))
        inputs = (root / "inputs").resolve()
        if not (inputs / CASES_FILE).exists():
            print_progress(f"drawing {options.clusters} clusters")
            write_inputs(inputs, options.clusters)
        cases = read_cases(inputs, options.clusters, options.traces)

        def open_checkout(directory: Path) -> Checkout:
            checkout = Checkout(directory, inputs, options.jobs)
            stack.callback(checkout.close)
            return checkout

        before: Side
        if options.before:
            before = open_checkout(options.before)
            before = Reference(root, before) if options.save else before
        else:
            before = saved = Reference(root)
            if missing := saved.find_missing(cases):
                print_progress(
                    f"{root} lacks {len(missing)} cases, e.g. {missing[0]}; add them with --before DIR --save {root}"
                )
                return _UNUSABLE
        after = open_checkout(options.after) if options.after else before
        if options.renamed and options.after:
            before = RenamedSide(before, read_renamed(options.renamed))
        counts = compare(cases, before, after, options.jobs, differences)
    for line in counts.format_table():
        print(line)
    if differences.exists():
        print(f"differing pairs: {differences}")
    return _DIFFERENT if counts.different else 0


if __name__ == "__main__":
    sys.exit(main())
