"""Every resize condition of a kubelet, provoked on a real control plane."""

import pytest

from tests.controlplane.api import Json, conditions, wait_until
from tests.controlplane.behaviour import KubeletBehaviour, ResizeBehaviour
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import in_force, requests, size_of, statuses_of
from tests.e2e.live.stage import LiveStage, list_skipped
from tests.e2e.live.usage import ContainerUse

HOURS = 3600.0
PATIENCE = {"deferred_resize_timeout": "1s"}


def hungry(stage: LiveStage, cores: float) -> Json:
    """A pod that uses far more than it requests, with a resize to its usage.

    Its kubelet has one core, half of it given away, and the API server believes that there are four.
    """
    node = stage.node(cpu="1")
    told = {"cpu": "4"}
    stage.admin.patch("nodes", None, node, {"status": {"capacity": told, "allocatable": told}}, subresource="status")
    stage.create(
        app("Deployment", stage.namespace, "web", "200m", "128Mi", node=node),
        app("Deployment", stage.namespace, "other", "500m", "128Mi", node=node),
    )
    stage.running(2)
    before = stage.pod("web")
    stage.measure({"web": ContainerUse(cores, mebibytes=400), "other": ContainerUse(cores=0.5, mebibytes=128)})
    stage.mark()
    stage.once(**PATIENCE)
    assert [(target, code) for _, _, target, code in about(stage, before)] == [(path(before), 200)]
    return before


def path(pod: Json) -> str:
    """NAMESPACE/NAME."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def about(stage: LiveStage, pod: Json) -> list[tuple[str, str, str, int]]:
    """What cruise has done about one pod."""
    return [one for one in stage.deeds() if one[2] == path(pod)]


def condition(stage: LiveStage, kind: str, reason: str) -> Json:
    """Wait until the pod has that condition for that reason."""

    def look() -> Json | None:
        found = stage.pod("web")
        return found if conditions(found).get(kind, {}).get("reason") == reason else None

    return wait_until(look, f"{kind} is {reason}")


@pytest.mark.parametrize(("reason", "cores"), [("Deferred", 0.7), ("Infeasible", 1.5)])
def test_what_the_kubelet_does_not_take_up_is_withdrawn_and_not_asked_again(
    stage: LiveStage, reason: str, cores: float
):
    before = hungry(stage, cores)
    waiting = condition(stage, "PodResizePending", reason)
    assert requests(waiting).cpu >= 1000 * cores
    wait_until(lambda: stage.once(**PATIENCE) and requests(stage.pod("web")) == requests(before), "it is withdrawn")
    withdrawn = stage.resized(before["metadata"]["name"])
    # The sizes are those that the pod had, and nothing has been restarted for it.
    assert requests(withdrawn) == requests(before)
    assert statuses_of(withdrawn)["app"]["restartCount"] == 0
    assert len(about(stage, before)) == 2
    said = stage.once(**PATIENCE)
    assert len(about(stage, before)) == 2
    assert list_skipped(said)[before["metadata"]["name"]] == "resize-refused"


def test_a_deferred_resize_is_unchanged_until_deferred_resize_timeout(stage: LiveStage):
    before = hungry(stage, 0.7)
    condition(stage, "PodResizePending", "Deferred")
    said = stage.once(deferred_resize_timeout="1h")
    assert len(about(stage, before)) == 1
    assert list_skipped(said)[before["metadata"]["name"]] == "resize-deferred"
    # The kubelet finds room after all.
    stage.admin.delete("deployments.apps", stage.namespace, "other")
    after = stage.resized(before["metadata"]["name"])
    assert requests(after).cpu >= 700


def test_a_resize_that_fails_in_transit_is_not_sent_twice(stage: LiveStage):
    stage.kubelet.behave(KubeletBehaviour(resizing=ResizeBehaviour.ERROR), stage.namespace, labels={"app": "web"})
    stage.node()
    stage.create(app("Deployment", stage.namespace, "web", "200m", "128Mi"))
    [before] = stage.running(1)
    stage.measure({"web": ContainerUse(cores=0.6, mebibytes=400)})
    stage.mark()
    stage.once(**PATIENCE)
    failing = condition(stage, "PodResizeInProgress", "Error")
    assert requests(failing).cpu >= 600
    stage.once(**PATIENCE)
    assert len(about(stage, before)) == 1
    assert stage.pod("web")["metadata"]["uid"] == before["metadata"]["uid"]


def test_growth_waits_until_the_shrink_on_its_node_is_in_force(stage: LiveStage):
    """Both fit only together: what the first gives back is the second's room."""
    slowly = KubeletBehaviour(actuation_seconds=HOURS)
    stage.kubelet.behave(slowly, stage.namespace, labels={"app": "wide"})
    node = stage.node(cpu="2")
    stage.create(
        app("Deployment", stage.namespace, "wide", "1500m", "256Mi", node=node),
        app(
            "Deployment",
            stage.namespace,
            "narrow",
            "400m",
            "256Mi",
            node=node,
            annotations={"cruise.io/resources": "cpu"},
        ),
    )
    stage.running(2)
    wide, narrow = stage.pod("wide"), stage.pod("narrow")
    stage.measure({"wide": ContainerUse(cores=0.2, mebibytes=200), "narrow": ContainerUse(cores=1.0, mebibytes=200)})
    stage.mark()

    stage.once()
    name = wide["metadata"]["name"]
    assert [target for _, _, target, _ in stage.deeds()] == [f"{stage.namespace}/{name}"]
    shrunk = stage.admin.read("pods", stage.namespace, name)
    assert requests(shrunk).cpu < 300
    assert size_of(statuses_of(shrunk)["app"]["resources"]["requests"]).cpu == 1500
    stage.once()
    # What has not been given back is not given away: the other grows into what is free by now, at most.
    between = requests(stage.pod("narrow")).cpu
    assert requests(narrow).cpu <= between <= 500

    stage.kubelet.behave_again()
    wait_until(lambda: in_force(stage.pod("wide")), "the shrink is in force")
    stage.once()
    grown = stage.resized(narrow["metadata"]["name"])
    assert requests(grown).cpu >= 1000
    assert {code for *_, code in stage.deeds()} == {200}


def test_a_resize_larger_than_the_node_is_never_requested(stage: LiveStage):
    """What the pod uses would not fit the node: it gets what the node has, and the API server refuses nothing."""
    node = stage.node(cpu="2", memory="2Gi")
    stage.create(app("Deployment", stage.namespace, "web", "200m", "128Mi", node=node))
    stage.running(1)
    stage.measure({"web": ContainerUse(cores=1.5, mebibytes=1000, peak_cores=9.0, peak_mebibytes=9000)})
    stage.mark()
    stage.once()
    assert {code for *_, code in stage.deeds()} <= {200}
    assert requests(stage.pod("web")).cpu <= 2000
    assert requests(stage.pod("web")).memory <= 2048
