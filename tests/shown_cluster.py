"""A read-only cluster."""

from collections.abc import AsyncIterator

from cruise.domain.actions import Action
from cruise.domain.cluster import ClusterSnapshot, HorizontalPodAutoscaler, OomKill, Pod
from cruise.errors import RefusedError


class ReadOnlyCluster:
    """Implements the Cluster port over one snapshot, which may be exchanged."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.shown = snapshot

    async def snapshot(self) -> ClusterSnapshot:
        return self.shown

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        return next((pod for pod in self.shown.pods if (pod.namespace, pod.name) == (namespace, name)), None)

    def get_cached_pod(self, namespace: str, name: str) -> Pod | None:
        return next((pod for pod in self.shown.pods if (pod.namespace, pod.name) == (namespace, name)), None)

    def get_cached_autoscalers(self) -> tuple[HorizontalPodAutoscaler, ...]:
        return self.shown.autoscalers

    async def watch_oom_kills(self) -> AsyncIterator[OomKill]:
        none: tuple[OomKill, ...] = ()
        for kill in none:
            yield kill

    async def wait_for_write_turn(self) -> None:
        pass

    async def perform(self, action: Action) -> None:
        raise RefusedError("this cluster can only be looked at", "ReadOnly")
