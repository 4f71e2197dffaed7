"""The kubelets of some nodes: one thread owns their pods and writes those pods' statuses."""

import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any

from cruise.domain.resources import parse_cpu_millicores, parse_memory_bytes
from tests.controlplane.api import Api, ApiError, Json
from tests.controlplane.behaviour import KubeletBehaviour, ResizeBehaviour, SimulatedNodeSpec
from tests.controlplane.node_room import NodeFreeCapacity, rejects_new_pod, rejects_resize
from tests.controlplane.pod_record import NodePodRecord, new_record
from tests.controlplane.pod_resources import get_stated

RETRY_SECONDS = 0.3
_addresses = itertools.count(1)


def now_text() -> str:
    """Return the present time in Kubernetes' format."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251  a kubelet stamps what it sees


@dataclass(order=True, slots=True)
class _ScheduledStep:
    at: float
    order: int
    work: Callable[[], None] = field(compare=False)


class NodeLoop:
    """Keeps the pods of its nodes according to their behaviour.

    All methods except `call`, `post` and `stop` run in its thread.
    """

    def __init__(self, api: Api, behaviour_of: Callable[[Json], KubeletBehaviour]) -> None:
        self._api = api
        self._behaviour_of = behaviour_of
        self._rooms: dict[str, NodeFreeCapacity] = {}
        # By node, then by uid.
        self._records: dict[str, dict[str, NodePodRecord]] = {}
        # Bound to nodes that are not there yet.
        self._strangers: dict[str, Json] = {}
        self._starting: dict[str, Json] = {}
        self._leaving: set[str] = set()
        self._due: list[_ScheduledStep] = []
        self._order = itertools.count()
        self._inbox: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="test-kubelet", daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], Any]) -> Any:
        """Run a function in the thread, and return its result."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        if not self._thread.is_alive():
            self.stop()
        self._inbox.put(run)
        return future.result(timeout=120)

    def post(self, work: Callable[[], object]) -> None:
        """Run a function in the thread without waiting; its failure ends the loop."""
        self._inbox.put(work)

    def stop(self) -> None:
        """Stop the thread. Raises its failure."""
        self._inbox.put(None)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def add_node(self, node: SimulatedNodeSpec) -> None:
        """Own a node's pods."""
        self._rooms[node.name] = NodeFreeCapacity(parse_cpu_millicores(node.cpu), parse_memory_bytes(node.memory))
        self._records[node.name] = {}
        for uid in [uid for uid, pod in self._strangers.items() if pod["spec"]["nodeName"] == node.name]:
            self.seen(self._strangers.pop(uid))

    def drop_node(self, name: str) -> None:
        """Drop a node and its pods."""
        del self._rooms[name], self._records[name]

    def find(self, namespace: str, name: str) -> NodePodRecord | None:
        """Return the running pod with this name."""
        for records in self._records.values():
            for record in records.values():
                metadata = record.pod["metadata"]
                if (metadata["namespace"], metadata["name"]) == (namespace, name) and not record.terminal:
                    return record
        return None

    def keep_only(self, uids: set[str]) -> None:
        """Drop pods that were deleted while the watch was broken."""
        here = [record.pod for records in self._records.values() for record in records.values()]
        for pod in [*here, *self._starting.values(), *self._strangers.values()]:
            if pod["metadata"]["uid"] not in uids:
                self.gone(pod)

    def gone(self, pod: Json) -> None:
        """Handle a deleted pod, which frees capacity."""
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        self._leaving.discard(uid)
        self._starting.pop(uid, None)
        self._strangers.pop(uid, None)
        if self._records.get(node, {}).pop(uid, None) is not None:
            self.reconsider(node)

    def seen(self, pod: Json) -> None:
        """Handle the present state of a pod."""
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        if node not in self._rooms:
            self._strangers[uid] = pod
            return
        record = self._records[node].get(uid)
        if record is not None:
            record.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self._leave(pod)
        elif record is not None:
            self._consider(record)
        elif uid in self._starting:
            self._starting[uid] = pod
        elif pod["status"].get("phase") not in ("Succeeded", "Failed"):
            self._starting[uid] = pod
            self._after(self._behaviour_of(pod).start_seconds, lambda: self._start(uid))

    def reconsider(self, node: str | None = None) -> None:
        """Check the waiting pods of a node again, or of all nodes: capacity or behaviour may have changed."""
        for name in (node,) if node else tuple(self._rooms):
            for record in list(self._records[name].values()):
                if record.pending or record.in_progress:
                    self._consider(record)

    def kill_container(
        self, record: NodePodRecord, name: str, reason: str, exit_code: int, restart_after: float
    ) -> None:
        """End a container, and restart it if the pod's restart policy says so."""
        (container,) = (one for one in record.containers if one.name == name)
        policy = record.pod["spec"].get("restartPolicy", "Always")
        container.terminate(reason, exit_code, now_text())
        if policy == "Always" or (policy == "OnFailure" and exit_code):
            self._publish(record)

            def restart() -> None:
                if self._current(record):
                    container.restart(now_text())
                    self._publish(record)

            self._after(restart_after, restart)
        else:
            self.finish(record, "Failed" if exit_code else "Succeeded", "", exit_code)

    def finish(self, record: NodePodRecord, phase: str, reason: str, exit_code: int) -> None:
        """End a pod."""
        record.finish(phase, reason, exit_code, now_text())
        self._publish(record)
        self.reconsider(record.pod["spec"]["nodeName"])

    def _start(self, uid: str) -> None:
        pod = self._starting.pop(uid, None)
        node = pod["spec"]["nodeName"] if pod else None
        if pod is None or node not in self._rooms or uid in self._leaving:
            return
        number = next(_addresses)
        record = new_record(pod, f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", now_text())
        behaviour = self._behaviour_of(pod)
        known = bool(pod["status"].get("containerStatuses"))
        refused = None
        if behaviour.resizing is ResizeBehaviour.JUDGE and not known:
            refused = rejects_new_pod(record, self._rooms[node], self._records[node].values())
        self._records[node][uid] = record
        if refused is not None:
            record.containers.clear()
            self.finish(record, "Failed", refused, 0)
            return
        self._publish(record)
        if behaviour.run_seconds is not None:
            self._after(behaviour.run_seconds, lambda: self._succeed(record))

    def _succeed(self, record: NodePodRecord) -> None:
        if self._current(record):
            self.finish(record, "Succeeded", "", 0)

    def _leave(self, pod: Json) -> None:
        metadata = pod["metadata"]
        if metadata["uid"] not in self._leaving:
            self._leaving.add(metadata["uid"])
            grace = metadata.get("deletionGracePeriodSeconds") or 0
            self._after(min(grace, self._behaviour_of(pod).termination_seconds), lambda: self._remove(pod))

    def _remove(self, pod: Json) -> None:
        metadata = pod["metadata"]

        def delete() -> None:
            self._api.delete("pods", metadata["namespace"], metadata["name"], grace=0, uid=metadata["uid"])

        if metadata["uid"] in self._leaving:
            self._write(delete, lambda: self._remove(pod))

    def _consider(self, record: NodePodRecord) -> None:
        """Apply the changes that the spec requests, as far as the pod's behaviour permits."""
        if not self._current(record):
            return
        behaviour = self._behaviour_of(record.pod)
        judged = self._judge(record, behaviour)
        if self._progress(record, behaviour) or judged:
            self._publish(record)
            # Another pod may wait for the capacity that this one frees.
            self.reconsider(record.pod["spec"]["nodeName"])

    def _judge(self, record: NodePodRecord, behaviour: KubeletBehaviour) -> bool:
        """Allocate a resize, or set the reason why not; return whether that changed."""
        generation = record.pod["metadata"].get("generation", 0)
        if generation == record.observed_generation and record.pending is None:
            return False
        before = (record.pending, record.observed_generation, record.allocated)
        node, wanted = record.pod["spec"]["nodeName"], get_stated(record.pod)
        others = [one for one in self._records[node].values() if one is not record]
        refused = rejects_resize(record, wanted, behaviour.resizing, self._rooms[node], others)
        record.observed_generation = generation
        if refused is None:
            record.pending = None
            record.allocate(wanted)
        elif record.pending is None or record.pending[:2] != refused:
            record.pending = (*refused, now_text())
        return before != (record.pending, record.observed_generation, record.allocated)

    def _progress(self, record: NodePodRecord, behaviour: KubeletBehaviour) -> bool:
        """Let the allocation take effect, now or later; return whether that changes the pod's status."""
        if record.in_force:
            return False
        told = record.in_progress[0] if record.in_progress else None
        if behaviour.resizing is ResizeBehaviour.ERROR:
            record.in_progress = record.in_progress if told == "Error" else ("Error", "cgroup refused", now_text())
            return told != "Error"
        if behaviour.actuation_seconds <= 0:
            record.actuate(now_text())
            return True
        if told == "":
            return False
        record.in_progress = ("", "", now_text())
        self._after(behaviour.actuation_seconds, lambda: self._actuate(record))
        return True

    def _actuate(self, record: NodePodRecord) -> None:
        if self._current(record) and record.in_progress and record.in_progress[0] == "":
            record.actuate(now_text())
            self._publish(record)

    def _current(self, record: NodePodRecord) -> bool:
        here = self._records.get(record.pod["spec"]["nodeName"], {})
        return here.get(record.uid) is record and not record.terminal

    def _publish(self, record: NodePodRecord) -> None:
        metadata = record.pod["metadata"]

        def patch() -> None:
            self._api.patch("pods", metadata["namespace"], metadata["name"], record.patch(), subresource="status")

        if record.uid in self._records.get(record.pod["spec"]["nodeName"], {}):
            self._write(patch, lambda: self._publish(record))

    def _write(self, write: Callable[[], None], again: Callable[[], None]) -> None:
        """Write to the API server; if it is unreachable or busy, retry later."""
        try:
            write()
        except ApiError as error:
            # The pod no longer exists, as the watch will report.
            if error.status == 404:
                return
            if error.status not in (409, 429) and error.status < 500:
                raise
            self._later(RETRY_SECONDS, again)
        except (OSError, HTTPException):
            self._later(RETRY_SECONDS, again)

    def _after(self, seconds: float, work: Callable[[], None]) -> None:
        if seconds <= 0:
            work()
        else:
            self._later(seconds, work)

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._due, _ScheduledStep(time.monotonic() + seconds, next(self._order), work))

    def _run(self) -> None:
        try:
            while True:
                wait = self._due[0].at - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    heapq.heappop(self._due).work()
                    continue
                try:
                    work = self._inbox.get(timeout=wait)
                except queue.Empty:
                    continue
                if work is None:
                    return
                work()
        except BaseException as error:
            self._failure = error
        finally:
            self._api.close()
