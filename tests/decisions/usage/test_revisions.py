"""Revisions of a workload, as detected from its pods pass by pass."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from cruise.decisions.usage.estimation import OWN_SAMPLES_SECONDS
from cruise.decisions.usage.revisions import find_mixed_revisions, get_revisions_in_use, update_revisions
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import Pod
from cruise.domain.original_resources import (
    NO_REVISIONS,
    RevisionPeriod,
    WorkloadContainer,
    WorkloadRevisions,
    format_original_resources,
    get_resources_at_creation,
)
from cruise.domain.records import RETENTION
from tests.builders import (
    NOW_SECONDS,
    make_amounts,
    make_container,
    make_pod,
    make_statistic,
    make_statistic_for,
    make_table,
)

AT = NOW_SECONDS
KEY = WorkloadContainer("shop", "Deployment/web", "app")
MINUTE, HOUR = 60, 3600


def pod(name: str, cpu: int, minutes: int, **more) -> Pod:
    """A pod of Deployment web that was created some minutes ago."""
    created_at = datetime.fromtimestamp(AT - minutes * MINUTE, UTC)
    return make_pod(name, containers=[make_container(cpu=cpu)], created_at=created_at, **more)


def learned(*pods: Pod, known=NO_REVISIONS, at=AT, originals=None, refresh=False) -> WorkloadRevisions:
    return update_revisions(known, pods, originals or {}, at, refresh=refresh).revisions


def is_new(revisions: WorkloadRevisions, one: Pod, minutes: int, at=AT) -> bool:
    return revisions.is_new(one, revisions.get_resources_at_creation(one), at - minutes * MINUTE)


def test_a_revision_is_new_until_pods_of_it_have_run_for_so_long():
    old, fresh = pod("web-1", 400, 9000), pod("web-2", 2000, 20)
    revisions = learned(old, fresh)
    assert [is_new(revisions, fresh, minutes) for minutes in (19, 21, 30)] == [False, True, True]
    # The next pod of it is as new; pods of the previous revision are not, even if just created.
    assert is_new(revisions, pod("web-3", 2000, 0), 30)
    assert not is_new(revisions, pod("web-4", 400, 0), 30)
    assert is_new(revisions, pod("web-5", 300, 0), 30)
    assert not is_new(revisions, fresh, 30, at=AT + 10 * MINUTE)


def test_the_first_revision_that_is_known_of_a_workload_is_not_new():
    assert not is_new(learned(pod("web-1", 400, 1)), pod("web-2", 400, 0), 30)
    assert not is_new(NO_REVISIONS, pod("web-1", 400, 0), 30)
    # Nor is it after the next revision.
    assert not is_new(learned(pod("web-1", 400, 5), pod("web-2", 500, 1)), pod("web-3", 400, 0), 30)


def test_a_revision_is_kept_after_its_pods_are_gone():
    revisions = learned(pod("web-1", 400, 9000))
    later = learned(pod("web-2", 2000, 50), known=revisions)
    assert not is_new(later, pod("web-3", 400, 0), 30)
    assert is_new(revisions, pod("web-3", 500, 0), 30)


def test_a_pod_that_was_pending_runs_since_it_was_seen_running():
    old, waiting = pod("web-1", 400, 9000), pod("web-2", 2000, 60, node=None)
    revisions = learned(old, waiting)
    assert revisions.runs[KEY].keys() == set(get_resources_at_creation(old))
    bound = replace(waiting, node="n1", phase="Running")
    revisions = learned(old, bound, known=revisions, at=AT + MINUTE)
    assert revisions.runs[KEY][get_resources_at_creation(bound)[0]] == RevisionPeriod(AT + MINUTE, AT + MINUTE)


def test_a_pod_states_its_original_resources_after_resizes():
    old = pod("web-1", 400, 9000)
    kept = format_original_resources({"app": (make_amounts(400, 128), make_amounts())})
    annotated = pod("web-2", 70, 10, annotations={ORIGINAL_RESOURCES: kept})
    stored = pod("web-3", 80, 10)
    revisions = learned(
        old, annotated, stored, originals={stored.uid: {"app": (make_amounts(400, 128), make_amounts())}}
    )
    assert revisions.runs[KEY].keys() == set(get_resources_at_creation(old))
    resized = replace(old, containers=(make_container(cpu=90),))
    again = learned(resized, annotated, stored, known=revisions, at=AT + MINUTE)
    assert again.runs is revisions.runs
    assert not is_new(again, resized, 30)


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"app": 1}'])
def test_an_annotation_that_cruise_did_not_write_is_ignored(text):
    assert get_resources_at_creation(
        pod("web-1", 400, 0, annotations={ORIGINAL_RESOURCES: text})
    ) == get_resources_at_creation(pod("web-1", 400, 0))


def test_limits_and_missing_values_belong_to_a_revision():
    texts = {
        get_resources_at_creation(make_pod(containers=[container]))[0]
        for container in (
            make_container(),
            make_container(memory_limit_mib=256),
            make_container(cpu_limit=256),
            make_container(cpu=None),
        )
    }
    assert len(texts) == 4


def test_only_changes_are_stored_and_last_seen_once_an_hour():
    one = pod("web-1", 400, 9000)
    first = update_revisions(NO_REVISIONS, [one], {}, AT)
    assert first.changed.runs == first.revisions.runs
    second = update_revisions(first.revisions, [one, pod("web-2", 400, 0)], {}, AT + MINUTE, refresh=True)
    assert second.changed.runs == {}
    third = update_revisions(second.revisions, [one], {}, AT + HOUR, refresh=True)
    assert third.changed.runs == {
        KEY: {get_resources_at_creation(one)[0]: RevisionPeriod(AT - 9000 * MINUTE, AT + HOUR)}
    }


def test_a_revision_unseen_for_long_is_dropped():
    revisions = learned(pod("web-1", 400, 9000))
    late = AT + int(RETENTION.statistics.total_seconds())
    assert learned(known=revisions, at=late, refresh=True).runs == revisions.runs
    assert learned(known=revisions, at=late + 1, refresh=True).runs == {}


def test_bare_pods_have_no_revisions():
    assert learned(make_pod(workload=None)).runs == {}


def test_workloads_with_one_revision_are_not_grouped():
    pods = [pod("web-1", 400, 9000), pod("web-2", 400, 1), make_pod("db-0", workload="StatefulSet/db")]
    assert find_mixed_revisions(pods, learned(*pods), AT, OWN_SAMPLES_SECONDS) is None


def test_pods_that_state_the_same_are_one_group():
    pods = [
        make_pod("bare", workload=None),
        make_pod("db-0", workload="StatefulSet/db"),
        pod("web-1", 400, 9000),
        pod("web-2", 2000, 10),
        pod("web-3", 400, 25),
    ]
    mixed = find_mixed_revisions(pods, learned(*pods), AT, OWN_SAMPLES_SECONDS)
    assert mixed is not None
    assert mixed.groups.tolist() == [-1, -1, 0, 1, 0]
    # Ten minutes are too few for its own samples.
    assert np.flatnonzero(mixed.new_containers).tolist() == [3]


def test_a_snapshot_shows_the_revisions_of_pods_with_statistics():
    old, fresh = pod("web-1", 400, 9000), pod("web-2", 2000, 10)
    shown = get_revisions_in_use([old, fresh], make_table(make_statistic_for(old), make_statistic("")))
    assert is_new(shown, fresh, 30)
    assert not is_new(shown, pod("web-3", 400, 0), 30)
    # If no pod has one, it is unknown which revision the workload's statistics describe.
    assert not is_new(get_revisions_in_use([old, fresh], make_table(make_statistic(""))), fresh, 30)


def test_in_a_snapshot_pods_of_one_template_have_one_revision():
    labels = {"pod-template-hash": "7d9f8b6c5d"}
    old, fresh = pod("web-1", 70, 9000, labels=labels), pod("web-2", 400, 1, labels=labels)
    shown = get_revisions_in_use([old, fresh], make_table(make_statistic_for(old)))
    assert not is_new(shown, fresh, 30)
    assert is_new(shown, pod("web-3", 400, 1, labels={"pod-template-hash": "other"}), 30)


def test_in_a_snapshot_pods_of_one_template_that_were_resized_differently_have_one_revision():
    of_template = {"labels": {"pod-template-hash": "7d9f8b6c5d"}}
    resized, other = pod("web-1", 30, 9000, **of_template), pod("web-2", 45, 9000, **of_template)
    fresh = pod("web-3", 400, 20, **of_template)
    rows = make_table(make_statistic_for(resized), make_statistic_for(other), make_statistic(""))
    original = {"app": (make_amounts(400, 128), make_amounts(None, None))}
    recorded = replace(other, annotations={ORIGINAL_RESOURCES: format_original_resources(original)})
    for pods in ([resized, other, fresh], [fresh, other, resized], [resized, recorded, fresh]):
        shown = get_revisions_in_use(pods, rows)
        for one in pods:
            assert not is_new(shown, one, 30)
            assert not shown.is_one_of_several(one, shown.get_resources_at_creation(one), 0)
    assert shown.get_resources_at_creation(resized) == get_resources_at_creation(fresh)


def test_each_identity_has_its_own_revisions_and_peaks():
    def member(ordinal: int, cpu: int, minutes: int) -> Pod:
        more = {"workload": "StatefulSet/db", "identity": str(ordinal), "uid": f"{ordinal}-{cpu}"}
        return pod(f"db-{ordinal}", cpu, minutes, **more)

    before = learned(member(0, 400, 9000), member(1, 400, 9000))
    revisions = learned(member(0, 2000, 120), member(1, 400, 9000), known=before)
    assert not is_new(revisions, member(0, 2000, 0), 30)
    # The second identity's peaks belong to the old revision, however long others have run.
    assert is_new(revisions, member(1, 2000, 0), 30)
    # An identity that never ran inherits from all of them.
    assert not is_new(revisions, member(2, 2000, 0), 30)
