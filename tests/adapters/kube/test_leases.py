import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cruise.adapters.kube.client import KubernetesClient, KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.leases import DATABASE_EPOCH, LeaderLease, NamespaceMissingError
from cruise.errors import UnavailableError
from tests.adapters.kube.relay import Network, run_through_relay
from tests.controlplane.api import Api, ApiError, Json
from tests.controlplane.control_plane import ControlPlane

LEASES = "leases.coordination.k8s.io"
DURATION, DEADLINE, RETRY = timedelta(seconds=2.5), timedelta(seconds=1.5), timedelta(seconds=0.25)


class Candidate:
    """A LeaderLease with work that notes when it runs, and whether the Lease was still held when it ended."""

    def __init__(self, lease: LeaderLease, name: str, log: list[str]) -> None:
        self.lease = lease
        self.name = name
        self.log = log
        self.working = False
        self.stuck: str | None = None
        self.task: asyncio.Task[None] | None = None

    async def work(self) -> None:
        self.log.append(f"{self.name} begins")
        self.working = True
        try:
            await asyncio.sleep(1000)
        finally:
            self.working = False
            self.log.append(f"{self.name} ends")

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def eventually(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)
    assert holds(), what


class Field:
    """All processes that campaign for one Lease; detects two leaders at the same time."""

    def __init__(self, client: KubernetesClient, namespace: str, group: asyncio.TaskGroup) -> None:
        self.client = client
        self.namespace = namespace
        self.log: list[str] = []
        self.candidates: list[Candidate] = []
        self.overlaps: list[tuple[str, ...]] = []
        self._group = group

    def join(self, name: str, client: KubernetesClient | None = None, slowness: float = 1) -> Candidate:
        lease = LeaderLease(
            client or self.client,
            self.namespace,
            "cruise",
            name,
            duration=DURATION * slowness,
            renew_deadline=DEADLINE * slowness,
            retry=RETRY,
        )
        candidate = Candidate(lease, name, self.log)
        candidate.task = self._group.create_task(lease.lead(candidate.work, lambda: candidate.stuck))
        self.candidates.append(candidate)
        return candidate

    async def watch(self) -> None:
        while True:
            leading = tuple(one.name for one in self.candidates if one.lease.is_held or one.working)
            if len(leading) > 1:
                self.overlaps.append(leading)
            await asyncio.sleep(0.005)


@asynccontextmanager
async def contest(client: KubernetesClient, namespace: str) -> AsyncIterator[Field]:
    async with asyncio.TaskGroup() as group:
        field = Field(client, namespace, group)
        watching = group.create_task(field.watch())
        yield field
        for one in field.candidates:
            await one.stop()
        watching.cancel()
    assert field.overlaps == []


@pytest.fixture
def lease_namespace(admin: Api) -> str:
    """A namespace that stays, as its pods would have to be waited for: the tests here have none."""
    with suppress(ApiError):
        admin.delete(LEASES, "default", "cruise")
    return "default"


def spec(admin: Api, namespace: str) -> Json:
    found: Json = admin.read(LEASES, namespace, "cruise")["spec"]
    return found


def edit(admin: Api, namespace: str, changed: Json) -> None:
    admin.patch(LEASES, namespace, "cruise", {"spec": changed}, "merge")


async def test_another_process_leads_as_soon_as_the_leader_ends(
    client: KubernetesClient, admin: Api, lease_namespace: str
):
    # So long that another process can lead only after a release.
    async with contest(client, lease_namespace) as field:
        first = field.join("first", slowness=100)
        await eventually(lambda: first.working, "the first leads")
        second = field.join("second", slowness=100)
        await asyncio.sleep(3 * RETRY.total_seconds())
        assert first.lease.is_held
        assert not second.lease.is_held
        assert spec(admin, lease_namespace)["holderIdentity"] == "first"
        await first.stop()
        await eventually(lambda: second.working, "the second follows")
        assert not first.lease.is_held
        assert spec(admin, lease_namespace)["holderIdentity"] == "second"
        assert spec(admin, lease_namespace)["leaseTransitions"] == 1
    assert field.log == ["first begins", "first ends", "second begins", "second ends"]
    assert spec(admin, lease_namespace)["holderIdentity"] == ""


