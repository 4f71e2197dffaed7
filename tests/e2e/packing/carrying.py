"""Executes plans stage by stage; the real scheduler binds the re-created pods by their placement hints."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from cruise.decisions.admission.placement_hints import tolerate_preferred_taints
from cruise.domain.cluster import Node
from cruise.domain.packing_plan import PackingProposal, PlannedPlacement, PlanStage
from cruise.kube_json.objects.pod import decode_pod
from cruise.kube_json.patches import apply_patch_in_place, build_pod_patch, build_preferred_affinity
from tests.controlplane.api import Json
from tests.e2e.packing.explaining import list_eviction_reasons
from tests.e2e.packing.stage import PackingCluster, PodName, verdict

# The scheduler alone waits up to ten before it tries a refused pod again. 300 clusters on a busy machine took eight.
_MOST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ObservedPlacement:
    """The result of an arrival: the node of the pod, or the scheduler's message if it is on none."""

    cluster: str
    arrival: PlannedPlacement
    node: str | None
    message: str
    reasons: tuple[str, ...] = ()

    @property
    def as_planned(self) -> bool:
        """Return whether it is where the plan wants it."""
        return self.node == self.arrival.target

    def in_words(self) -> str:
        """Say where the pod went instead, and why."""
        pod = f"{self.arrival.namespace}/{self.arrival.pod} for {self.arrival.target}"
        if self.node is None:
            return f"{pod} was let in nowhere: {self.message}"
        return f"{pod} went to {self.node}: {', '.join(self.reasons) or 'for no reason that is known'}"


@dataclass(slots=True)
class PlanRun:
    """Carries out the plans of many clusters at once; `landings` has every arrival in the order of its creation.

    A plan that the scheduler contradicts is dropped, as cruise drops it: nothing more of it is carried out.
    """

    stage: PackingCluster
    plans: Mapping[str, PackingProposal]
    nodes: Mapping[str, Node]
    landings: list[ObservedPlacement] = field(default_factory=list)
    _dropped: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Execute the plans: evictions first, then arrivals, one at a time in each cluster."""
        drawn = [pod for cluster in self.stage.clusters for pod in cluster.pods]
        originals = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in drawn}
        names, plans = list(self.plans), [plan.stages for plan in self.plans.values()]
        for stages in zip_longest(*plans):
            due = {name: one for name, one in zip(names, stages, strict=True) if one and name not in self._dropped}
            self.stage.remove_pods([(one.namespace, one.pod) for plan in due.values() for one in plan.evictions])
            self._arrive(due, originals)

    def _arrive(self, due: Mapping[str, PlanStage], originals: Mapping[PodName, Json]) -> None:
        waiting = [arrival for plan in due.values() for arrival in plan.arrivals if arrival.source is None]
        self.stage.remove_pods([(one.namespace, one.pod) for one in waiting])
        for turn in zip_longest(*(plan.arrivals for plan in due.values())):
            coming = {name: one for name, one in zip(due, turn, strict=True) if one and name not in self._dropped}
            self.stage.each(
                [
                    list_placement_hints(originals[one.namespace, one.pod], self.nodes[one.target])
                    for one in coming.values()
                ],
                self.stage.api.create,
            )
            self._wait(coming)

    def _wait(self, coming: Mapping[str, PlannedPlacement]) -> None:
        deadline = time.monotonic() + _MOST_SECONDS
        while True:
            self.stage.provision()
            pods = self.stage.pods()
            landings = [
                ObservedPlacement(cluster, one, *verdict(pods[one.namespace, one.pod]))
                for cluster, one in coming.items()
            ]
            if all(landing.node for landing in landings) or time.monotonic() > deadline:
                break
        self.landings += self._explained(landings)
        self._dropped |= {landing.cluster for landing in landings if not landing.as_planned}
        self.stage.remove_pods([(one.arrival.namespace, one.arrival.pod) for one in landings if one.node is None])

    def _explained(self, landings: list[ObservedPlacement]) -> Iterator[ObservedPlacement]:
        elsewhere = [landing for landing in landings if landing.node and not landing.as_planned]
        snapshots = self.stage.snapshots() if elsewhere else {}
        for landing in landings:
            if landing not in elsewhere:
                yield landing
                continue
            snapshot, arrival = snapshots[landing.cluster], landing.arrival
            nodes = {node.name: node for node in snapshot.nodes}
            pod = next(pod for pod in snapshot.pods if (pod.namespace, pod.name) == (arrival.namespace, arrival.pod))
            found = list_eviction_reasons(snapshot, pod, nodes[arrival.target], nodes[landing.node or ""])
            yield replace(landing, reasons=tuple(found))


def list_placement_hints(pod: Json, node: Node) -> Json:
    """A pod as its controller creates it again, with what cruise's webhook adds."""
    manifest: Json = json.loads(json.dumps(pod))
    spec = manifest["spec"]
    spec.pop("nodeName", None)
    del spec["schedulerName"]
    before = decode_pod(manifest)
    after = replace(before, placement=tolerate_preferred_taints(before.placement, node.taints))
    apply_patch_in_place(
        manifest, [*build_pod_patch(manifest, before, after), *build_preferred_affinity(manifest, node.name)]
    )
    return manifest
