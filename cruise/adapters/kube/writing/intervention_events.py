"""Events about what people did to cruise: on the workload that they overrode, else on cruise's own Lease."""

import structlog

from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.writing.events import event_of, send_event
from cruise.domain.callers import Intervention
from cruise.errors import CruiseError

log = structlog.get_logger()

# OpenKruise has StatefulSets and DaemonSets too, so nothing is said of the group of these.
_APIS = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "ReplicationController": "v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "CloneSet": "apps.kruise.io/v1alpha1",
    "Rollout": "argoproj.io/v1alpha1",
}
_LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "cruise-serve"}


class InterventionEvents:
    """Writes core v1 Events from `host`; `namespace` is cruise's own."""

    def __init__(self, client: KubeClient, host: str, namespace: str) -> None:
        self._client = client
        self._host = host
        self._namespace = namespace

    async def record(self, done: Intervention, message: str) -> None:
        """Write one; what cannot be written is logged."""
        reason = "".join(part.capitalize() for part in done.deed.value.split("-"))
        event = event_of(self._involved(done), reason, message, done.at, self._host)
        try:
            await send_event(self._client, event)
        except CruiseError as error:
            log.warning("event cannot be written", reason=reason, problem=str(error))

    def _involved(self, done: Intervention) -> dict[str, str]:
        workload = done.workload
        if workload is None or done.namespace is None:
            return {**_LEASE, "namespace": self._namespace}
        api = {"apiVersion": _APIS[workload.kind]} if workload.kind in _APIS else {}
        return {**api, "kind": workload.kind, "namespace": done.namespace, "name": workload.name}
