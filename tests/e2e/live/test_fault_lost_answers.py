"""Lost responses, and a late write of a former leader while the next one works."""

import time
from pathlib import Path

import pytest

from tests.controlplane.api import wait_until
from tests.e2e.live.faults import ApiServerProxy
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.test_fault_api_server import leads, targets
from tests.e2e.live.test_fault_killed import rows
from tests.e2e.live.test_fault_prometheus import FAST, SEVERAL_PASSES, scale, shrunk, staged
from tests.e2e.serve_scene import started

OPEN = "SELECT 1 FROM intent"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_writes_whose_answers_are_lost_are_found_to_be_done_and_not_done_again(stage: LiveStage):
    staged(stage)
    database = stage.settings("resize")["database_url"]
    with ApiServerProxy(stage.plane.address, stage.plane.ca_file) as proxy:
        kubeconfig = proxy.kubeconfig(Path(stage.settings("resize")["kubeconfig"]))
        with stage.serving(kubeconfig=str(kubeconfig), **FAST) as serving:
            wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
            stage.mark()
            proxy.unanswered = "/resize"
            scale(stage, 3)
            wait_until(lambda: proxy.lost, "an answer is lost")
            lost_at = time.monotonic()
            wait_until(lambda: rows(database, OPEN), "its intent is open")
            proxy.unanswered = ""
            wait_until(lambda: shrunk(stage) == 3, "all are sized")
            # No response arrives, and no connection ends: cruise waits until its timeout.
            wait_until(lambda: not rows(database, OPEN), "what became of each write is known")
            print(f"all known and sized {time.monotonic() - lost_at:.1f} s after the first answer was lost")
            proxy.released.set()
            wait_until(serving.ready, "it is ready")
    assert set(targets(stage).values()) == {1}
    assert len(rows(database, "SELECT 1 FROM audit WHERE kind = 'resize' AND result = 'done'")) == 3


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_late_write_of_a_former_leader_is_refused_once_the_next_has_written(stage: LiveStage, tmp_path: Path):
    staged(stage)
    told = stage.settings("resize", **FAST)
    with ApiServerProxy(stage.plane.address, stage.plane.ca_file) as proxy:
        behind = stage.settings("resize", **FAST)
        proxy.kubeconfig(Path(behind["kubeconfig"]))
        with started(behind, tmp_path) as former:
            wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
            assert leads(former)
            proxy.late = "/resize"
            stage.mark()
            scale(stage, 2)
            wait_until(lambda: rows(told["database_url"], OPEN), "it has begun to write")
            time.sleep(1)
            former.kill()
            killed_at = time.monotonic()
        with started(told, tmp_path) as following:
            wait_until(lambda: '"leading"' in following.log, "the next one leads")
            leading = time.monotonic() - killed_at
            wait_until(lambda: shrunk(stage) == 2, "it has sized the pod")
            sized = time.monotonic() - killed_at
            # What the former one sent arrives now.
            proxy.released.set()
            wait_until(lambda: len(stage.deeds()) >= 2, "the late write has arrived")
            time.sleep(SEVERAL_PASSES)
        print(f"{leading:.1f} s to lead, {sized:.1f} s until all was sized; writes: {stage.deeds()}")
    # One was done, and the late one met a pod that has changed since.
    assert sorted(code for *_, code in stage.deeds()) == [200, 409]
    assert not rows(told["database_url"], OPEN)
