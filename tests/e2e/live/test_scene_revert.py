"""`cruise revert` restores original sizes in place without restarts, and sizing stops."""

import os
import pty
import re
import subprocess
import sys

from tests.controlplane.api import wait_until
from tests.controlplane.manifests import container, pod
from tests.e2e.live import programs
from tests.e2e.live.forking import ROOT
from tests.e2e.live.manifests import app
from tests.e2e.live.programs import RunningProgram
from tests.e2e.live.sizes import ObservedSize, limits, requests, statuses_of
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

USE = ContainerUse(cores=0.1, mebibytes=100, peak_cores=0.2, peak_mebibytes=150, waiting=0.05)


def sized(stage: LiveStage) -> None:
    """Two workloads, which one pass makes smaller."""
    stage.create(
        app("Deployment", stage.namespace, "web", "700m", "1Gi", {"cpu": "1", "memory": "1Gi"}),
        app("StatefulSet", stage.namespace, "db", "500m", "1Gi"),
    )
    stage.running(2)
    stage.measure({"web": USE, "db": USE})
    # Containers without a memory limit get one only where a setting requires it.
    stage.once("resize", memory_limits="always")
    for name in ("web", "db"):
        assert requests(stage.resized(stage.pod(name)["metadata"]["name"])).cpu < 300


def test_pods_get_their_original_sizes_and_cruise_remains_paused(stage: LiveStage):
    stage.node(cpu="4", memory="8Gi")
    sized(stage)
    stage.mark()
    done = stage.command("revert", "--yes", "--format", "json", mode="resize").json
    states = {one["pod"]: one["state"] for one in done["pods"] if one["namespace"] == stage.namespace}
    assert set(states.values()) == {"restored"}
    assert len(states) == 2
    web, db = (stage.resized(stage.pod(name)["metadata"]["name"]) for name in ("web", "db"))
    assert requests(web) == ObservedSize(700, 1024)
    assert requests(db) == ObservedSize(500, 1024)
    assert limits(web) == ObservedSize(1000, 1024)
    for one in (web, db):
        assert [status["restartCount"] for status in statuses_of(one).values()] == [0]
    assert {(verb, resource, code) for verb, resource, _, code in stage.deeds()} == {("patch", "pods/resize", 200)}
    stage.mark()
    after = stage.once("resize")
    assert after["paused"] is True
    assert stage.deeds() == []
    # A limit that was added cannot be removed again, and the report states it.
    [kept] = stage.command("revert", "--yes", "--format", "json").json["pods"]
    assert (kept["pod"], kept["state"]) == (db["metadata"]["name"], "not possible")
    assert "limit" in kept["detail"]
    assert stage.deeds() == []
    assert stage.command("resume").code == 0
    assert stage.once("resize")["paused"] is False
    assert len(stage.deeds()) == 2


def test_a_running_cruise_does_not_undo_it(stage: LiveStage):
    stage.node(cpu="4", memory="8Gi")
    stage.create(app("Deployment", stage.namespace, "web", "700m", "1Gi", {"memory": "2Gi"}))
    stage.running(1)
    stage.measure({"web": USE})
    with stage.serving("resize", pass_interval="2s") as running:
        web = wait_until(
            lambda: next((one for one in stage.pods("web") if requests(one).cpu < 300), None), "web is sized"
        )
        name = web["metadata"]["name"]
        stage.resized(name)
        of = ("--namespace", stage.namespace, "--workload", "Deployment/web")
        done = stage.command("revert", "--yes", *of, "--format", "json").json
        assert (done["workload"], done["paused"]) == ("Deployment/web", False)
        assert [(one["pod"], one["state"]) for one in done["pods"]] == [(name, "restored")]
        assert requests(stage.resized(name)) == ObservedSize(700, 1024)
        passes = passes_of(running)
        stage.mark()
        wait_until(lambda: passes_of(running) >= passes + 2, "two more passes were made")
        assert stage.deeds() == []
        assert requests(stage.pod("web")) == ObservedSize(700, 1024)


def passes_of(running: RunningProgram) -> float:
    found = re.search(r'cruise_job_runs_total\{job="node pass"\} (\S+)', running.get("/metrics")[1])
    return float(found.group(1)) if found else 0.0


def test_a_resize_without_free_capacity_is_deferred_and_reported(stage: LiveStage):
    node = stage.node(cpu="2", memory="8Gi")
    sized(stage)
    stage.create(pod(stage.namespace, "filler", container(requests={"cpu": "1300m"}), nodeName=node))
    stage.running(3)
    ended = stage.command("revert", "--yes", "--namespace", stage.namespace)
    assert ended.code == 0, ended.err
    assert "Run `cruise revert` again to restore the pending pods." in ended.out
    assert "2 pods: 1 restored, 1 pending." in ended.out
    assert max(len(line) for line in ended.out.splitlines()) <= 80
    stage.admin.delete("pods", stage.namespace, "filler")
    stage.running(2)
    again = stage.command("revert", "--yes", "--format", "json").json["pods"]
    assert "restored" in {one["state"] for one in again}
    assert "pending" not in {one["state"] for one in again}


def refused(stage: LiveStage, *arguments: str) -> str:
    ended = stage.command(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("cruise: ")
    assert ended.err.count("\n") == 1
    return ended.err


def answered(stage: LiveStage, answer: bytes) -> int:
    """Answer the question on a terminal; the exit code."""
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    done = subprocess.run(
        [sys.executable, "-m", "cruise", "revert"],
        env=programs.environment(stage.settings("resize"), stage.plane.directory),
        cwd=ROOT,
        stdin=theirs,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    os.close(ours)
    os.close(theirs)
    assert (
        "cruise is paused, and up to 0 pods in all namespaces get back their original sizes. Continue?" in done.stderr
    )
    assert done.stderr.endswith("cruise: nothing was changed\n")
    return done.returncode


def test_wrong_inputs_change_nothing(stage: LiveStage):
    stage.node()
    stage.create(app("Deployment", stage.namespace, "web", "700m", "1Gi"))
    stage.running(1)
    stage.mark()
    assert "add --yes without a terminal for confirmation" in refused(stage, "revert")
    said = refused(stage, "revert", "--yes", "--namespace", "no-such-place")
    assert "the cluster has no pod in namespace no-such-place" in said
    elsewhere = refused(stage, "revert", "--yes", "--namespace", stage.namespace, "--workload", "Deployment/wab")
    assert f"namespace {stage.namespace} has no pod of Deployment/wab; did you mean Deployment/web?" in elsewhere
    assert "--workload needs --namespace" in refused(stage, "revert", "--yes", "--workload", "Deployment/web")
    assert "is not KIND/NAME; write e.g. Deployment/web" in refused(
        stage, "revert", "--yes", "--namespace", stage.namespace, "--workload", "web"
    )
    assert answered(stage, b"n\n") == 1
    assert stage.writes() == []
    assert "not paused" in stage.command("resume").out