async def test_resigns_if_the_work_makes_no_progress_and_campaigns_again_later(
    client: KubernetesClient, admin: Api, lease_namespace: str
):
    async with contest(client, lease_namespace) as field:
        first = field.join("first")
        await eventually(lambda: first.working, "the first leads")
        second = field.join("second")
        first.stuck = "node pass: not over after 360 s"
        await eventually(lambda: second.working, "the second follows")
        assert not first.lease.is_held
        assert first.lease.resign_reason == "node pass: not over after 360 s"
        assert first.lease.resignations == 1
        first.stuck = None
        await eventually(lambda: first.lease.resign_reason is None, "the first contends again")
        assert second.lease.is_held
        await second.stop()
        await eventually(lambda: first.working, "the first leads again")
    assert field.log[:5] == ["first begins", "first ends", "second begins", "second ends", "first begins"]
    assert field.overlaps == []


PROGRAM = """
import asyncio, sys
from datetime import timedelta
from pathlib import Path
from cruise.adapters.kube.client import KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.leases import LeaderLease

async def work():
    print("leads", flush=True)
    await asyncio.sleep(1000)

async def main():
    async with connect_to_kubernetes(KubernetesSettings(Path(sys.argv[1]))) as client:
        seconds = [timedelta(seconds=float(text)) for text in sys.argv[4:]]
        times = dict(zip(("duration", "renew_deadline", "retry"), seconds))
        await LeaderLease(client, sys.argv[2], "cruise", sys.argv[3], **times).lead(work)

asyncio.run(main())
"""


async def test_another_process_leads_after_a_kill(
    client: KubernetesClient, admin: Api, lease_namespace: str, control_plane: ControlPlane
):
    times = [str(time.total_seconds()) for time in (DURATION, DEADLINE, RETRY)]
    arguments = [str(control_plane.kubeconfig()), lease_namespace, "doomed", *times]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        while await process.stdout.readline() != b"leads\n":
            assert process.returncode is None
        async with contest(client, lease_namespace) as field:
            second = field.join("second")
            await asyncio.sleep(2 * DURATION.total_seconds())
            assert not second.lease.is_held
            process.kill()
            await eventually(lambda: second.working, "the second follows")
            assert spec(admin, lease_namespace)["holderIdentity"] == "second"
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.parametrize("state", [Network.SILENT, Network.DEAF, Network.DOWN])
async def test_a_holder_that_is_cut_off_stops_before_another_follows(
    client: KubernetesClient, lease_namespace: str, control_plane: ControlPlane, tmp_path: Path, state: Network
):
    async with (
        run_through_relay(control_plane, tmp_path) as (relay, kubeconfig),
        connect_to_kubernetes(KubernetesSettings(kubeconfig)) as other,
        contest(client, lease_namespace) as field,
    ):
        first = field.join("first", other)
        await eventually(lambda: first.working, "the first leads")
        second = field.join("second")
        await asyncio.sleep(2 * RETRY.total_seconds())
        relay.become(state)
        await eventually(lambda: second.working, "the second follows")
        assert field.log == ["first begins", "first ends", "second begins"]
        relay.become(Network.UP)
        await asyncio.sleep(2 * DURATION.total_seconds())
        assert second.lease.is_held
        assert not first.lease.is_held


async def test_keeps_the_lease_during_a_short_outage(
    client: KubernetesClient, lease_namespace: str, control_plane: ControlPlane, tmp_path: Path
):
    async with (
        run_through_relay(control_plane, tmp_path) as (relay, kubeconfig),
        connect_to_kubernetes(KubernetesSettings(kubeconfig)) as other,
        contest(client, lease_namespace) as field,
    ):
        first = field.join("first", other, slowness=10)
        await eventually(lambda: first.working, "the first leads")
        for _ in range(3):
            relay.become(Network.DOWN)
            await asyncio.sleep(1)
            relay.become(Network.UP)
            await asyncio.sleep(1)
        assert first.lease.is_held
        assert field.log == ["first begins"]


async def test_a_long_pause_of_the_server_stops_the_work_until_it_answers(
    client: KubernetesClient, lease_namespace: str, control_plane: ControlPlane
):
    async with contest(client, lease_namespace) as field:
        first, second = field.join("first"), field.join("second")
        await eventually(lambda: first.working or second.working, "one leads")
        control_plane.pause()
        try:
            await eventually(lambda: not (first.working or second.working), "no process leads")
            assert not first.lease.is_held
            assert not second.lease.is_held
            await asyncio.sleep(DURATION.total_seconds())
            assert len(field.log) == 2
        finally:
            control_plane.resume()
        await eventually(lambda: first.working or second.working, "one leads again")


async def test_follows_a_server_that_was_killed_and_restarted(
    client: KubernetesClient, lease_namespace: str, control_plane: ControlPlane
):
    async with contest(client, lease_namespace) as field:
        first = field.join("first", slowness=30)
        await eventually(lambda: first.working, "the first leads")
        field.join("second", slowness=30)
        await asyncio.to_thread(control_plane.restart)
        await asyncio.sleep(4 * RETRY.total_seconds())
        assert first.lease.is_held
        assert field.log == ["first begins"]


