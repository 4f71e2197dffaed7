"""OOM kills in a snapshot file count together with the usage file of the same cluster."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from cruise.cli.inputs.sources import load_snapshot_with_node_autoscaler, load_usage_of_snapshot
from cruise.domain.policy import SEED_RULES, NodeAutoscalerSetting, Policy
from cruise.domain.resources import MEBIBYTE
from tests.builders import (
    NOW,
    make_container_json,
    make_list_json,
    make_node_json,
    make_pod_json,
    make_replica_set_json,
    make_usage_item_json,
    make_usage_json,
    stamp,
)

LIMITED = make_container_json("app", "500m", "128Mi", memory_limit="256Mi")


def taught(
    directory: Path,
    *,
    days: float = 1,
    policy: Policy | None = None,
    restart_policy: str = "Always",
    limit: bool = True,
    of_workload: bool = False,
    oom: int = 0,
) -> int:
    """Return the OOM memory of a killed container from its usage, in MiB."""
    end = {"reason": "OOMKilled", "exitCode": 1, "finishedAt": stamp(NOW - timedelta(days=days))}
    pod = make_pod_json(
        containers=[LIMITED if limit else make_container_json()],
        container_statuses=[{"name": "app", "lastState": {"terminated": end}}],
        spec={"restartPolicy": restart_policy},
    )
    newer = make_pod_json("web-7d9f8b6c5d-newer", metadata={"creationTimestamp": stamp(NOW)})
    usage = make_usage_item_json(None if of_workload else pod["metadata"]["name"], oom=oom * MEBIBYTE)
    (directory / "cluster.json").write_text(
        json.dumps(make_list_json(make_node_json(), pod, newer, make_replica_set_json("web-7d9f8b6c5d")))
    )
    (directory / "usage.json").write_text(json.dumps(make_usage_json(usage)))
    snapshot = load_snapshot_with_node_autoscaler(str(directory / "cluster.json"), NodeAutoscalerSetting.DETECT)
    table, at = load_usage_of_snapshot(str(directory / "usage.json"), snapshot, None, policy or Policy())
    assert at == NOW
    return int(table.oom_memory_bytes[0]) // MEBIBYTE


def test_a_kill_raises_memory_to_one_and_a_half_times_the_usage(tmp_path):
    # The peak was 100 MiB, and the limit 256.
    assert taught(tmp_path) == 150


def test_a_kill_of_more_than_a_week_ago_is_ignored(tmp_path):
    assert taught(tmp_path, days=8) == 0


def test_oom_memory_of_the_usage_file_is_never_decreased(tmp_path):
    assert taught(tmp_path, oom=200) == 200


def test_a_kill_without_a_known_limit_counts_the_usage(tmp_path):
    assert taught(tmp_path, limit=False) == 100


@pytest.mark.parametrize(("restart_policy", "mebibytes"), [("Always", 0), ("Never", 150), ("OnFailure", 150)])
def test_a_kill_counts_for_the_workload_if_the_pod_does_not_run_again(tmp_path, restart_policy, mebibytes):
    assert taught(tmp_path, restart_policy=restart_policy, of_workload=True) == mebibytes


def test_the_seed_rules_use_only_the_usage_file(tmp_path):
    assert taught(tmp_path, policy=Policy(rules=SEED_RULES)) == 0


def test_a_killed_pod_without_own_statistics_uses_its_kill(tmp_path):
    assert taught(tmp_path, of_workload=True) == 0
    snapshot = load_snapshot_with_node_autoscaler(str(tmp_path / "cluster.json"), NodeAutoscalerSetting.DETECT)
    table, _ = load_usage_of_snapshot(str(tmp_path / "usage.json"), snapshot, None, Policy())
    [killed] = [row for row, key in enumerate(table.keys) if key.pod]
    assert table.oom_memory_bytes[killed] == 150 * MEBIBYTE
    assert table.memory_base_bytes[killed] == table.memory_base_bytes[0]
