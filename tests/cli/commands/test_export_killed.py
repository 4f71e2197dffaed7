"""`cruise export` sizes templates whose pods were OOM-killed and of which no pod is running."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cruise.domain.resources import MEBIBYTE
from tests.builders import (
    NOW,
    Json,
    make_container_json,
    make_list_json,
    make_node_json,
    make_pod_json,
    make_usage_item_json,
    make_usage_json,
    make_workload_json,
    stamp,
)
from tests.cli.commands.test_export import export, template

APP = make_container_json("app", "500m", "128Mi", cpu_limit="1", memory_limit="256Mi")
LOGS = make_container_json("logs", "100m", "64Mi", memory_limit="64Mi")


def ended(name: str, *killed: str, exit_code: int = 137, hours: int = 5, node: str = "n1") -> Json:
    """A pod of CronJob report whose run failed, since some of its containers were killed."""
    at = NOW - timedelta(hours=hours)
    end = {"reason": "OOMKilled", "exitCode": exit_code, "startedAt": stamp(at), "finishedAt": stamp(at)}
    statuses = [{"name": one, "state": {"terminated": end}} for one in killed]
    return make_pod_json(
        name,
        node=node,
        containers=[APP, LOGS],
        owner="Job/report-1",
        phase="Failed",
        container_statuses=statuses,
        spec={"restartPolicy": "Never"},
        metadata={"creationTimestamp": stamp(at - timedelta(minutes=5))},
    )


def exported(capsys: pytest.CaptureFixture[str], tmp_path: Path, *objects: Json, usage: tuple[Json, ...] = ()) -> Any:
    cron_job = make_workload_json("CronJob", "report", jobTemplate={"spec": {"template": template(APP, LOGS)}})
    job = make_workload_json("Job", "report-1", owner="CronJob/report")
    web = make_pod_json(containers=[make_container_json()])
    snapshot, statistics = tmp_path / "cluster.json", tmp_path / "usage.json"
    snapshot.write_text(json.dumps(make_list_json(make_node_json(), cron_job, job, web, *objects)))
    statistics.write_text(json.dumps(make_usage_json(make_usage_item_json(None, workload="Deployment/web"), *usage)))
    report = json.loads(export(capsys, "--snapshot", str(snapshot), "--usage", str(statistics), "-f", "json"))
    found = [one for one in report["workloads"] if one["workload"] == "CronJob/report"]
    return {one["container"]: one["after"] for one in found[0]["containers"]} if found else None


AS_STATED = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}}


@pytest.mark.parametrize("exit_code", [0, 1, 137, 143])
def test_a_kill_raises_the_memory_of_a_template_without_statistics(capsys, tmp_path, exit_code):
    found = exported(capsys, tmp_path, ended("report-1-a", "app", exit_code=exit_code))
    # What was reached is requested, and the limit is twice that, within its ceiling. Of CPU nothing is known.
    raised = {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
    assert found == {"app": raised, "logs": AS_STATED}


@pytest.mark.parametrize("of_pod", [True, False])
def test_statistics_of_the_last_run_are_not_stale_where_no_pod_runs(capsys, tmp_path, of_pod):
    usage = tuple(
        make_usage_item_json(
            "report-1-a" if of_pod else None,
            workload="CronJob/report",
            container=name,
            updated_at=NOW - timedelta(hours=5),
            memory_peak=200 * MEBIBYTE,
            memory_7d_max=200 * MEBIBYTE,
        )
        for name in ("app", "logs")
    )
    found = exported(capsys, tmp_path, ended("report-1-a", "app"), usage=usage)
    assert found["app"]["requests"] == {"cpu": "200m", "memory": "256Mi"}
    assert found["app"]["limits"] == {"memory": "512Mi"}
    assert found["logs"]["requests"] == {"cpu": "200m", "memory": "200Mi"}


def test_the_last_run_counts_however_long_ago_it_was(capsys, tmp_path):
    assert exported(capsys, tmp_path, ended("report-1-a", "app", hours=500))["app"]["limits"]["memory"] == "512Mi"
    newer = ended("report-1-b", hours=400)
    assert exported(capsys, tmp_path, ended("report-1-a", "app", hours=500), newer) is None


def test_a_workload_whose_last_runs_were_not_killed_is_left_out(capsys, tmp_path):
    assert exported(capsys, tmp_path, ended("report-1-a")) is None
