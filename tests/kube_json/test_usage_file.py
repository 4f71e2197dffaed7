"""Usage files: every value in its column, and messages about invalid files."""

import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import Statistic, StatisticKey, StatisticsTable
from cruise.errors import BadInputError
from cruise.kube_json.usage_file import read_usage
from tests.builders import (
    LONG_AGO,
    NOW,
    Json,
    make_container,
    make_list_json,
    make_pod,
    make_snapshot,
    make_usage_item_json,
    make_usage_json,
    stamp,
)

POD = "web-7d9f8b6c5d-x2x4z"
SNAPSHOT = make_snapshot([make_pod(POD, containers=[make_container("app"), make_container("log")])])
ITEM = f"items[0] (shop/{POD} app)"
HOW = 'a usage file starts with {"apiVersion":"cruise.io/v1","kind":"UsageStatistics","items":[…'


def read(
    document: Json | bytes, snapshot: ClusterSnapshot | None = SNAPSHOT, now: datetime | None = None, size: int = 1000
) -> tuple[StatisticsTable, datetime]:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_usage((text[start : start + size] for start in range(0, len(text), size)), "usage.json", snapshot, now)


def read_items(
    *items: Json, snapshot: ClusterSnapshot | None = SNAPSHOT, now: datetime | None = None
) -> StatisticsTable:
    return read(make_usage_json(*items), snapshot, now)[0]


def error_line(document: Json | bytes, now: datetime | None = None) -> str:
    with pytest.raises(BadInputError) as refused:
        read(document, now=now)
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith("usage.json: ")
    return message.removeprefix("usage.json: ")


def error_line_of_items(*items: Json, now: datetime | None = None) -> str:
    return error_line(make_usage_json(*items), now)


def test_every_value_is_in_its_column():
    table = read_items(
        make_usage_item_json(
            cpu_base=120,
            cpu_peak=480,
            memory_base=256 * MEBIBYTE,
            memory_peak=384 * MEBIBYTE,
            memory_7d_max=400 * MEBIBYTE,
            oom=512 * MEBIBYTE,
            historySince=stamp(LONG_AGO),
        )
    )
    assert table.get_row(0) == Statistic(
        key=StatisticKey("shop", POD, "Deployment/web", "app"),
        updated_at=int(NOW.timestamp()),
        history_since=int(LONG_AGO.timestamp()),
        cpu_base_millicores=120,
        cpu_peak_millicores=480,
        memory_base_bytes=256 * MEBIBYTE,
        memory_peak_bytes=384 * MEBIBYTE,
        memory_7d_max_bytes=400 * MEBIBYTE,
        oom_memory_bytes=512 * MEBIBYTE,
        memory_last_bytes=256 * MEBIBYTE,
    )


def test_what_may_be_absent():
    item = make_usage_item_json(workload=None, unknown={"x": [1]})
    item["memory"]["lastBytes"] = 77
    table = read_items(item)
    assert table.keys[0].workload == ""
    assert table.get_row(0).history_since == 0
    assert table.get_row(0).memory_last_bytes == 77


def test_fractions_are_rounded_up_and_a_peak_may_be_below_its_base():
    row = read_items(make_usage_item_json(cpu_base=120.2, cpu_peak=3.0, memory_base=0.5)).get_row(0)
    assert (row.cpu_base_millicores, row.cpu_peak_millicores, row.memory_base_bytes) == (121, 3, 1)


def test_an_item_without_a_pod_applies_to_the_other_pods_of_the_workload():
    own = make_usage_item_json(cpu_base=1)
    of_workload = make_usage_item_json(pod=None, cpu_base=2)
    elsewhere = make_usage_item_json(pod=None, workload="Deployment/not-running", container="any")
    table = read_items(own, of_workload, elsewhere)
    workload = SNAPSHOT.pods[0].workload
    assert table.find_row("shop", POD, workload, "app", "") == 0
    assert table.find_row("shop", "web-other", workload, "app", "") == 1
    assert table.find_row("shop", POD, workload, "log", "") is None