async def test_the_holder_creates_a_deleted_lease_again(client: KubernetesClient, admin: Api, lease_namespace: str):
    async with contest(client, lease_namespace) as field:
        first = field.join("first")
        await eventually(lambda: first.working, "the first leads")
        second = field.join("second")
        for _ in range(5):
            await asyncio.sleep(RETRY.total_seconds())
            with suppress(ApiError):
                admin.delete(LEASES, lease_namespace, "cruise")
        await asyncio.sleep(2 * RETRY.total_seconds())
        assert first.lease.is_held
        assert not second.lease.is_held
        assert spec(admin, lease_namespace)["holderIdentity"] == "first"


@pytest.mark.parametrize(
    "edited",
    [
        {"holderIdentity": "", "acquireTime": None},
        {"holderIdentity": None, "renewTime": None, "leaseDurationSeconds": None, "leaseTransitions": None},
        {"renewTime": "2046-01-01T00:00:00.000000Z", "leaseDurationSeconds": 2147483647},
        {"leaseTransitions": 2147483647},
    ],
)
async def test_a_lease_with_invalid_edits_keeps_its_holder(
    client: KubernetesClient, admin: Api, lease_namespace: str, edited: Json
):
    async with contest(client, lease_namespace) as field:
        first = field.join("first")
        await eventually(lambda: first.working, "the first leads")
        second = field.join("second")
        edit(admin, lease_namespace, edited)
        await asyncio.sleep(4 * RETRY.total_seconds())
        assert first.lease.is_held
        assert not second.lease.is_held
        assert spec(admin, lease_namespace)["holderIdentity"] == "first"
    assert field.log == ["first begins", "first ends"]


@pytest.mark.parametrize(
    "edited",
    [
        {"holderIdentity": "somebody"},
        {"holderIdentity": "somebody", "leaseTransitions": 2147483647},
        {"holderIdentity": "first", "acquireTime": "2026-01-01T00:00:00.000000Z"},
        {"holderIdentity": "somebody", "leaseDurationSeconds": 2147483647, "renewTime": "2046-01-01T00:00:00.000000Z"},
    ],
)
async def test_a_lease_with_an_edited_holder_is_lost_and_taken_after_it_expires(
    client: KubernetesClient, admin: Api, lease_namespace: str, edited: Json
):
    async with contest(client, lease_namespace) as field:
        first = field.join("first")
        await eventually(lambda: first.working, "the first leads")
        edit(admin, lease_namespace, edited)
        await eventually(lambda: not first.working, "it stops")
        assert not first.lease.is_held
        await eventually(lambda: first.working, "it leads again")
    assert field.log == ["first begins", "first ends", "first begins", "first ends"]


@pytest.mark.parametrize("skew_minutes", [-10, 10])
async def test_the_clocks_of_other_hosts_do_not_matter(
    client: KubernetesClient, admin: Api, lease_namespace: str, skew_minutes: int
):
    def renewed() -> Json:
        then = datetime.now(UTC) + timedelta(minutes=skew_minutes)  # noqa: TID251 - another host's wrong clock
        return {
            "holderIdentity": "elsewhere",
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": then.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "leaseDurationSeconds": 2,
        }

    manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": renewed()}
    admin.create({**manifest, "metadata": {"namespace": lease_namespace, "name": "cruise"}})
    async with contest(client, lease_namespace) as field:
        one = field.join("one")
        for _ in range(20):
            await asyncio.sleep(RETRY.total_seconds())
            edit(admin, lease_namespace, renewed())
            assert not one.lease.is_held
        await eventually(lambda: one.working, "it follows once the other is silent")


async def test_other_requests_do_not_delay_a_renewal(admin: Api, lease_namespace: str, control_plane: ControlPlane):
    slow = KubernetesSettings(control_plane.kubeconfig(), requests_per_second=0.001, burst=1)
    async with connect_to_kubernetes(slow) as busy, contest(busy, lease_namespace) as field:
        one = field.join("one")
        await busy.get("/version")
        await eventually(lambda: one.working, "it leads")
        await asyncio.sleep(2 * DURATION.total_seconds())
        assert one.lease.is_held
    assert field.log == ["one begins", "one ends"]


