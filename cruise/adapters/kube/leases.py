"""One writer at a time: leadership by a Lease of coordination.k8s.io."""

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
from cruise.errors import ConflictError, CruiseError, NotFoundError, RefusedError

# A Lease as the API server keeps it, however people have edited it, and what a contender writes into it.

Json = dict[str, Any]
DATABASE_EPOCH = "cruise.io/database-epoch"
_MOST_DIGITS = 18
# A holder that goes leaves a life of one second behind, as other programs' leader election does.
_RELEASED_SECONDS = 1


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease as it was read; `document` is all of it, so that labels and notes of others are written back."""

    document: Json

    @property
    def version(self) -> str:
        """The resourceVersion: differs after every write."""
        return str(_mapping(self.document.get("metadata")).get("resourceVersion", ""))

    @property
    def get_holder(self) -> str:
        """The holder's identity, empty where it is free."""
        return str(self.spec.get("holderIdentity") or "")

    @property
    def acquired(self) -> str:
        """When the holder took it, as text: distinguishes two holders of the same name."""
        return str(self.spec.get("acquireTime") or "")

    @property
    def released(self) -> bool:
        """Tell whether its holder has let go of it; a Lease that was only emptied has a holder that does not know."""
        return not self.get_holder and self.spec.get("leaseDurationSeconds") == _RELEASED_SECONDS

    @property
    def epoch(self) -> int:
        """The epoch that the database of a holder had; 0 where nothing usable is stated."""
        stated = _mapping(_mapping(self.document.get("metadata")).get("annotations")).get(DATABASE_EPOCH)
        if not isinstance(stated, str) or len(stated) > _MOST_DIGITS or not (stated.isascii() and stated.isdecimal()):
            return 0
        return int(stated)

    def with_epoch(self, epoch: int) -> "LeaseRecord":
        """Return it with the epoch of the database, which never becomes smaller."""
        if epoch <= self.epoch:
            return self
        metadata = _mapping(self.document.get("metadata"))
        annotations = {**_mapping(metadata.get("annotations")), DATABASE_EPOCH: str(epoch)}
        return LeaseRecord({**self.document, "metadata": {**metadata, "annotations": annotations}})

    def life_seconds(self, own_seconds: float) -> float:
        """Return for how long an unchanged record is to be respected: as it says, within reason of one's own."""
        stated = self.spec.get("leaseDurationSeconds")
        if not isinstance(stated, int):
            return own_seconds
        return min(max(float(stated), own_seconds), 4 * own_seconds)

    def with_holder(self, identity: str, acquired: str, seconds: float, now: datetime) -> "LeaseRecord":
        """Return it renewed by `identity`, or taken over if another identity had it."""
        taken = bool(self.version) and (self.get_holder, self.acquired) != (identity, acquired)
        return self._with(
            {
                "holderIdentity": identity,
                "leaseDurationSeconds": max(1, round(seconds)),
                "acquireTime": acquired,
                "renewTime": format_micro_time(now),
                "leaseTransitions": (self._transitions + taken) % 2**31,
            }
        )

    def without_holder(self, now: datetime) -> "LeaseRecord":
        """Return it without a holder, free for the next."""
        return self._with(
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
        """What holders and contenders write; empty where it was wiped."""
        return _mapping(self.document.get("spec"))

    @property
    def _transitions(self) -> int:
        stated = self.spec.get("leaseTransitions")
        return stated if isinstance(stated, int) and stated >= 0 else 0

    def _with(self, spec: Json) -> "LeaseRecord":
        return LeaseRecord({**self.document, "spec": {**self.spec, **spec}})


def read_lease(body: bytes) -> LeaseRecord:
    """Read an answer. Raises Unavailable where it is no object."""
    return LeaseRecord(decode_answer(body, Json, "the Lease"))


def create_lease(namespace: str, name: str) -> LeaseRecord:
    """Return a Lease that is not there yet."""
    return LeaseRecord(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {},
        }
    )


def format_micro_time(now: datetime) -> str:
    """Write a UTC time as Kubernetes' MicroTime."""
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


log = structlog.get_logger()

LEASE_DURATION = timedelta(seconds=15)
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _uptime() -> float:
    """Return seconds that go on while this host sleeps, as they do for other hosts."""
    return time.clock_gettime(_CLOCK)


