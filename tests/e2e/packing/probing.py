"""Single pods, evaluated by the real scheduler and by cruise."""

from cruise.decisions.scheduling.filters import CLAIM_IN_USE
from cruise.decisions.scheduling.placements import PodPlacements
from cruise.decisions.scheduling.pod_affinity import SchedulerFilters
from cruise.domain.cluster import ClusterSnapshot
from tests.controlplane.api import Json, wait_until
from tests.e2e.packing.stage import PackingCluster, PodName, verdict


def create_probes(stage: PackingCluster, number: int) -> dict[str, PodName]:
    """One pod behind a gate in each cluster; every other one is tied to a node."""
    names, objects, probes = {}, [], []
    for index, cluster in enumerate(stage.clusters):
        assert cluster.drawing is not None
        own, probe = cluster.drawing.probe(number, pinned=(index + number) % 2 == 0, nodes=cluster.nodes)
        metadata = probe["metadata"]
        names[cluster.name] = (metadata["namespace"], metadata["name"])
        objects += own
        probes.append(probe)
    stage.create(objects)
    stage.each(probes, stage.api.create)

    def bound() -> bool:
        claims = stage.api.items("persistentvolumeclaims")
        return all(claim["status"]["phase"] == "Bound" for claim in claims if claim["spec"].get("volumeName"))

    wait_until(bound, "the probes' claims are bound")
    return names


def nodes_that_admit(snapshot: ClusterSnapshot, name: PodName) -> dict[str, list[str]]:
    """What the judge says of each node; nothing where it lets the pod in.

    One whose volume another node has is let in by the scheduler, and would wait there in vain.
    """
    pod = next(pod for pod in snapshot.pods if (pod.namespace, pod.name) == name)
    scheduler = SchedulerFilters(PodPlacements(snapshot))
    return {
        node.name: [text for text in scheduler.check(pod, node) if not text.endswith(CLAIM_IN_USE)]
        for node in snapshot.nodes
    }


def all_judged(
    stage: PackingCluster, admitting: dict[PodName, dict[str, list[str]]]
) -> dict[PodName, tuple[str | None, str]]:
    """The verdicts, once there is one on each; empty before."""
    stage.provision()
    pods: dict[PodName, Json] = stage.pods()
    verdicts = {name: verdict(pods[name]) for name in admitting}
    return verdicts if all(node or message for node, message in verdicts.values()) else {}


def agrees(admitting: dict[str, list[str]], node: str | None) -> bool:
    """Return whether judge and scheduler are of one mind."""
    if node is None:
        return all(admitting.values())
    return not admitting[node]
