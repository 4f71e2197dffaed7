"""Which statistics pods may be sized by: what most pods are spared."""

from datetime import timedelta

from hypothesis import event, given
from hypothesis import strategies as st

from cruise.decisions.pod_policy.usable_statistics import StatisticsUsabilityCheck
from cruise.domain.policy import DEFAULT_RULES, SEED_RULES, Policy
from tests.builders import NOW
from tests.decisions.sizing.test_laws import situations


@given(situations(), st.sampled_from((DEFAULT_RULES, SEED_RULES)), st.sampled_from((0, 20, 90, 60 * 24 * 40)))
def test_own_rows_without_doubt_are_those_that_every_check_allows(cluster, rules, later_minutes):
    snapshot, statistics = cluster
    now = NOW + timedelta(minutes=later_minutes)
    usable = StatisticsUsabilityCheck(snapshot, statistics, Policy(rules=rules), now)
    for pod in snapshot.pods:
        own = usable.find_own_rows(pod, pod.sized_containers)
        event("own rows" if own is not None else "to be checked")
        if own is not None:
            rows = usable.find_rows(pod, pod.sized_containers)
            assert rows == list(own)
            assert usable.explain_unusable_for(pod, rows, is_new=False, was_killed=False) is None
            assert not usable.has_never_run(rows)
