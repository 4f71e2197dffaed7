"""Hosts with clocks ten minutes off: there is one leader at a time, and no pod is harmed."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.live.stage import LiveStage
from tests.e2e.serve_scene import (
    Server,
    all_sized,
    create_scene,
    credential_of,
    list_user_actions,
    resizes,
    started,
    wait_until_true,
)

MINUTES = 10


@contextmanager
def on_a_host(stage: LiveStage, directory: Path, minutes: int) -> Iterator[Server]:
    """A `cruise serve` whose clock is so many minutes ahead, or behind."""
    settings = stage.settings("full", pass_interval="4s")
    with started(settings, directory, ("tests.e2e.skewed_serve", str(minutes))) as running:
        yield Server(running, settings, credential_of(Path(settings["kubeconfig"])))


def passes(server: Server) -> int:
    return sum(job["runs"] for job in server.status()["jobs"] if job["name"] in ("statistics", "node pass"))


@pytest.mark.parametrize("minutes", [pytest.param(-MINUTES, marks=pytest.mark.long), MINUTES])
def test_a_leader_with_a_wrong_clock_does_no_harm_and_can_be_followed(stage: LiveStage, tmp_path: Path, minutes: int):
    [victim, *_] = create_scene(stage, replicas=4)
    with on_a_host(stage, tmp_path, 0) as right:
        wait_until_true(lambda: answers(right) and right.leads(), "the first one leads")
        all_sized(stage, 4)
        with on_a_host(stage, tmp_path, minutes) as wrong:
            wait_until_true(lambda: answers(wrong), "the one with the wrong clock is there")
            assert right.leads()
            assert not wrong.leads()
            right.running.kill()
            wait_until_true(wrong.leads, "the one with the wrong clock leads")
            wait_until_true(lambda: passes(wrong) >= 4, "it makes passes")
            # What is to come, or was long ago, is no ground to act on; what was done before stays.
            assert list_user_actions(stage, wrong) == []
            with on_a_host(stage, tmp_path, 0) as follower:
                wait_until_true(lambda: answers(follower), "one with a right clock is there")
                assert not follower.leads()
                wrong.running.kill()
                wait_until_true(follower.leads, "it leads")
                stage.kubelet.oom_kill(stage.namespace, victim["metadata"]["name"], "app")
                wait_until_true(lambda: list_user_actions(stage, follower), "it reacts to a kill")
    times = Counter(event.target for event in resizes(stage))
    assert times.pop(f"{stage.namespace}/{victim['metadata']['name']}") == 2
    assert set(times.values()) == {1}


@pytest.mark.parametrize("steps", [[-60], [60, 0]])
def test_a_clock_that_is_set_while_it_leads_ends_no_passes(stage: LiveStage, tmp_path: Path, steps: list[int]):
    create_scene(stage, replicas=2)
    minutes = tmp_path / "minutes"
    minutes.write_text("0")
    settings = stage.settings("full", pass_interval="4s", node_load_interval="4s")
    with started(settings, tmp_path, ("tests.e2e.skewed_serve", str(minutes))) as running:
        server = Server(running, settings, credential_of(Path(settings["kubeconfig"])))
        wait_until_true(lambda: answers(server) and server.leads(), "it leads")
        all_sized(stage, 2)
        for step in steps:
            minutes.write_text(str(step))
            before = passes(server)
            wait_until_true(partial(has_passed, server, before + 4), "the passes go on")
            assert server.leads()
    # What was used an hour later, or is to come, is no ground to act on.
    assert set(Counter(event.target for event in resizes(stage)).values()) == {1}


def has_passed(server: Server, times: int) -> bool:
    return passes(server) >= times


def answers(server: Server) -> bool:
    return server.running.get("/healthz")[0] == 200