def test_the_time_is_the_newest_item_unless_it_is_given():
    older = make_usage_item_json(container="log", updated_at=NOW - timedelta(hours=3))
    assert read(make_usage_json(older, make_usage_item_json()))[1] == NOW
    later = NOW + timedelta(days=2)
    assert read(make_usage_json(older), now=later)[1] == later


def test_a_clock_may_be_a_minute_ahead():
    assert read(make_usage_json(make_usage_item_json()), now=NOW - timedelta(seconds=60))[1] < NOW
    assert error_line_of_items(make_usage_item_json(), now=NOW - timedelta(seconds=61)) == (
        f"{ITEM}: updatedAt 2026-01-01T12:00:00Z is later than now (2026-01-01T11:58:59Z): "
        "a clock in the future? check --now"
    )


def test_one_item_a_year_after_the_others_is_a_clock_in_the_future():
    others = [make_usage_item_json(pod=None, workload=f"Deployment/w{index}") for index in range(3)]
    ahead = make_usage_item_json(updated_at=datetime(2031, 1, 1, tzinfo=UTC))
    assert error_line_of_items(*others, ahead) == (
        f"items[3] (shop/{POD} app): updatedAt 2031-01-01T00:00:00Z is more than a year after most others "
        "(2026-01-01T12:00:00Z): a clock in the future?"
    )
    within = make_usage_item_json(updated_at=NOW + timedelta(days=300))
    assert len(read_items(*others, within).keys) == 4


def test_without_a_snapshot_no_item_is_unknown():
    assert read_items(make_usage_item_json("anyone", "anywhere", container="any"), snapshot=None).keys == [
        StatisticKey("anywhere", "anyone", "Deployment/web", "any")
    ]


