"""The state of one pod in a test kubelet, and its status."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.controlplane.pod_resources import WHOLE_POD, get_actual, get_stated

Json = dict[str, Any]
STATUSES = ("initContainerStatuses", "containerStatuses")

_numbers = itertools.count(1)


@dataclass(slots=True)
class ContainerRecord:
    """One container: its allocation, its actual resources, and its history."""

    spec: Json
    init: bool
    allocated: Json
    actual: Json
    state: Json
    last_state: Json = field(default_factory=dict)
    restart_count: int = 0
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def name(self) -> str:
        """Its name."""
        name: str = self.spec["name"]
        return name

    @property
    def runs(self) -> bool:
        """Return whether it is running now."""
        return "running" in self.state

    @property
    def lasting(self) -> bool:
        """Return whether it runs for as long as its pod: every one but plain init containers."""
        return not self.init or self.spec.get("restartPolicy") == "Always"

    def terminate(self, reason: str, exit_code: int, now: str) -> None:
        """Let it end."""
        started_at = self.state.get("running", {}).get("startedAt", now)
        self.state = {
            "terminated": {
                "reason": reason,
                "exitCode": exit_code,
                "startedAt": started_at,
                "finishedAt": now,
                "containerID": self._id,
            }
        }

    def restart(self, now: str) -> None:
        """Start it again after it has ended."""
        self.last_state, self.state = self.state, {"running": {"startedAt": now}}
        self.restart_count += 1
        self.number = next(_numbers)

    def actuate(self, now: str) -> None:
        """Apply the allocated resources, by a restart if the resize policy requires it."""
        before, self.actual = self.actual, get_actual(self.allocated)
        policies = {one["resourceName"]: one["restartPolicy"] for one in self.spec.get("resizePolicy") or ()}
        changed = {
            resource
            for kind in ("requests", "limits")
            for resource in ("cpu", "memory")
            if before.get(kind, {}).get(resource) != self.actual.get(kind, {}).get(resource)
        }
        if self.runs and any(policies.get(resource) == "RestartContainer" for resource in changed):
            self.terminate("Error", 143, now)
            self.restart(now)

    def status(self) -> Json:
        """Its entry in the pod's status."""
        finished = self.state.get("terminated", {}).get("exitCode") == 0
        return {
            "name": self.name,
            "image": self.spec.get("image", ""),
            "imageID": "",
            "containerID": self._id,
            "ready": self.runs if self.lasting else finished,
            "started": self.runs,
            "restartCount": self.restart_count,
            "state": self.state,
            "lastState": self.last_state,
            "resources": self.actual,
            "allocatedResources": self.allocated.get("requests", {}),
        }

    @property
    def _id(self) -> str:
        return f"test://{self.number}"


@dataclass(slots=True)
class NodePodRecord:
    """One pod on a node. `pending` and `in_progress` are the reason, message and time of its resize conditions."""

    pod: Json
    containers: list[ContainerRecord]
    pod_allocated: Json
    pod_actual: Json
    address: str
    started_at: str
    observed_generation: int
    phase: str = "Running"
    reason: str = ""
    pending: tuple[str, str, str] | None = None
    in_progress: tuple[str, str, str] | None = None

    @property
    def uid(self) -> str:
        """Its uid."""
        uid: str = self.pod["metadata"]["uid"]
        return uid

    @property
    def terminal(self) -> bool:
        """Return whether it has finished."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def allocated(self) -> dict[str, Json]:
        """The resources allocated, by container; as `stated` has them."""
        found = {container.name: container.allocated for container in self.containers}
        return {**found, WHOLE_POD: self.pod_allocated}

    @property
    def in_force(self) -> bool:
        """Return whether all that is allocated is in force."""
        return self.pod_actual == get_actual(self.pod_allocated) and all(
            container.actual == get_actual(container.allocated) for container in self.containers
        )

    def allocate(self, resources: Mapping[str, Json]) -> None:
        """Allocate the requests of the spec."""
        for container in self.containers:
            container.allocated = resources[container.name]
        self.pod_allocated = resources[WHOLE_POD]

    def actuate(self, now: str) -> None:
        """Put what is allocated into force."""
        for container in self.containers:
            if container.actual != get_actual(container.allocated):
                container.actuate(now)
        self.pod_actual = get_actual(self.pod_allocated)
        self.in_progress = None

    def finish(self, phase: str, reason: str, exit_code: int, now: str) -> None:
        """End the pod with all of its containers."""
        for container in self.containers:
            if container.runs:
                container.terminate("Completed" if exit_code == 0 else "Error", exit_code, now)
        self.phase, self.reason = phase, reason

    def patch(self) -> Json:
        """The strategic merge patch of `pods/status` that shows all of this, for this pod and no later one."""
        ready = self.phase == "Running" and all(one.status()["ready"] for one in self.containers)
        status: Json = {
            "phase": self.phase,
            "reason": self.reason or None,
            "observedGeneration": self.observed_generation,
            "startTime": self.started_at,
            "hostIP": "127.0.0.1",
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "conditions": [
                self._condition("Initialized", True),
                self._condition("PodReadyToStartContainers", not self.terminal),
                self._condition("ContainersReady", ready),
                self._condition("Ready", ready),
                self._resize_condition("PodResizePending", self.pending),
                self._resize_condition("PodResizeInProgress", self.in_progress),
            ],
            "containerStatuses": [one.status() for one in self.containers if not one.init],
            "initContainerStatuses": [one.status() for one in self.containers if one.init],
        }
        if self.pod_allocated:
            status |= {"resources": self.pod_actual, "allocatedResources": self.pod_allocated.get("requests", {})}
        return {"metadata": {"uid": self.uid}, "status": status}

    def _condition(self, kind: str, holds: bool) -> Json:
        return {
            "type": kind,
            "status": "True" if holds else "False",
            "lastTransitionTime": self.started_at,
            "observedGeneration": self.observed_generation,
        }

    def _resize_condition(self, kind: str, told: tuple[str, str, str] | None) -> Json:
        if told is None:
            return {"$patch": "delete", "type": kind}
        reason, message, since = told
        stated = {"reason": reason, "message": message, "lastTransitionTime": since}
        return {**self._condition(kind, True), **stated}


def new_record(pod: Json, address: str, now: str) -> NodePodRecord:
    """A pod that starts now, or that another kubelet has started: that one's account of its life is kept."""
    resources, spec, status = get_stated(pod), pod["spec"], pod.get("status", {})
    told = {one["name"]: one for key in STATUSES for one in status.get(key) or ()}
    made = []
    for init, containers in ((True, spec.get("initContainers") or ()), (False, spec["containers"])):
        for one in containers:
            allocated = resources[one["name"]]
            record = ContainerRecord(one, init, allocated, get_actual(allocated), {"running": {"startedAt": now}})
            if not record.lasting:
                record.terminate("Completed", 0, now)
            if one["name"] in told:
                earlier = told[one["name"]]
                record.state, record.last_state = earlier["state"], earlier.get("lastState", {})
                record.restart_count = earlier["restartCount"]
            made.append(record)
    whole = resources[WHOLE_POD]
    generation = pod["metadata"].get("generation", 0)
    started_at = status.get("startTime", now)
    return NodePodRecord(pod, made, whole, get_actual(whole), status.get("podIP", address), started_at, generation)
