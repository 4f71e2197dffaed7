"""Events on pods that cruise changed or could not change, and on what users changed in cruise."""

from collections.abc import Sequence, Set
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from urllib.parse import quote

import structlog

from cruise.adapters.kube.client import KubernetesClient, TokenBucket
from cruise.domain.actions import PodEvent, ReasonCode
from cruise.domain.users import UserAction
from cruise.errors import CruiseError, NotFoundError, ThrottledError, UnavailableError

log = structlog.get_logger()

_COMPONENT = "cruise"
_REPEAT_AFTER = timedelta(hours=1)
_PER_SECOND, _BURST = 5.0, 50
_MAX_MESSAGE_LENGTH = 1000
_NO_PERMISSION = frozenset({"Forbidden", "Unauthorized"})
_MAX_NAME_LENGTH = 200


class PodEventRecorder:
    """Writes core v1 Events from `host`: the same one for a pod once per hour, at a limited rate.

    An API server keeps an Event for one hour by default. Events above the rate are dropped.
    """

    def __init__(self, client: KubernetesClient, host: str) -> None:
        self._client = client
        self._host = host
        self._bucket = TokenBucket(_PER_SECOND, _BURST)
        # The hash and the time of each pod's last message, oldest first.
        self._written: dict[tuple[str, ReasonCode], tuple[int, datetime]] = {}
        self._problem = ""

    async def record(self, events: Sequence[PodEvent], now: datetime) -> None:
        """Write new events; log a failure once until the problem changes."""
        for key in list(takewhile(lambda one: now - self._written[one][1] >= _REPEAT_AFTER, self._written)):
            del self._written[key]
        for event in events:
            key, message = (event.pod_uid, event.reason), hash(event.message)
            if self._written.get(key, (None, now))[0] == message or not self._bucket.acquire(now.timestamp()):
                continue
            self._written.pop(key, None)
            self._written[key] = (message, now)
            try:
                await self._write(event, now)
            except (UnavailableError, ThrottledError) as error:
                # The next event would fail too.
                self._log(error)
                return
            except NotFoundError:
                # The namespace was deleted, and the pod with it.
                continue
            except CruiseError as error:
                self._log(error)
                if getattr(error, "cause", "") in _NO_PERMISSION:
                    return
            else:
                self._problem = ""

    def forget_gone_pods(self, pods: Set[str], before: datetime) -> None:
        """Forget Events from before a time of pods that are not among `pods`, all uids at that time or later."""
        self._written = {key: entry for key, entry in self._written.items() if key[0] in pods or entry[1] >= before}

    def _log(self, error: CruiseError) -> None:
        problem = f"{type(error).__name__}: {getattr(error, 'cause', '')}"
        if problem != self._problem:
            log.warning("events cannot be written", problem=str(error))
        self._problem = problem

    async def _write(self, event: PodEvent, now: datetime) -> None:
        involved = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": event.namespace,
            "name": event.pod,
            "uid": event.pod_uid,
        }
        document = build_event(involved, format_event_reason(event.reason), event.message, now, self._host)
        document["type"] = "Warning" if event.warning else "Normal"
        await send_event(self._client, document)


def build_event(involved: dict[str, str], reason: str, message: str, now: datetime, host: str) -> dict[str, object]:
    """Return an Event about an object, in its namespace."""
    at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": involved["namespace"],
            "generateName": f"{involved['name'][:_MAX_NAME_LENGTH].rstrip('-.')}.",
        },
        "involvedObject": involved,
        "reason": reason,
        "message": message[:_MAX_MESSAGE_LENGTH],
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
    """Return a reason in the form of Kubernetes, such as `OomKilled`."""
    return "".join(part.capitalize() for part in reason.value.split("-"))


# Without StatefulSet and DaemonSet, because OpenKruise has these kinds in another group.
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
    """Writes Events about users' actions from `host`: on the overridden workload, else on cruise's Lease."""

    def __init__(self, client: KubernetesClient, host: str, namespace: str) -> None:
        self._client = client
        self._host = host
        self._namespace = namespace

    async def record(self, action: UserAction, message: str) -> None:
        """Write one Event; log a failure."""
        reason = "".join(part.capitalize() for part in action.kind.value.split("-"))
        event = build_event(self._involved(action), reason, message, action.at, self._host)
        try:
            await send_event(self._client, event)
        except CruiseError as error:
            log.warning("event cannot be written", reason=reason, problem=str(error))

    def _involved(self, action: UserAction) -> dict[str, str]:
        workload = action.workload
        if workload is None or action.namespace is None:
            return {**_LEASE, "namespace": self._namespace}
        api = {"apiVersion": _APIS[workload.kind]} if workload.kind in _APIS else {}
        return {**api, "kind": workload.kind, "namespace": action.namespace, "name": workload.name}