class NamespaceMissingError(NotFoundError):
    """The namespace of a Lease does not exist, which no retry mends."""


class LeaderLease:
    """Contends for one Lease as `identity`, and leads while it holds it.

    A holder counts its time from when its last successful renewal began, and stops at `renew_deadline`; others count
    `duration` from when they last saw the Lease change, each by its own clock. As the deadline is the shorter and
    begins earlier, the holder has stopped before another may follow, whatever the hosts think the time is. By default
    the deadline is two thirds of the duration, and a renewal is tried every 2/15 of it, as in client-go. Each write
    of the Lease notes the `epoch` of the holder's database, for the next one.
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
        clock: Callable[[], float] = _uptime,
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
        self._clock = clock
        self._epoch = epoch
        self._notes_epoch = True
        self._seen: LeaseRecord | None = None
        self._seen_at = 0.0
        self._acquired = ""
        self._held_until: float | None = None
        self.has_given_up: str | None = None
        """Why it let the Lease go although it could have kept it; None once it contends again."""
        self.times_given_up = 0

    @property
    def noted_epoch(self) -> int:
        """The latest epoch that a holder's database had, as far as the Lease was seen."""
        return 0 if self._seen is None else self._seen.epoch

    @property
    def is_held(self) -> bool:
        """Tell whether this contender may write now."""
        return self._held_until is not None and self._clock() < self._held_until

    async def lead(
        self, work: Callable[[], Awaitable[None]], why_stuck: Callable[[], str | None] = lambda: None
    ) -> None:
        """Run `work` whenever and as long as the Lease is held; return when it returns, raise what it raises.

        The work is cancelled when the Lease is lost, and begun anew once it is held again. `why_stuck` is asked before
        each renewal why the work does not go on: with an answer the Lease is let go, and not contended for during one
        `duration`, so that another may have it. Cancelled itself, this ends the work first and then lets the Lease go,
        so that another may follow at once. Raises NamespaceMissingError.
        """
        try:
            while True:
                await self._campaign()
                log.info("leading", lease=self._name, identity=self._identity)
                if await self._lead_once(work, why_stuck):
                    return
                log.warning("not leading any more", lease=self._name, identity=self._identity, why=self.has_given_up)
                if self.has_given_up is not None:
                    await self._release()
                    await asyncio.sleep(self._duration)
                    self.has_given_up = None
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
                    log.warning("cannot contend for the lease", lease=self._name, problem=problem)
                reported = problem
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        """Return how long to wait: until the holder's time is up, if that is sooner than the next look."""
        usual = self._retry * random.uniform(0.8, 1.0)
        left = self._dead_at() - self._clock()
        return left if 0 < left < usual else usual

    async def _lead_once(self, work: Callable[[], Awaitable[None]], why_stuck: Callable[[], str | None]) -> bool:
        """Work while the Lease is held; tell whether the work came to its own end, whose exception is raised."""
        failed: list[Exception] = []

        async def settle() -> None:
            # Kept out of the group, which would wrap it.
            try:
                await work()
            except Exception as error:
                failed.append(error)

        try:
            async with asyncio.TaskGroup() as group:
                working, keeping = group.create_task(settle()), group.create_task(self._keep(why_stuck))
                await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
                lost = keeping.done()
                working.cancel()
                keeping.cancel()
        finally:
            self._held_until = None
        if failed:
            raise failed[0]
        return not lost

    async def _keep(self, why_stuck: Callable[[], str | None]) -> None:
        """Renew the Lease again and again while the work goes on; return when it is lost or not to be kept."""
        reported = False
        while self.is_held:
            await asyncio.sleep(min(self._retry, self._left()))
            self.has_given_up = why_stuck()
            if self.has_given_up is not None:
                self.times_given_up += 1
                break
            try:
                async with asyncio.timeout(min(self._left(), self._deadline / 2)):
                    if not await self._renew():
                        break
                reported = False
            except (CruiseError, TimeoutError) as error:
                # A repeated failure is logged once.
                if not reported:
                    problem = str(error) or "no answer in time"
                    log.warning("the lease was not renewed", lease=self._name, problem=problem)
                reported = True
        self._held_until = None

    def _left(self) -> float:
        return 0.0 if self._held_until is None else max(0.0, self._held_until - self._clock())

    async def _acquire(self) -> bool:
        """Take the Lease if it is free; tell whether it is held now."""
        found = await self._look()
        if not self._free():
            return False
        acquired = format_micro_time(_wall_clock())
        try:
            await self._write(found, acquired)
        except ConflictError:
            # Another contender was faster.
            return False
        return True

    async def _renew(self) -> bool:
        """Renew the Lease; False where it is another's now."""
        try:
            await self._write(self._seen, self._acquired)
        except (ConflictError, NotFoundError):
            # Edited, deleted, or renewed by ourselves in a request whose answer was lost.
            found = await self._look()
            if found is not None and found.get_holder and not self._mine(found):
                return False
            await self._write(found, self._acquired)
        return True

    async def _look(self) -> LeaseRecord | None:
        """Read the Lease, and keep in mind since when it has been as it is; None where there is none."""
        try:
            found = read_lease(await self._client.get(self._path, urgent=True))
        except NotFoundError:
            return None
        if self._seen is None or self._seen.spec != found.spec:
            self._seen_at = self._clock()
        self._seen = found
        return found

    def _free(self) -> bool:
        """Tell whether the Lease may be taken; one that was deleted still counts for as long as it would have."""
        seen = self._seen
        return seen is None or seen.released or self._mine(seen) or self._clock() >= self._dead_at()

    def _mine(self, record: LeaseRecord) -> bool:
        return bool(self._acquired) and (record.get_holder, record.acquired) == (self._identity, self._acquired)

    def _dead_at(self) -> float:
        return 0.0 if self._seen is None else self._seen_at + self._seen.life_seconds(self._duration)

    async def _write(self, found: LeaseRecord | None, acquired: str) -> None:
        """Write the Lease as one's own, fenced on its resourceVersion; it is held from when this began."""
        begun = self._clock()
        # Kept before it is sent: should the answer be lost, the record still proves to be ours.
        self._acquired = acquired
        record = found or create_lease(self._namespace, self._name)
        renewed = record.with_holder(self._identity, acquired, self._duration, _wall_clock())
        method, path = ("POST", self._leases) if found is None else ("PUT", self._path)
        try:
            answer = await self._noted(method, path, renewed, max(self._epoch(), self.noted_epoch))
        except NotFoundError as error:
            if found is not None:
                raise
            namespace = self._namespace
            raise NamespaceMissingError(
                f"the Lease {self._name} needs the namespace {namespace}, which does not exist; "
                f"run `kubectl create namespace {namespace}`, or set CRUISE_NAMESPACE to one that exists"
            ) from error
        self._seen = read_lease(answer)
        self._seen_at = self._clock()
        self._held_until = begun + self._deadline

    async def _noted(self, method: str, path: str, renewed: LeaseRecord, epoch: int) -> bytes:
        """Write a record with the database's epoch; without it where a policy of an earlier release forbids that."""
        if self._notes_epoch:
            try:
                return await self._client.send(method, path, renewed.with_epoch(epoch).document, urgent=True)
            except RefusedError as error:
                if renewed.epoch == epoch:
                    raise
                self._notes_epoch = False
                log.warning(
                    "the Lease cannot say how much the database has stored: apply deploy/policies.yaml of this release",
                    problem=str(error),
                )
        return await self._client.send(method, path, renewed.document, urgent=True)

    async def _release(self) -> None:
        """Let the Lease go, if it may be ours."""
        self._held_until = None
        if not self._acquired:
            return
        try:
            async with asyncio.timeout(self._deadline / 2):
                found = await self._look()
                if found is not None and self._mine(found):
                    await self._noted(
                        "PUT", self._path, found.without_holder(_wall_clock()), max(self._epoch(), found.epoch)
                    )
        except (CruiseError, TimeoutError) as error:
            log.warning("the lease was not let go", lease=self._name, problem=str(error) or "no answer in time")

    @property
    def _path(self) -> str:
        return f"{self._leases}/{quote(self._name)}"


def _wall_clock() -> datetime:
    """Return the time for people to read; nothing is ever judged by it."""
    return datetime.now(UTC)  # noqa: TID251 - the edge, where the clock is read
