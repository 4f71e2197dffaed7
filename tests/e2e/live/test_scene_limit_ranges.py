"""LimitRanges: kube-apiserver accepts every size that cruise writes to running and new pods."""

from tests.controlplane.api import Json, wait_until
from tests.controlplane.manifests import container, pod_template, workload
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import ObservedSize, limits, requests
from tests.e2e.live.stage import LiveStage, list_skipped
from tests.e2e.live.test_scene_history import DAY, hours_of
from tests.e2e.live.usage import HOUR, ContainerUse

RESIZED = ("patch", "pods/resize", 200)


def limit_range(namespace: str, *items: Json) -> Json:
    """A LimitRange."""
    metadata = {"namespace": namespace, "name": "range"}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": list(items)}}


def in_the_other_half_of_the_day(stage: LiveStage, pod: Json) -> tuple[object, ...]:
    """A predecessor of a pod that needed 900 MiB yesterday, at hours of which the peaks of now know nothing."""
    return hours_of(stage, pod, ContainerUse(cores=0.1, mebibytes=900), ago=DAY + 12 * HOUR)


def answers(stage: LiveStage) -> list[tuple[str, str, int]]:
    """What the API server answered to the resizes of cruise."""
    return [(verb, resource, code) for verb, resource, _, code in stage.deeds()]


def test_a_limit_is_above_known_usage_regardless_of_ratio_and_default(stage: LiveStage):
    ns = stage.namespace
    stage.node(cpu="16", memory="16Gi")
    stage.create(
        app("Deployment", ns, "night", "700m", "1Gi", {"memory": "1Gi"}),
        app("Deployment", ns, "free", "700m", "512Mi"),
    )
    stage.running(2)
    stage.create(
        limit_range(ns, {"type": "Container", "maxLimitRequestRatio": {"memory": "1"}, "default": {"memory": "64Mi"}})
    )
    use = {"night": ContainerUse(cores=0.1, mebibytes=200), "free": ContainerUse(cores=0.1, mebibytes=300)}
    stage.measure(use, hours=40, former=[in_the_other_half_of_the_day(stage, stage.pod("night"))])
    stage.mark()
    said = stage.once("resize")
    night, free = (stage.resized(stage.pod(name)["metadata"]["name"]) for name in ("night", "free"))
    assert requests(night).cpu < 200
    assert requests(night).memory == limits(night).memory >= 900
    # The server would have given it 64 MiB, a fifth of its use, which no resize takes back.
    assert requests(free).memory == limits(free).memory >= 360
    assert list_skipped(said) == {}
    assert answers(stage) == [RESIZED, RESIZED]


def test_sizes_keep_to_the_sums_of_a_limit_range_of_type_pod(stage: LiveStage):
    ns = stage.namespace
    stage.node(cpu="16", memory="16Gi")
    bounds = {"min": {"cpu": "150m"}, "max": {"memory": "1Gi"}, "maxLimitRequestRatio": {"memory": "2"}}
    stage.create(limit_range(ns, {"type": "Pod", **bounds}))
    pair = pod_template(
        "pair",
        container("app", requests={"cpu": "700m", "memory": "400Mi"}, limits={"memory": "600Mi"}),
        container("side", requests={"cpu": "300m", "memory": "200Mi"}, limits={"memory": "300Mi"}),
        terminationGracePeriodSeconds=1,
    )
    stage.create(workload("Deployment", ns, "pair", pair, 1))
    stage.running(1)
    stage.measure(
        {
            ("pair", "app"): ContainerUse(cores=0.05, mebibytes=350, peak_mebibytes=380),
            ("pair", "side"): ContainerUse(cores=0.02, mebibytes=100, peak_mebibytes=120),
        }
    )
    stage.mark()
    said = stage.once("resize")
    assert list_skipped(said) == {}
    assert answers(stage) == [RESIZED]
    pod = stage.resized(stage.pod("pair")["metadata"]["name"])
    sizes = [(requests(pod, name), limits(pod, name)) for name in ("app", "side")]
    assert 150 <= sum(asked.cpu for asked, _ in sizes) < 1000
    assert sizes[0][1].memory >= 420
    assert sizes[1][1].memory >= 120
    assert sum(most.memory for _, most in sizes) <= 1024


def test_a_new_pod_under_a_limit_range_ratio_gets_a_limit_above_known_use(stage: LiveStage):
    ns = stage.namespace
    stage.node(cpu="16", memory="16Gi")
    stage.create(limit_range(ns, {"type": "Container", "maxLimitRequestRatio": {"memory": "1"}}))
    stage.create(app("Deployment", ns, "web", "700m", "1Gi", {"memory": "1Gi"}))
    [before] = stage.running(1)
    former = [in_the_other_half_of_the_day(stage, before)]
    stage.measure({"web": ContainerUse(cores=0.1, mebibytes=200)}, hours=40, former=former)
    stage.once("initial")
    with stage.reviewing():

        def sized() -> Json | None:
            stage.admin.delete("pods", ns, stage.pod("web")["metadata"]["name"], grace=0)
            found = wait_until(lambda: stage.pods("web") or None, "there is another pod")
            return found[0] if requests(found[0]) != ObservedSize(700, 1024) else None

        after = wait_until(sized, "a new pod is sized")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert limits(after).memory == requests(after).memory >= 900
