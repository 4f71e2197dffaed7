"""Events on pods about what cruise did to them or could not do."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import structlog

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.throttling import TokenBucket
from cruise.domain.actions import PodEvent, ReasonCode
from cruise.domain.users import UserAction
from cruise.errors import CruiseError, NotFoundError, ThrottledError, UnavailableError

log = structlog.get_logger()

_COMPONENT = "cruise"
_AGAIN_AFTER = timedelta(hours=1)
_PER_SECOND, _BURST = 5.0, 50
_LONGEST_MESSAGE = 1000
_NO_RIGHT = frozenset({"Forbidden", "Unauthorized"})
_LONGEST_NAME = 200


class PodEventRecorder:
    """Writes core v1 Events from `host`: the same about a pod once in an hour, and not too many in all.

    An hour is how long an API server keeps an Event by default. What is too much is dropped, not kept for later.
    """

    def __init__(self, client: KubernetesClient, host: str) -> None:
        self._client = client
        self._host = host
        self._bucket = TokenBucket(_PER_SECOND, _BURST)
        self._written: dict[tuple[str, ReasonCode], tuple[str, datetime]] = {}
        self._problem = ""

    async def record(self, announcements: Sequence[PodEvent], now: datetime) -> None:
        """Write what is new; what cannot be written is logged, once for as long as the problem is the same."""
        self._written = {key: entry for key, entry in self._written.items() if now - entry[1] < _AGAIN_AFTER}
        for announcement in announcements:
            key = (announcement.pod_uid, announcement.reason)
            if self._written.get(key, ("", now))[0] == announcement.message or not self._bucket.acquire(
                now.timestamp()
            ):
                continue
            self._written[key] = (announcement.message, now)
            try:
                await self._write(announcement, now)
            except (UnavailableError, ThrottledError) as error:
                # The next would fare no better.
                self._log(error)
                return
            except NotFoundError:
                # The namespace went meanwhile, and the pod with it.
                continue
            except CruiseError as error:
                self._log(error)
                if getattr(error, "cause", "") in _NO_RIGHT:
                    return
            else:
                self._problem = ""

    def _log(self, error: CruiseError) -> None:
        problem = f"{type(error).__name__}: {getattr(error, 'cause', '')}"
        if problem != self._problem:
            log.warning("events cannot be written", problem=str(error))
        self._problem = problem

    async def _write(self, announcement: PodEvent, now: datetime) -> None:
        involved = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": announcement.namespace,
            "name": announcement.pod,
            "uid": announcement.pod_uid,
        }
        event = build_event(involved, format_event_reason(announcement.reason), announcement.message, now, self._host)
        event["type"] = "Warning" if announcement.warning else "Normal"
        await send_event(self._client, event)


def build_event(involved: dict[str, str], reason: str, message: str, now: datetime, host: str) -> dict[str, object]:
    """Return an Event about an object, in its namespace."""
    at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": involved["namespace"],
            "generateName": f"{involved['name'][:_LONGEST_NAME].rstrip('-.')}.",
        },
        "involvedObject": involved,
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
        "type": "Normal",
        "source": {"component": _COMPONENT, "host": host},
        "reportingComponent": _COMPONENT,
        "reportingInstance": host,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


async def send_event(client: KubernetesClient, event: dict[str, object]) -> None:
    """Write an Event. Raises CruiseError."""
    involved = event["involvedObject"]
    assert isinstance(involved, dict)
    await client.send("POST", f"/api/v1/namespaces/{quote(involved['namespace'])}/events", event)


def format_event_reason(reason: ReasonCode) -> str:
    """Write a reason as Kubernetes writes reasons, such as `OomKilled`."""
    return "".join(part.capitalize() for part in reason.value.split("-"))


# Events about what people did to cruise: on the workload that they overrode, else on cruise's own Lease.

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


class UserActionEventRecorder:
    """Writes core v1 Events from `host`; `namespace` is cruise's own."""

    def __init__(self, client: KubernetesClient, host: str, namespace: str) -> None:
        self._client = client
        self._host = host
        self._namespace = namespace

    async def record(self, done: UserAction, message: str) -> None:
        """Write one; what cannot be written is logged."""
        reason = "".join(part.capitalize() for part in done.kind.value.split("-"))
        event = build_event(self._involved(done), reason, message, done.at, self._host)
        try:
            await send_event(self._client, event)
        except CruiseError as error:
            log.warning("event cannot be written", reason=reason, problem=str(error))

    def _involved(self, done: UserAction) -> dict[str, str]:
        workload = done.workload
        if workload is None or done.namespace is None:
            return {**_LEASE, "namespace": self._namespace}
        api = {"apiVersion": _APIS[workload.kind]} if workload.kind in _APIS else {}
        return {**api, "kind": workload.kind, "namespace": done.namespace, "name": workload.name}
