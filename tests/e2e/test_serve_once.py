"""`cruise serve --once` on a real control plane: actions, output and rejections."""

import json
import re
from pathlib import Path

import pytest

from tests.e2e.live import programs
from tests.e2e.live.stage import LiveStage
from tests.e2e.serve_scene import create_scene, deployment, list_resized, resizes, serving


def once(stage: LiveStage, directory: Path, *options: str, mode: str = "resize", **more: str) -> programs.EndedProgram:
    settings = stage.settings(mode, **more)
    return programs.run(["serve", "--once", *options], settings, directory)


def test_people_see_what_shrank_and_what_was_left(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=3)
    stage.create(deployment(stage, "new", 1))
    stage.running(4)
    ended = once(stage, tmp_path)
    assert (ended.code, ended.err) == (0, "")
    rows = [line for line in ended.out.splitlines() if re.search(r"400m → 10\dm.*512Mi → 10\dMi", line)]
    assert len(rows) == 3
    assert all("done" in row for row in rows)
    assert "mode resize; 3 actions: 3 done." in ended.out
    [held] = [line for line in ended.out.splitlines() if line.startswith("no-statistics")]
    assert held.split()[1] == "1"
    assert list_resized(stage) == 3


def test_observing_prints_the_same_and_writes_nothing(stage: LiveStage, tmp_path: Path):
    pods = create_scene(stage, replicas=2)
    ended = once(stage, tmp_path, "--format", "json", mode="observe")
    said = ended.json
    assert [outcome["result"] for outcome in said["outcomes"]] == ["observed"] * 2
    assert {outcome["pod"] for outcome in said["outcomes"]} == {pod["metadata"]["name"] for pod in pods}
    assert stage.writes() == []
    assert list_resized(stage) == 0


def test_the_second_time_there_is_nothing_to_do(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=2)
    assert len(once(stage, tmp_path, "--format", "json").json["outcomes"]) == 2
    stage.mark()
    again = once(stage, tmp_path, "--format", "json").json
    assert again["outcomes"] == []
    [plan] = [plan for plan in again["nodes"] if plan["targets"]]
    assert (plan["fits"], plan["resize"], plan["evict"]) == (True, [], [])
    assert resizes(stage) == []
    assert list_resized(stage) == 2


def test_it_refuses_while_another_leads_and_takes_over_after_it_ended(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=1)
    with serving(stage, tmp_path, "a") as leader:
        refused = once(stage, tmp_path)
        assert refused.code == 1
        [line] = refused.err.splitlines()
        assert "another cruise leads: " in line
        assert "Lease cruise/cruise-serve" in line
        assert leader.leads()
    assert once(stage, tmp_path).code == 0


def test_without_prometheus_it_says_so_in_one_line_and_changes_nothing(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=1)
    ended = once(stage, tmp_path, prometheus_url="http://127.0.0.1:9")
    assert ended.code == 1
    assert ended.out == ""
    assert len(ended.err.splitlines()) == 1, ended.err
    assert ended.err.startswith("cruise: Prometheus at http://127.0.0.1:9 cannot be reached")
    assert stage.deeds() == []


def test_with_less_rights_than_the_mode_needs_it_says_what_is_missing(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=1)
    settings = {**stage.settings("observe"), "mode": "resize"}
    ended = programs.run(["serve", "--once"], settings, tmp_path)
    assert ended.code == 1
    assert "leases" in ended.err
    assert json.dumps(stage.deeds()) == "[]"


def test_without_any_rights_it_says_what_it_cannot_read(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=1)
    stage.admin.create(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "nobody", "namespace": stage.namespace},
        }
    )
    token = stage.admin.service_account_token(stage.namespace, "nobody")
    kubeconfig = stage.plane.kubeconfig(f"nobody-{stage.namespace}", token)
    ended = once(stage, tmp_path, kubeconfig=str(kubeconfig))
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert last.startswith("cruise: the cluster cannot be read: ")
    assert "forbidden" in last
    assert stage.deeds() == []


@pytest.mark.parametrize("options", [("--once",), ()])
def test_without_the_namespace_of_its_lease_it_names_it_and_the_fix(stage: LiveStage, tmp_path: Path, options):
    create_scene(stage, replicas=1)
    # Without a role in a namespace, its absence is a missing right.
    settings = stage.settings("resize", namespace="not-there", kubeconfig=str(stage.plane.kubeconfig()))
    ended = programs.run(["serve", *options], settings, tmp_path)
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert "`kubectl create namespace not-there`, or set CRUISE_NAMESPACE" in last
    assert list_resized(stage) == 0


def test_a_data_directory_that_is_closed_to_others_holds_the_database(stage: LiveStage, tmp_path: Path):
    """As `mktemp -d` makes them, run as root: the server is another user's, and the parents let no other user pass."""
    create_scene(stage, replicas=1)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    own = {"database_url": "", "data_dir": str(closed / "data")}
    for _ in range(2):
        ended = once(stage, tmp_path, "--format", "json", mode="observe", **own)
        assert (ended.code, ended.err, len(ended.json["nodes"])) == (0, "", 1)
    assert closed.stat().st_mode & 0o777 == 0o700
