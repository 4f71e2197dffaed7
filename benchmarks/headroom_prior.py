"""Makes the scores that come with cruise, from traces: the same bytes from the same traces.

    python -m benchmarks.headroom_prior TRACE… > cruise/runtime/sizing/prior_scores.json

What comes out are counts of how far the summed demand of some series at random went beyond what was expected, in
units of what could be expected: no series, no amounts and no names. Of a trace it says where it is from, and the
licence, as its README has them.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.headroom_outcomes import DAY_SECONDS, Outcomes, outcomes_of
from cruise.decisions.sizing.headroom.scores import MEASURE, count_scores
from cruise.domain.headroom import PlaceScores
from cruise.runtime.sizing.shipped_scores import packed

# A week of many nodes: what is later is told by a cluster's own scores.
NODES = 80
DAYS = 7


def place_scores(outcomes: Outcomes) -> PlaceScores:
    """Count the scores of a trace's first week: on the day after it began, and later."""
    passes = np.flatnonzero(outcomes.at < outcomes.start + DAYS * DAY_SECONDS)
    scores = np.array([outcomes.scores(int(number)) for number in passes])
    first = outcomes.at[passes] < outcomes.start + DAY_SECONDS
    parts = (count_scores(scores[part].ravel()) for part in (first, ~first))
    return PlaceScores(outcomes.trace, outcomes.resource, MEASURE, *parts)


def document_of(places: Iterable[PlaceScores], sources: dict[str, str]) -> dict[str, Any]:
    """Return the file's content, from scores and where they are from."""
    return {
        "measure": MEASURE,
        "sources": dict(sorted(sources.items())),
        "scores": [
            {
                "trace": one.place,
                "resource": one.resource.value,
                "firstDay": packed(one.first_day),
                "later": packed(one.later),
            }
            for one in sorted(places, key=lambda one: (one.place, one.resource.value))
        ],
    }


def about(trace: Path) -> str:
    """Return what the trace's README says of its origin and licence, in one line."""
    title, _, words = (trace / "README.md").read_text(encoding="utf-8").split("\n\n")[0].partition("\n")
    return f"{title.removeprefix('# ')}: {' '.join(words.split())}"


def main() -> None:
    """Write the document to standard output."""
    arguments = argparse.ArgumentParser(description="Count the scores of traces, as cruise ships them.")
    arguments.add_argument("traces", type=Path, nargs="+")
    traces = arguments.parse_args().traces
    places = [place_scores(one) for trace in traces for one in outcomes_of(trace, NODES, DAYS)]
    json.dump(document_of(places, {one.resolve().name: about(one) for one in traces}), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
