"""Which containers' memory an OOM kill raises."""

from dataclasses import replace
from datetime import timedelta

import numpy as np

from cruise.decisions.usage.oom_records import (
    raise_by_own_kills,
    raise_by_single_kills,
    raise_oom_memory_by_record,
    summarize_oom_records,
)
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import ContainerKey, OomRecord, PeakKey
from tests.builders import NOW, make_statistic, make_table

WEB = PeakKey("shop", "Deployment/web", "app", "")


def record(pod="web-1", taught_mib=600, limit_mib=600, identity="", workload="Deployment/web", hours=1) -> OomRecord:
    return OomRecord(
        namespace="shop",
        pod=pod,
        pod_uid=f"uid-{pod}",
        workload=workload,
        container="app",
        identity=identity,
        node="n1",
        finished_at=NOW - timedelta(hours=hours),
        memory_limit_bytes=limit_mib * MEBIBYTE,
        memory_request_bytes=None,
        last_working_set_bytes=None,
        oom_memory_bytes=taught_mib * MEBIBYTE,
    )


def mebibytes(values) -> list[int]:
    return [value // MEBIBYTE for value in values.tolist()]


def test_one_kill_raises_only_its_own_pod():
    lessons = summarize_oom_records([record()])
    assert lessons.by_pod == {ContainerKey("shop", "web-1", "app"): 600 * MEBIBYTE}
    assert lessons.by_key == {}
    table = raise_by_own_kills(
        make_table(make_statistic("web-1"), make_statistic("web-2"), make_statistic("")), lessons.by_pod
    )
    assert mebibytes(table.oom_memory_bytes) == [600, 0, 0]


def test_a_second_kill_raises_the_workload_to_the_larger_oom_memory():
    assert summarize_oom_records([record(), record("web-2", 700)]).by_key == {WEB: 700 * MEBIBYTE}
    assert summarize_oom_records([record(), record(hours=2)]).by_key == {WEB: 600 * MEBIBYTE}


def test_one_kill_of_a_pod_that_does_not_run_again_raises_the_workload():
    ended = replace(record("report-1", workload="CronJob/report"), applies_to_workload=True)
    lessons = summarize_oom_records([ended])
    assert lessons.by_key == {PeakKey("shop", "CronJob/report", "app", ""): 600 * MEBIBYTE}
    assert lessons.single == {}


def test_a_kill_without_oom_memory_does_not_count():
    assert summarize_oom_records([record(), record("web-2", 0)]).by_key == {}


def test_a_kill_raises_its_identity_and_a_second_one_the_others():
    db = {"workload": "StatefulSet/db"}
    own = PeakKey("shop", "StatefulSet/db", "app", "0")
    first = record("db-0", identity="0", **db)
    assert summarize_oom_records([first]).by_key == {own: 600 * MEBIBYTE}
    both = summarize_oom_records([first, record("db-1", 500, identity="1", **db)])
    assert both.by_key == {
        own: 600 * MEBIBYTE,
        own._replace(identity="1"): 500 * MEBIBYTE,
        own._replace(identity=""): 600 * MEBIBYTE,
    }


def test_the_first_kill_raises_pods_with_nearly_as_much_use():
    rows = [make_statistic(f"web-{number}", memory_base_mib=100, memory_peak_mib=900) for number in range(3)]
    rows = [replace(row, memory_last_bytes=last * MEBIBYTE) for row, last in zip(rows, (479, 480, 480), strict=True)]
    single = summarize_oom_records([record()]).single
    raised = raise_by_single_kills(make_table(*rows), np.array([7, 7, 8]), {7: single[WEB]})
    assert mebibytes(raised.oom_memory_bytes) == [0, 600, 0]


def test_a_shared_kill_raises_the_rows_of_workload_and_identity():
    rows = [
        make_statistic("db-0", workload="StatefulSet/db", identity="0"),
        make_statistic("", workload="StatefulSet/db", identity="0"),
        make_statistic("", workload="StatefulSet/db"),
    ]
    kill = record("db-0", identity="0", workload="StatefulSet/db")
    assert mebibytes(raise_oom_memory_by_record(make_table(*rows), kill, shared=False).oom_memory_bytes) == [
        600,
        600,
        0,
    ]
    assert mebibytes(raise_oom_memory_by_record(make_table(*rows), kill, shared=True).oom_memory_bytes) == [
        600,
        600,
        600,
    ]