def test_no_items_need_a_time():
    assert error_line(make_usage_json()) == "has no items, so the time is unknown; add --now"
    table, now = read(make_usage_json(), now=NOW)
    assert (list(table.keys), now, table.cpu_base_millicores.size) == ([], NOW, 0)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (make_usage_item_json(cpu_base=-5), "cpu.baseMillicores: -5 is negative; write a number of 0 or more"),
        (make_usage_item_json(oom=-0.5), "memory.oomBytes: -0.5 is negative; write a number of 0 or more"),
        (
            make_usage_item_json(cpu_peak=math.nan),
            "cpu.peakMillicores: nan is not an amount; write a number of 0 or more",
        ),
        (
            make_usage_item_json(memory_base=math.inf),
            "memory.baseBytes: inf is not an amount; write a number of 0 or more",
        ),
        (
            make_usage_item_json(memory_7d_max=-math.inf),
            "memory.max7dBytes: -inf is not an amount; write a number of 0 or more",
        ),
        (
            make_usage_item_json(cpu_base=120_000_000),
            "cpu.baseMillicores: 120000000 is more than any machine has; write a number of 0 or more",
        ),
        (
            make_usage_item_json(memory_peak=10**30),
            f"memory.peakBytes: {10**30} is more than any machine has; write a number of 0 or more",
        ),
        (
            make_usage_item_json(memory_peak=10**400),
            f"memory.peakBytes: {10**39} is more than any machine has; write a number of 0 or more",
        ),
        (
            make_usage_item_json(cpu={"baseMillicores": "120m", "peakMillicores": 1}),
            "cpu.baseMillicores: is a text instead of a number; write a number",
        ),
        (
            make_usage_item_json(cpu={"baseMillicores": None, "peakMillicores": 1}),
            "cpu.baseMillicores: is null instead of a number; write a number",
        ),
        (
            make_usage_item_json(cpu_base=True),
            "cpu.baseMillicores: is true or false instead of a number; write a number",
        ),
        (make_usage_item_json(cpu={"baseMillicores": 1}), "cpu: has no peakMillicores; add it"),
        (make_usage_item_json(memory=3), "memory: is a whole number instead of an object; write an object"),
        (make_usage_item_json(updatedAt="yesterday"), "updatedAt: is not a time; write e.g. 2026-01-01T00:00:00Z"),
        *(
            (
                make_usage_item_json() | {name: text},
                f"{name}: {text} is not a time; write e.g. 2026-01-01T00:00:00Z",
            )
            for name in ("updatedAt", "historySince")
            for text in ("0001-01-01T00:00:00+23:59", "1969-12-31T23:59:59+00:00", "9999-12-31T23:59:59-23:59")
        ),
        (
            make_usage_item_json(updatedAt="2026-01-01T00:00:00"),
            "updatedAt: is not a time; write e.g. 2026-01-01T00:00:00Z",
        ),
        (make_usage_item_json(workload="web"), 'workload: "web" is not Kind/name; write e.g. Deployment/web'),
    ],
)
def test_a_bad_item_is_rejected_by_name_place_and_fix(item, problem):
    assert error_line_of_items(item) == f"{ITEM}: {problem}"
    # Behind a good one it is found as well.
    assert f": {problem}" in error_line_of_items(make_usage_item_json(container="log"), item)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (
            [make_usage_item_json("gone")],
            "items[0] (shop/gone app): pod: the snapshot has no such pod; "
            "take both at the same time, or remove the item",
        ),
        (
            [make_usage_item_json(container="db")],
            f"items[0] (shop/{POD} db): container: the pod has no db; it has app, log",
        ),
        (
            [make_usage_item_json(pod=None, container="db")],
            "items[0] (shop/Deployment/web db): container: no pod of the workload has db; they have app, log",
        ),
        ([make_usage_item_json(pod=None, workload=None)], "items[0]: has neither pod nor workload; add one of them"),
        (
            [make_usage_item_json(), make_usage_item_json(container="log"), make_usage_item_json(workload=None)],
            f"items[2] (shop/{POD} app): has the same subject as items[0]; remove one",
        ),
        (
            [make_usage_item_json(pod=None), make_usage_item_json(pod=None)],
            "items[1] (shop/all pods of Deployment/web app): has the same subject as items[0]; remove one",
        ),
        ([{}], "items[0]: has no namespace; add it"),
    ],
)
def test_items_for_unknown_pods_and_duplicates_are_rejected(items, message):
    assert error_line_of_items(*items) == message


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"kind": "UsageStatistics", "items": []}, f"has no apiVersion; {HOW}"),
        ({"apiVersion": "cruise.io/v1", "items": []}, f"has no kind; {HOW}"),
        (make_list_json(), f"has apiVersion v1, not cruise.io/v1; {HOW}"),
        ({"items": [{"kind": "Pod"}], "apiVersion": "v1", "kind": "List"}, "items[0]: has no namespace; add it"),
        (make_usage_json() | {"kind": "Usage"}, f"has kind Usage, not UsageStatistics; {HOW}"),
        (b"", f"empty (byte 0); write it again: {HOW}"),
        (b"namespace,pod", f"not a JSON object (byte 0); write it again: {HOW}"),
    ],
)
def test_other_documents_are_rejected(document, message):
    assert error_line(document) == message


def test_a_truncated_file_is_reported_with_its_place_and_after_what():
    whole = json.dumps(make_usage_json(make_usage_item_json(), make_usage_item_json(container="log"))).encode()
    length = whole.index(b'"log"')
    assert error_line(whole[:length]) == (
        f"truncated: the text ends inside the list (byte {length}, after {ITEM}); write it again: {HOW}"
    )


millicores = st.integers(0, 2_048_000) | st.floats(0, 2_048_000)
amounts = st.integers(0, 64 << 40) | st.floats(0, 64 << 40)


@given(st.lists(st.tuples(millicores, amounts, amounts), max_size=20), st.sampled_from([50, 1000, 1 << 20]))
def test_amounts_are_rounded_up_in_the_order_of_the_items(rows, size):
    items = [
        make_usage_item_json(f"p{index}", cpu_base=cpu, memory_peak=peak, oom=oom)
        for index, (cpu, peak, oom) in enumerate(rows)
    ]
    table, _ = read(make_usage_json(*items), None, NOW, size)
    assert [key.pod for key in table.keys] == [f"p{index}" for index in range(len(rows))]
    found = zip(table.cpu_base_millicores, table.memory_peak_bytes, table.oom_memory_bytes, strict=True)
    assert [tuple(row) for row in found] == [tuple(math.ceil(amount) for amount in row) for row in rows]
