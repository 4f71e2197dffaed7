"""History of earlier days counts: peaks at this hour of the day, and the 7-day maximum for memory limits."""

from tests.controlplane.api import Json
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import ObservedSize, limits, requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import HOUR, ContainerUse

DAY = 24 * HOUR
NOW = ContainerUse(cores=0.1, mebibytes=200)
BUSY = ContainerUse(cores=0.8, mebibytes=500)
RUSH = ContainerUse(cores=3.0, mebibytes=900)


def hours_of(stage: LiveStage, pod: Json, use: ContainerUse, ago: int) -> tuple[object, ...]:
    """A predecessor of a pod that ran for two hours of the clock: that of so many seconds ago, and the next one.

    The clock may strike between this and the pass.
    """
    owner = pod["metadata"]["ownerReferences"][0]["name"]
    start = (stage.usage.began - ago) // HOUR * HOUR
    return f"{owner}-bcdfg", "app", use, pod["spec"]["nodeName"], start, start + 2 * HOUR - 1


def test_peaks_of_this_hour_of_the_day_and_memory_of_any_hour_are_remembered(stage: LiveStage):
    stage.node(cpu="8", memory="16Gi")
    for name in ("daily", "nightly"):
        stage.create(app("Deployment", stage.namespace, name, "2", "2Gi", {"memory": "2Gi"}))
    stage.running(2)
    daily, nightly = stage.pod("daily"), stage.pod("nightly")
    former = [
        hours_of(stage, daily, BUSY, ago=DAY),
        hours_of(stage, nightly, RUSH, ago=DAY + 12 * HOUR),
    ]
    stage.measure({"daily": NOW, "nightly": NOW}, hours=40, former=former)
    stage.once(headroom="shared-max")
    daily, nightly = (stage.resized(one["metadata"]["name"]) for one in (daily, nightly))
    # The node keeps room for the one peak that this hour of the day has seen, and it is that of the first.
    assert requests(daily) == ObservedSize(800, 500)
    assert requests(nightly) == ObservedSize(100, 200)
    assert limits(daily).memory == 2 * 500
    assert limits(nightly).memory == 2 * 900