async def test_labels_of_others_stay_on_the_lease(client: KubernetesClient, admin: Api, lease_namespace: str):
    async with contest(client, lease_namespace) as field:
        first = field.join("first")
        await eventually(lambda: first.working, "the first leads")
        admin.patch(LEASES, lease_namespace, "cruise", {"metadata": {"labels": {"team": "x"}}}, "merge")
        before = spec(admin, lease_namespace)["renewTime"]
        await eventually(lambda: spec(admin, lease_namespace)["renewTime"] != before, "it is renewed")
        assert admin.read(LEASES, lease_namespace, "cruise")["metadata"]["labels"] == {"team": "x"}


async def test_the_next_holder_reads_the_epoch_of_the_previous_database(
    client: KubernetesClient, admin: Api, lease_namespace: str
):
    epoch = [7]
    seen: list[int] = []

    async def work() -> None:
        epoch[0] = 9

    one = LeaderLease(client, lease_namespace, "cruise", "one", epoch=lambda: epoch[0])
    await one.lead(work)
    # Its last word.
    assert admin.read(LEASES, lease_namespace, "cruise")["metadata"]["annotations"] == {DATABASE_EPOCH: "9"}

    async def look() -> None:
        seen.append(two.recorded_epoch)

    # Its database is at an earlier state, and the Lease keeps the later epoch.
    two = LeaderLease(client, lease_namespace, "cruise", "two", epoch=lambda: 4)
    await two.lead(look)
    assert seen == [9]
    assert admin.read(LEASES, lease_namespace, "cruise")["metadata"]["annotations"] == {DATABASE_EPOCH: "9"}


async def test_leading_ends_when_the_work_returns(client: KubernetesClient, admin: Api, lease_namespace: str):
    async def work() -> None:
        assert spec(admin, lease_namespace)["holderIdentity"] == "one"

    lease = LeaderLease(client, lease_namespace, "cruise", "one")
    await lease.lead(work)
    assert not lease.is_held
    assert spec(admin, lease_namespace)["holderIdentity"] == ""


async def test_raises_the_error_of_the_work_and_releases_the_lease(
    client: KubernetesClient, admin: Api, lease_namespace: str
):
    async def work() -> None:
        raise UnavailableError("the database is away")

    lease = LeaderLease(client, lease_namespace, "cruise", "one")
    with pytest.raises(UnavailableError, match="the database is away"):
        await lease.lead(work)
    assert not lease.is_held
    assert spec(admin, lease_namespace)["holderIdentity"] == ""


async def test_the_work_may_end_slowly(client: KubernetesClient, admin: Api, lease_namespace: str):
    ended: list[str] = []
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.3)
            ended.append(spec(admin, lease_namespace)["holderIdentity"])

    lease = LeaderLease(client, lease_namespace, "cruise", "one")
    leading = asyncio.ensure_future(lease.lead(work))
    await begun.wait()
    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leading
    assert ended == ["one"]
    assert spec(admin, lease_namespace)["holderIdentity"] == ""


async def test_a_process_without_permission_never_leads(admin: Api, lease_namespace: str, control_plane: ControlPlane):
    account = {"namespace": lease_namespace, "name": "lease-less"}
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    kubeconfig = control_plane.kubeconfig("lease-less", admin.service_account_token(lease_namespace, "lease-less"))
    try:
        async with (
            connect_to_kubernetes(KubernetesSettings(kubeconfig)) as poor,
            contest(poor, lease_namespace) as field,
        ):
            one = field.join("one")
            await asyncio.sleep(4 * RETRY.total_seconds())
            assert not one.lease.is_held
        assert field.log == []
    finally:
        admin.delete("serviceaccounts", lease_namespace, "lease-less")


@pytest.mark.parametrize(("duration", "deadline", "retry"), [(10, 10, 1), (10, 15, 1), (15, 10, 10), (15, 10, 11)])
async def test_times_that_could_let_two_lead_are_refused(
    client: KubernetesClient, duration: int, deadline: int, retry: int
):
    with pytest.raises(ValueError, match="a Lease needs"):
        LeaderLease(
            client,
            "default",
            "cruise",
            "one",
            duration=timedelta(seconds=duration),
            renew_deadline=timedelta(seconds=deadline),
            retry=timedelta(seconds=retry),
        )


async def test_does_not_campaign_without_the_namespace(client: KubernetesClient):
    async def work() -> None:
        raise AssertionError("nothing leads here")

    lease = LeaderLease(client, "not-there", "cruise", "a")
    fix = "needs the namespace not-there, which does not exist; run `kubectl create namespace not-there`"
    async with asyncio.timeout(120):
        with pytest.raises(NamespaceMissingError, match=fix):
            await lease.lead(work)
