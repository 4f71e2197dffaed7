"""Selecting the samples of known pods where other clusters cannot be distinguished."""

from datetime import UTC, datetime

import numpy as np

from cruise.adapters.prometheus.queries import SeriesLabelValues, SeriesMatrix
from cruise.adapters.prometheus.seen_pods import ObservedPods, extract_pod_uid, has_generated_name
from cruise.domain.usage import ContainerKey
from tests.builders import make_node, make_pod, make_snapshot

UID, OTHER = "0a1b2c3d-1111-4222-8333-0123456789ab", "9f8e7d6c-1111-4222-8333-0123456789ab"
TIMES = 60 * np.arange(1, 6)


def seen(now: float = 300.0) -> ObservedPods:
    pods = ObservedPods()
    created = datetime.fromtimestamp(180, UTC)
    pods.add_snapshot(make_snapshot([make_pod("db-0", uid=UID, created_at=created)], [make_node("n1")]), now)
    return pods


def matrix(*names: tuple[str, str]) -> SeriesMatrix:
    return SeriesMatrix(
        [SeriesLabelValues("shop", pod, "app", id_, "n1") for pod, id_ in names], np.ones((len(names), len(TIMES)))
    )


def test_a_uid_is_found_in_ids_of_both_drivers_and_in_no_other() -> None:
    assert extract_pod_uid(f"/kubepods/burstable/pod{UID}/c0ffee") == UID
    slice_ = UID.replace("-", "_")
    assert (
        extract_pod_uid(f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice_}.slice/crio-1.scope")
        == UID
    )
    # A static pod has a hash there.
    assert extract_pod_uid("/kubepods/burstable/pod2b7ad4e21d2f0f9c0fd5b5a8a9e4e0f1/c0ffee") == ""
    assert extract_pod_uid("") == ""


def test_pods_of_fixed_names_are_not_known_by_them() -> None:
    assert has_generated_name(make_pod("web-7d9f8b6c5d-bcdfg", workload="Deployment/web"))
    for pod in (make_pod("db-0", workload="StatefulSet/db"), make_pod("x", workload=None)):
        assert not has_generated_name(pod)
    assert not has_generated_name(make_pod("kube-proxy-n1", workload="DaemonSet/kube-proxy", is_mirror_pod=True))


def test_ignores_unseen_pods_and_others_with_the_same_name() -> None:
    (kept,), left_out = seen().keep_known_pods(
        [matrix(("db-0", f"/pod{UID}/c"), ("db-0", f"/pod{OTHER}/c"), ("db-1", f"/pod{OTHER}/c"))], TIMES
    )
    assert [name.id for name in kept.series] == [f"/pod{UID}/c"]
    assert not np.isnan(kept.values).any()
    assert left_out == (10, ContainerKey("shop", "db-0", "app"))


def test_without_a_uid_a_pod_counts_since_it_was_created() -> None:
    (kept,), left_out = seen().keep_known_pods([matrix(("db-0", "/a"))], TIMES)
    np.testing.assert_array_equal(np.isnan(kept.values), [[True, True, False, False, False]])
    assert left_out == (2, ContainerKey("shop", "db-0", "app"))


def test_pods_that_ended_are_known_for_some_hours() -> None:
    pods, empty = seen(), make_snapshot(nodes=[make_node("n1")])
    pods.add_snapshot(empty, 3600.0)
    assert ("shop", "db-0") in pods
    assert pods.get_covered_seconds(3600.0) == 3300.0
    again = make_snapshot([make_pod("db-0", uid=OTHER)], [make_node("n1")])
    pods.add_snapshot(again, 3900.0)
    assert (
        len(pods.keep_known_pods([matrix(("db-0", f"/pod{UID}/c"), ("db-0", f"/pod{OTHER}/c"))], TIMES)[0][0].series)
        == 2
    )
    pods.add_snapshot(empty, 20_000.0)
    assert ("shop", "db-0") not in pods
