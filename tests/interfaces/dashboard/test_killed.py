"""Workloads without running pods whose last runs were OOM-killed."""

from dataclasses import replace
from datetime import timedelta

from cruise.domain.cluster import ClusterSnapshot, OomKill
from cruise.domain.resources import MEBIBYTE
from cruise.interfaces.http.cluster_summary import summarize_cluster
from tests.builders import make_container, make_pod
from tests.interfaces.dashboard.test_pages import browser
from tests.interfaces.http.api_scene import NOW, ApiScene, make_busy_scene


def ended():
    return make_pod(
        "report-1-a",
        node="n1",
        workload="CronJob/report",
        owner_kind="Job",
        phase="Failed",
        restart_policy="Never",
        containers=[make_container(memory_limit_mib=256)],
    )


def with_kill(scene: ApiScene) -> None:
    """Let the last pass have seen a pod that ended with a kill."""
    pod, done = ended(), scene.get_last_pass()
    assert done is not None
    at = NOW - timedelta(hours=3)
    kill = OomKill(pod.namespace, pod.name, pod.uid, "app", pod.workload, "", "n1", at, 256 * MEBIBYTE, None)
    snapshot = replace(
        done.snapshot, pods=(*done.snapshot.pods, pod), oom_kills=(replace(kill, runs_to_completion=True),)
    )
    scene.done = replace(done, snapshot=snapshot)


async def test_the_first_page_and_the_list_show_a_cron_job_whose_last_run_was_killed():
    scene = await make_busy_scene()
    with_kill(scene)
    async with browser(scene) as page:
        first = (await page.get("/")).text
        listed = (await page.get("/workloads", params={"risk": "true"})).text
    assert "workloads/shop/CronJob/report" in first and "killed at 256Mi 3h ago" in first
    assert "CronJob/report" in listed


async def test_a_workload_without_a_running_pod_has_a_line_of_no_sums():
    scene = await make_busy_scene()
    with_kill(scene)
    done = scene.get_last_pass()
    assert done is not None
    found = summarize_cluster(done, await scene.statistics(), {}, scene.policy, {})
    [line] = [one for one in found.workloads if one.waste.workload == "CronJob/report"]
    assert (line.waste.pods, line.mode, [risk.kind.value for risk in line.risks]) == (0, "full", ["oom-killed"])
    assert sum(found.modes.values()) == 5


class EndedScene(ApiScene):
    """A scene whose cluster has what the last pass saw."""

    async def snapshot(self) -> ClusterSnapshot:
        done = self.get_last_pass()
        assert done is not None
        return done.snapshot


async def test_the_page_of_a_workload_without_a_running_pod_shows_its_last_run():
    scene = await make_busy_scene()
    scene = EndedScene(scene.world, scene.store, done=scene.done)
    with_kill(scene)
    async with browser(scene) as page:
        shown = await page.get("/workloads/shop/CronJob/report")
        why = (await page.get("/workloads/shop/CronJob/report/why/report-1-a")).text
    assert shown.status_code == 200 and "killed at 256Mi" in shown.text
    assert "killed at 256Mi" in why and "no-change-needed" not in why
