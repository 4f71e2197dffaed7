"""What cruise ships is made from traces alone, and judged on places that it was not made of."""

import json

import numpy as np
import pytest

from benchmarks import headroom_prior
from benchmarks.headroom_outcomes import DAY_SECONDS, outcomes_of
from benchmarks.headroom_prior import place_scores
from benchmarks.headroom_promise import rows_of, table_of
from cruise.decisions.sizing.headroom.scores import BUCKETS
from cruise.domain.resources import ResourceName
from tests.backtest.recordings.written_traces import write_trace

HOURS = 26


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Two sources of a day and two hours; one of them spikes far oftener than the other."""
    directory = tmp_path_factory.mktemp("traces")
    random = np.random.default_rng(5)
    made = []
    for name, spiking in (("calm-a", 0.001), ("wild-a", 0.02)):
        use = random.uniform(80, 120, (12 * HOURS, 8)) * np.where(random.random((12 * HOURS, 8)) < spiking, 5, 1)
        made.append(write_trace(directory / name, use, "Made up\n300 s steps."))
    return made


def test_the_same_traces_make_the_same_bytes_of_counts_alone(traces, capsys, monkeypatch):
    written = []
    for order in (traces, traces[::-1]):
        monkeypatch.setattr("sys.argv", ["headroom_prior", *map(str, order)])
        headroom_prior.main()
        written.append(capsys.readouterr().out)
    assert written[0] == written[1]
    document = json.loads(written[0])
    assert document["sources"]["calm-a"] == "Made up: 300 s steps."
    assert {tuple(one) for one in document["scores"]} == {("trace", "resource", "firstDay", "later")}


def test_a_first_day_and_later_ones_are_counted_apart(traces):
    [outcomes] = outcomes_of(traces[0], 4, 2)
    first = int((outcomes.at < outcomes.start + DAY_SECONDS).sum())
    scores = place_scores(outcomes)
    assert (scores.resource, len(scores.first_day)) == (ResourceName.CPU, BUCKETS)
    assert (scores.first_day.sum(), scores.later.sum()) == (4 * first, 4 * (len(outcomes.at) - first))


def test_a_place_is_judged_by_what_others_left_and_the_worst_comes_first(traces):
    found = [one for trace in traces for one in outcomes_of(trace, 8, 2)]
    rows = rows_of(found, [place_scores(one) for one in found], size=8)
    assert [row.times_asked for row in rows] == sorted((row.times_asked for row in rows), reverse=True)
    expected = [(name, risk) for name in ("calm-a", "wild-a") for risk in (1e-3, 1e-2, 7e-2)]
    assert sorted((row.trace, row.asked) for row in rows) == expected
    # Spikes of one pod in a thousand times tell nothing of twenty times as many; a day of own scores does.
    assert all(row.prior.share <= 2 * row.asked for row in rows if row.asked > 1e-3)
    assert len(list(table_of(rows))) == 2 + len(rows)
