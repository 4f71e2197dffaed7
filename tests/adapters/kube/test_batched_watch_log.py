"""Log lines about watches."""

import asyncio

from structlog.testing import capture_logs

from cruise.adapters.kube.watching import BatchedWatchLog, format_kinds, format_shared_problem


async def test_logs_an_outage_of_all_kinds_in_one_line_and_its_end_in_another():
    lines = BatchedWatchLog(delay_seconds=0.01)
    with capture_logs() as logs:
        for kind in ("pods", "nodes", "jobs", "replicasets"):
            lines.report_interruption(kind, "nobody listens", expected=False)
        await asyncio.sleep(0.05)
        for kind in ("pods", "nodes"):
            lines.report_recovery(kind)
        await asyncio.sleep(0.05)
        for kind in ("jobs", "replicasets"):
            lines.report_recovery(kind)
        await asyncio.sleep(0.05)
    assert logs == [
        {
            "event": "watch interrupted",
            "log_level": "warning",
            "kinds": "pods, nodes and 2 more",
            "because": "nobody listens",
        },
        {"event": "watch continues", "log_level": "info", "kinds": "pods, nodes and 2 more"},
    ]


async def test_logs_expected_interruptions_as_info():
    lines = BatchedWatchLog()
    with capture_logs() as logs:
        lines.report_interruption("pods", "too old", expected=True)
        lines.write()
        lines.report_interruption("pods", "too old", expected=True)
        lines.report_interruption("nodes", "forbidden", expected=False)
        lines.write()
        lines.write()
    assert [(one["log_level"], one["because"]) for one in logs] == [
        ("info", "too old"),
        ("warning", "too old (and 1 more like it)"),
    ]


def test_few_kinds_are_all_named():
    assert format_kinds(["pods", "nodes", "jobs"]) == "pods, nodes, jobs"
    assert format_shared_problem({"pods": "gone", "nodes": "gone"}) == "gone"
