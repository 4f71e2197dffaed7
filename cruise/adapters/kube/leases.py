"""Leader election by a Lease of coordination.k8s.io."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import structlog

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.errors import ConflictError, CruiseError, NotFoundError
from cruise.kube_json.patches import JsonObject

DATABASE_EPOCH = "cruise.io/database-epoch"
_MAX_EPOCH_DIGITS = 18
# A released Lease has a duration of one second, as with client-go.
_RELEASED_SECONDS = 1


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease as read, however it was edited; the whole `document`, so that labels of others are written back."""

    document: JsonObject

    @property
    def version(self) -> str:
        """The resourceVersion, which differs after every write."""
        return str(_mapping(self.document.get("metadata")).get("resourceVersion", ""))

    @property
    def holder(self) -> str:
        """The identity of the holder, empty if the Lease is free."""
        return str(self.spec.get("holderIdentity") or "")

    @property
    def acquired(self) -> str:
        """The acquireTime as text; it distinguishes two holders of the same name."""
        return str(self.spec.get("acquireTime") or "")

    @property
    def released(self) -> bool:
        """Whether the holder released it; a Lease whose holder was deleted by a user may still have one."""
        return not self.holder and self.spec.get("leaseDurationSeconds") == _RELEASED_SECONDS

    @property
    def epoch(self) -> int:
        """The database epoch of the last holder; 0 if it is missing or not a number."""
        value = _mapping(_mapping(self.document.get("metadata")).get("annotations")).get(DATABASE_EPOCH)
        if not isinstance(value, str) or len(value) > _MAX_EPOCH_DIGITS or not (value.isascii() and value.isdecimal()):
            return 0
        return int(value)

    def with_epoch(self, epoch: int) -> "LeaseRecord":
        """Return the Lease with the epoch of the database, which never decreases."""
        if epoch <= self.epoch:
            return self
        metadata = _mapping(self.document.get("metadata"))
        annotations = {**_mapping(metadata.get("annotations")), DATABASE_EPOCH: str(epoch)}
        return LeaseRecord({**self.document, "metadata": {**metadata, "annotations": annotations}})

    def compute_expiry_seconds(self, own_seconds: float) -> float:
        """Return how long to respect an unchanged Lease: its duration, between 1 and 4 times one's own."""
        seconds = self.spec.get("leaseDurationSeconds")
        if not isinstance(seconds, int):
            return own_seconds
        return min(max(float(seconds), own_seconds), 4 * own_seconds)

    def with_holder(self, identity: str, acquired: str, seconds: float, now: datetime) -> "LeaseRecord":
        """Return the Lease as renewed or acquired by `identity`."""
        is_new = bool(self.version) and (self.holder, self.acquired) != (identity, acquired)
        return self._with_spec(
            {
                "holderIdentity": identity,
                "leaseDurationSeconds": max(1, round(seconds)),
                "acquireTime": acquired,
                "renewTime": format_micro_time(now),
                "leaseTransitions": (self._transitions + is_new) % 2**31,
            }
        )

    def without_holder(self, now: datetime) -> "LeaseRecord":
        """Return the Lease as released."""
        return self._with_spec(
            {
                "holderIdentity": "",
                "leaseDurationSeconds": _RELEASED_SECONDS,
                "acquireTime": None,
                "renewTime": format_micro_time(now),
                "leaseTransitions": self._transitions,
            }
        )

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec, empty if it is missing."""
        return _mapping(self.document.get("spec"))

    @property
    def _transitions(self) -> int:
        transitions = self.spec.get("leaseTransitions")
        return transitions if isinstance(transitions, int) and transitions >= 0 else 0

    def _with_spec(self, spec: JsonObject) -> "LeaseRecord":
        return LeaseRecord({**self.document, "spec": {**self.spec, **spec}})


def read_lease(body: bytes) -> LeaseRecord:
    """Decode a Lease. Raises UnavailableError."""
    return LeaseRecord(decode_answer(body, JsonObject, "the Lease"))


def build_empty_lease(namespace: str, name: str) -> LeaseRecord:
    """Return a new Lease."""
    return LeaseRecord(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {},
        }
    )


def format_micro_time(now: datetime) -> str:
    """Format a UTC time as a MicroTime of Kubernetes."""
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


log = structlog.get_logger()

LEASE_DURATION = timedelta(seconds=15)
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _uptime() -> float:
    """Return seconds of a clock that also counts while the host sleeps."""
    return time.clock_gettime(_CLOCK)


class NamespaceMissingError(NotFoundError):
    """The namespace of a Lease does not exist."""


class LeaderLease:
    """Campaigns for one Lease as `identity`, and leads while it holds it.

    The holder counts from the start of its last successful renewal, and stops at `renew_deadline`. Others count
    `duration` from when they last saw the Lease change. Each uses its own clock, and the deadline is shorter and starts
    earlier, so the holder stops before another can follow, whatever the hosts' times. As in client-go, the default
    deadline is two thirds of the duration, and a renewal is tried every 2/15 of it. Each write of the Lease records the
    `epoch` of the holder's database.
    """

    def __init__(
        self,
        client: KubernetesClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration: timedelta = LEASE_DURATION,
        renew_deadline: timedelta | None = None,
        retry: timedelta | None = None,
        epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        renew_deadline = renew_deadline or duration * 2 / 3
        retry = retry or duration * 2 / 15
        if not retry < renew_deadline < duration:
            raise ValueError(f"a Lease needs retry {retry} < renew_deadline {renew_deadline} < duration {duration}")
        self._client = client
        self._namespace, self._name = namespace, name
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"
        self._identity = identity
        self._duration = duration.total_seconds()
        self._deadline = renew_deadline.total_seconds()
        self._retry = retry.total_seconds()
        self._epoch = epoch
        self._seen: LeaseRecord | None = None
        self._seen_at = 0.0
        self._acquired = ""
        self._held_until: float | None = None
        self.resign_reason: str | None = None
        """Why it released the Lease before the deadline; None once it campaigns again."""
        self.resignations = 0

    @property
    def recorded_epoch(self) -> int:
        """The latest database epoch seen in the Lease."""
        return 0 if self._seen is None else self._seen.epoch

    @property
    def is_held(self) -> bool:
        """Whether this process may write now."""
        return self._held_until is not None and _uptime() < self._held_until

    async def lead(
        self, work: Callable[[], Awaitable[None]], get_stall_reason: Callable[[], str | None] = lambda: None
    ) -> None:
        """Run `work` while the Lease is held; return when it returns, raise what it raises.

        The work is cancelled if the Lease is lost, and started again once it is held again. Before each renewal,
        `get_stall_reason` returns why the work makes no progress, or None. With a reason, the Lease is released and not
        acquired again for one `duration`, so that another process can lead. On cancellation, the work ends first and
        the Lease is released. Raises NamespaceMissingError.
        """
        try:
            while True:
                await self._campaign()
                log.info("leading", lease=self._name, identity=self._identity)
                if await self._lead_once(work, get_stall_reason):
                    return
                log.warning("no longer leading", lease=self._name, identity=self._identity, reason=self.resign_reason)
                if self.resign_reason is not None:
                    await self._release()
                    await asyncio.sleep(self._duration)
                    self.resign_reason = None
        finally:
            await self._release()

    async def _campaign(self) -> None:
        """Return once the Lease is held."""
        reported = ""
        while True:
            try:
                async with asyncio.timeout(self._deadline / 2):
                    if await self._acquire():
                        return
            except NamespaceMissingError:
                raise
            except (CruiseError, TimeoutError) as error:
                problem = str(error) or "no answer in time"
                if problem != reported:
                    log.warning("cannot acquire the lease", lease=self._name, problem=problem)
                reported = problem
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        """Return the wait before the next attempt: until the Lease expires, if that is sooner than a retry."""
        pause = self._retry * random.uniform(0.8, 1.0)
        left = self._expires_at() - _uptime()
        return left if 0 < left < pause else pause

    async def _lead_once(self, work: Callable[[], Awaitable[None]], get_stall_reason: Callable[[], str | None]) -> bool:
        """Work while the Lease is held; return whether the work ended by itself, and raise its exception."""
        failed: list[Exception] = []

        async def run_work() -> None:
            # A TaskGroup would wrap the exception.
            try:
                await work()
            except Exception as error:
                failed.append(error)

        try:
            async with asyncio.TaskGroup() as group:
                working, keeping = group.create_task(run_work()), group.create_task(self._keep(get_stall_reason))
                await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
                lost = keeping.done()
                working.cancel()
                keeping.cancel()
        finally:
            self._held_until = None
        if failed:
            raise failed[0]
        return not lost

    async def _keep(self, get_stall_reason: Callable[[], str | None]) -> None:
        """Renew the Lease while the work makes progress; return when it is lost or given up."""
        reported = False
        while self.is_held:
            await asyncio.sleep(min(self._retry, self._seconds_left()))
            self.resign_reason = get_stall_reason()
            if self.resign_reason is not None:
                self.resignations += 1
                break
            try:
                async with asyncio.timeout(min(self._seconds_left(), self._deadline / 2)):
                    if not await self._renew():
                        break
                reported = False
            except (CruiseError, TimeoutError) as error:
                # Repeated failures are logged once.
                if not reported:
                    problem = str(error) or "no answer in time"
                    log.warning("the lease was not renewed", lease=self._name, problem=problem)
                reported = True
        self._held_until = None

    def _seconds_left(self) -> float:
        return 0.0 if self._held_until is None else max(0.0, self._held_until - _uptime())

    async def _acquire(self) -> bool:
        """Take the Lease if it is free; return whether it is held now."""
        found = await self._read()
        if not self._is_free():
            return False
        acquired = format_micro_time(_wall_clock())
        try:
            await self._write(found, acquired)
        except ConflictError:
            # Another contender was faster.
            return False
        return True

    async def _renew(self) -> bool:
        """Renew the Lease; return False if another process holds it."""
        try:
            await self._write(self._seen, self._acquired)
        except (ConflictError, NotFoundError):
            # The Lease was edited or deleted, or an earlier renewal succeeded and its answer was lost.
            found = await self._read()
            if found is not None and found.holder and not self._is_own(found):
                return False
            await self._write(found, self._acquired)
        return True

    async def _read(self) -> LeaseRecord | None:
        """Read the Lease, and note since when it is unchanged; None if there is none."""
        try:
            found = read_lease(await self._client.get(self._path, urgent=True))
        except NotFoundError:
            return None
        if self._seen is None or self._seen.spec != found.spec:
            self._seen_at = _uptime()
        self._seen = found
        return found

    def _is_free(self) -> bool:
        """Return whether the Lease may be taken; a deleted Lease still counts until it would have expired."""
        seen = self._seen
        return seen is None or seen.released or self._is_own(seen) or _uptime() >= self._expires_at()

    def _is_own(self, record: LeaseRecord) -> bool:
        return bool(self._acquired) and (record.holder, record.acquired) == (self._identity, self._acquired)

    def _expires_at(self) -> float:
        return 0.0 if self._seen is None else self._seen_at + self._seen.compute_expiry_seconds(self._duration)

    async def _write(self, found: LeaseRecord | None, acquired: str) -> None:
        """Write the Lease as one's own, with its resourceVersion; it is held from the start of the request."""
        started = _uptime()
        # Set before the request is sent: if the answer is lost, the Lease is still recognised as our own.
        self._acquired = acquired
        record = found or build_empty_lease(self._namespace, self._name)
        renewed = record.with_holder(self._identity, acquired, self._duration, _wall_clock())
        method, path = ("POST", self._leases) if found is None else ("PUT", self._path)
        try:
            document = renewed.with_epoch(max(self._epoch(), self.recorded_epoch)).document
            answer = await self._client.send(method, path, document, urgent=True)
        except NotFoundError as error:
            if found is not None:
                raise
            namespace = self._namespace
            raise NamespaceMissingError(
                f"the Lease {self._name} needs the namespace {namespace}, which does not exist; "
                f"run `kubectl create namespace {namespace}`, or set CRUISE_NAMESPACE to one that exists"
            ) from error
        self._seen = read_lease(answer)
        self._seen_at = _uptime()
        self._held_until = started + self._deadline

    async def _release(self) -> None:
        """Release the Lease if it may be our own."""
        self._held_until = None
        if not self._acquired:
            return
        try:
            async with asyncio.timeout(self._deadline / 2):
                found = await self._read()
                if found is not None and self._is_own(found):
                    free = found.without_holder(_wall_clock()).with_epoch(max(self._epoch(), found.epoch))
                    await self._client.send("PUT", self._path, free.document, urgent=True)
        except (CruiseError, TimeoutError) as error:
            log.warning("the lease was not released", lease=self._name, problem=str(error) or "no answer in time")

    @property
    def _path(self) -> str:
        return f"{self._leases}/{quote(self._name)}"


def _wall_clock() -> datetime:
    """Return the time for people to read; no decision uses it."""
    return datetime.now(UTC)  # noqa: TID251 - the edge, where the clock is read
