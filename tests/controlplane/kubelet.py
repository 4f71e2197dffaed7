"""A kubelet for tests: real nodes and pod statuses at a real API server, without containers."""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPException
from types import TracebackType
from typing import Any, Literal
from zlib import crc32

from tests.controlplane.api import Api, ApiError, Json, conditions, wait_until
from tests.controlplane.behaviour import BehaviourRule, KubeletBehaviour, SimulatedNodeSpec, node_ready
from tests.controlplane.node_loop import NodeLoop, now_text
from tests.controlplane.pod_record import NodePodRecord
from tests.controlplane.watching import ApiWatch

LEASES = "kube-node-lease"


class TestKubelet:
    """The kubelets of all nodes that it registers, within a context; leaving it removes the nodes.

    Pods run immediately, and resizes are checked against the node's free capacity and take effect immediately, unless
    `behave` says otherwise. `threads` share the nodes. Leaving raises the failure of any thread.
    """

    # Pytest collects classes named Test….
    __test__ = False

    def __init__(self, api: Api, threads: int = 1, lease_seconds: float = 10) -> None:
        self._api = api
        self._lease_seconds = lease_seconds
        self._rules: list[BehaviourRule] = []
        self._nodes: dict[str, SimulatedNodeSpec] = {}
        self._silent: set[str] = set()
        self._loops = [NodeLoop(api, self._behaviour_of) for _ in range(threads)]
        self._stopping = threading.Event()
        self._watch: ApiWatch | None = None
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name="test-kubelet-io", daemon=True)
            for work in (self._keep_watching, self._keep_alive)
        ]

    def __enter__(self) -> "TestKubelet":
        """Start watching."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop every thread and remove the nodes."""
        self._stopping.set()
        for thread in self._threads:
            # Repeated, because a watch may be opened meanwhile.
            while thread.is_alive():
                if self._watch is not None:
                    self._watch.stop()
                thread.join(0.1)
        for loop in self._loops:
            loop.stop()
        if error is None:
            for failure in self._failures:
                raise failure
        for name in list(self._nodes):
            self._delete_node(name)

    def add_node(self, name: str, cpu: str = "4", memory: str = "8Gi", **more: Any) -> SimulatedNodeSpec:
        """Register a node, and wait until pods may be bound to it; `more` are further fields of its spec."""
        node = SimulatedNodeSpec(name, cpu, memory, **more)
        self.add_nodes([node])
        return node

    def add_nodes(self, nodes: list[SimulatedNodeSpec]) -> None:
        """Register nodes, and wait until pods may be bound to them."""
        for node in nodes:
            loop = self._loop_of(node.name)
            loop.call(partial(loop.add_node, node))
            self._api.create(node.manifest(now_text()))
            self._api.create(_lease(node.name))
            self._nodes[node.name] = node
        wanted = {node.name for node in nodes}
        wait_until(lambda: not wanted & self._not_ready(), f"{len(wanted)} nodes are ready")

    def remove_node(self, name: str) -> None:
        """Remove a node with its pods."""
        loop = self._loop_of(name)
        loop.call(partial(loop.drop_node, name))
        self._delete_node(name)

    def set_ready(self, name: str, ready: bool) -> None:
        """Set a node's Ready condition."""
        self._api.patch(
            "nodes", None, name, {"status": {"conditions": [node_ready(ready, now_text())]}}, subresource="status"
        )

    def silence(self, name: str, silent: bool = True) -> None:
        """Stop or resume a node's heartbeats."""
        (self._silent.add if silent else self._silent.discard)(name)

    def behave(
        self,
        behaviour: KubeletBehaviour,
        namespace: str,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Set the behaviour for pods of a namespace: one by name, or all with the labels. The latest rule applies."""
        self._rules = [*self._rules, BehaviourRule(behaviour, namespace, name, labels or {})]
        self._everywhere(NodeLoop.reconsider)

    def behave_again(self) -> None:
        """Reset the behaviour."""
        self._rules = []
        self._everywhere(NodeLoop.reconsider)

    def oom_kill(self, namespace: str, pod: str, container: str, restart_after: float = 0) -> None:
        """OOM-kill a container, which restarts after some seconds."""
        self.kill_container(namespace, pod, container, "OOMKilled", 137, restart_after)

    def kill_container(
        self, namespace: str, pod: str, container: str, reason: str, exit_code: int, restart_after: float = 0
    ) -> None:
        """End a container; it restarts after some seconds if the restart policy says so."""
        self._on(
            namespace, pod, lambda loop, one: loop.kill_container(one, container, reason, exit_code, restart_after)
        )

    def finish(
        self, namespace: str, pod: str, phase: Literal["Succeeded", "Failed"] = "Succeeded", reason: str = ""
    ) -> None:
        """End a pod; a node under pressure sets Failed with reason Evicted."""
        self._on(namespace, pod, lambda loop, one: loop.finish(one, phase, reason, 0 if phase == "Succeeded" else 137))

    def _on(self, namespace: str, pod: str, work: Callable[[NodeLoop, NodePodRecord], None]) -> None:
        """Run a function on a running pod, in the thread that owns it."""

        def attempt(loop: NodeLoop) -> bool:
            record = loop.find(namespace, pod)
            if record is not None:
                work(loop, record)
            return record is not None

        def anywhere() -> bool:
            return any(loop.call(partial(attempt, loop)) for loop in self._loops)

        wait_until(anywhere, f"pod {namespace}/{pod} runs on one of the test kubelet's nodes")

    def _everywhere(self, work: Callable[[NodeLoop], None]) -> None:
        for loop in self._loops:
            loop.call(partial(work, loop))

    def _behaviour_of(self, pod: Json) -> KubeletBehaviour:
        for rule in reversed(self._rules):
            if rule.covers(pod):
                return rule.behaviour
        return KubeletBehaviour()

    def _loop_of(self, node: str) -> NodeLoop:
        return self._loops[crc32(node.encode()) % len(self._loops)]

    def _show(self, pod: Json) -> None:
        loop = self._loop_of(pod["spec"]["nodeName"])
        loop.post(partial(loop.seen, pod))

    def _not_ready(self) -> set[str]:
        """Return the nodes that controllers still taint."""
        return {
            node["metadata"]["name"]
            for node in self._api.items("nodes")
            if any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints") or ())
        }

    def _delete_node(self, name: str) -> None:
        self._nodes.pop(name, None)
        for resource, namespace in (("nodes", None), ("leases.coordination.k8s.io", LEASES)):
            try:
                self._api.delete(resource, namespace, name)
            except ApiError as error:
                if error.status != 404:
                    raise

    def _guarded(self, work: Callable[[], None]) -> None:
        """Retry while the API server is unreachable; other errors end the thread and are raised on leaving."""
        try:
            while not self._stopping.is_set():
                try:
                    work()
                except (OSError, HTTPException, ApiError) as error:
                    if isinstance(error, ApiError) and error.status < 500 and error.status not in (404, 410, 429):
                        raise
                    self._stopping.wait(0.2)
        except BaseException as error:
            self._failures.append(error)
        finally:
            self._api.close()

    def _keep_watching(self) -> None:
        """List all bound pods and watch them until the watch breaks."""
        bound = {"fieldSelector": "spec.nodeName!="}
        listed = self._api.get(f"{self._api.path('pods')}?fieldSelector=spec.nodeName!%3D")
        uids = {pod["metadata"]["uid"] for pod in listed["items"]}
        for loop in self._loops:
            loop.post(partial(loop.keep_only, uids))
        for pod in listed["items"]:
            self._show(pod)
        version = listed["metadata"]["resourceVersion"]
        while not self._stopping.is_set():
            with self._api.watch("pods", resourceVersion=version, timeoutSeconds="300", **bound) as watch:
                self._watch = watch
                for event in watch:
                    if self._stopping.is_set():
                        return
                    if event["type"] == "ERROR":
                        raise ApiError(event["object"].get("code", 500), event["object"])
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] == "DELETED":
                        self._hide(event["object"])
                    elif event["type"] != "BOOKMARK":
                        self._show(event["object"])

    def _hide(self, pod: Json) -> None:
        loop = self._loop_of(pod["spec"]["nodeName"])
        loop.post(partial(loop.gone, pod))

    def _keep_alive(self) -> None:
        """Renew every node's lease, and report again the nodes that were marked unreachable."""
        while not self._stopping.wait(self._lease_seconds):
            for name in list(self._nodes):
                if name not in self._silent and not self._stopping.is_set():
                    self._api.patch(
                        "leases.coordination.k8s.io", LEASES, name, {"spec": {"renewTime": _precisely_now()}}
                    )
            for node in self._api.items("nodes"):
                name = node["metadata"]["name"]
                given_up = conditions(node).get("Ready", {}).get("status") == "Unknown"
                if given_up and name in self._nodes and name not in self._silent:
                    self.set_ready(name, True)


def _lease(node: str) -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": LEASES},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": _precisely_now()},
    }


def _precisely_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # noqa: TID251  a lease is renewed at a time
