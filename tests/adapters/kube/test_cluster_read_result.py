"""Reading a cluster once, from a real API server and with unusual responses."""

import json
import re
from collections.abc import Callable

import pytest

from cruise.adapters.kube.cluster import read_cluster_once
from cruise.adapters.kube.kinds import ALL_KINDS
from cruise.domain.cluster import WorkloadRef
from cruise.errors import BadInputError, UnavailableError
from tests.adapters.kube.answering_server import PreparedAnswer, ReceivedRequest, build_status, create_client
from tests.adapters.kube.followed import NOT_INSTALLED, list_pods, run_watch, wait_until_true
from tests.controlplane.manifests import container, pod_template, workload

APP = container("app", {"cpu": "200m", "memory": "128Mi"}, {"memory": "256Mi"})


async def test_a_list_and_a_watch_give_the_same_snapshot(control_plane, client, admin, kubelet, namespace):
    kubelet.add_node(f"{namespace}-n1", cpu="4")
    admin.create(workload("Deployment", namespace, "web", pod_template("web", APP), 3))

    async def all_running():
        pods = await list_pods(cluster, namespace)
        return pods if len(pods) == 3 and all(pod.phase == "Running" for pod in pods) else None

    async with run_watch(control_plane) as cluster:
        await wait_until_true(all_running, "three pods run")
        counts: dict[str, int] = {}
        seen = await read_cluster_once(client, counts.__setitem__)
        known = await cluster.snapshot()
    assert [pod for pod in seen.snapshot.pods if pod.namespace == namespace] == [
        pod for pod in known.pods if pod.namespace == namespace
    ]
    assert (namespace, WorkloadRef("Deployment", "web")) in seen.snapshot.workloads
    assert f"{namespace}-n1" in {node.name for node in seen.snapshot.nodes}
    assert counts.keys() == {kind.plural for kind in ALL_KINDS if kind.plural not in NOT_INSTALLED}
    assert counts["pods"] >= 3
    assert not [unreadable for unreadable in seen.unreadable if unreadable.namespace == namespace]


def listed(*items: object, resume: str = "") -> PreparedAnswer:
    metadata = {"resourceVersion": "7", **({"continue": resume} if resume else {})}
    return PreparedAnswer((json.dumps({"metadata": metadata, "items": items}).encode(),))


def kind_of(asked: ReceivedRequest) -> str:
    return asked.path.partition("?")[0].rpartition("/")[2]


def node(name: str) -> object:
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}},
    }


def nodes_by(respond: Callable[[ReceivedRequest], PreparedAnswer]) -> Callable[[ReceivedRequest], PreparedAnswer]:
    """Answer for nodes, and say of every other kind that there is none."""
    return lambda asked: respond(asked) if kind_of(asked) == "nodes" else listed()


async def test_joins_the_pages_of_a_list(tmp_path):
    def respond(asked: ReceivedRequest) -> PreparedAnswer:
        found = re.search(r"continue=(\w+)", asked.path)
        number = int(found.group(1)) if found else 0
        return listed(node(f"n{number}"), resume=str(number + 1) if number < 3 else "")

    async with create_client(tmp_path, nodes_by(respond)) as (client, _):
        told: list[tuple[str, int]] = []
        seen = await read_cluster_once(client, lambda kind, count: told.append((kind, count)))
    assert [one.name for one in seen.snapshot.nodes] == ["n0", "n1", "n2", "n3"]
    assert [count for kind, count in told if kind == "nodes"] == [1, 2, 3, 4]


async def test_starts_an_expired_list_again(tmp_path):
    requested: list[str] = []

    def respond(asked: ReceivedRequest) -> PreparedAnswer:
        requested.append(asked.path)
        if "continue=" in asked.path:
            return build_status(410, "too old", reason="Expired") if len(requested) < 4 else listed(node("n1"))
        return listed(node("gone" if len(requested) < 2 else "n0"), resume="x")

    async with create_client(tmp_path, nodes_by(respond)) as (client, _):
        seen = await read_cluster_once(client, lambda kind, count: None)
    # What only the list that was given up had is not there.
    assert [one.name for one in seen.snapshot.nodes] == ["n0", "n1"]


async def test_stops_waiting_for_a_server_that_does_not_end(tmp_path):
    def respond(asked: ReceivedRequest) -> PreparedAnswer:
        return (
            build_status(410, "too old", reason="Expired")
            if "continue=" in asked.path
            else listed(node("n0"), resume="x")
        )

    async with create_client(tmp_path, nodes_by(respond)) as (client, _):
        with pytest.raises(UnavailableError, match="nodes: the list took longer than the server keeps it, 3 times"):
            await read_cluster_once(client, lambda kind, count: None)


async def test_names_an_unreadable_object(tmp_path):
    unreadable = {
        "metadata": {"name": "odd", "uid": "u", "resourceVersion": "1"},
        "status": {"allocatable": {"cpu": "many"}},
    }
    async with create_client(tmp_path, nodes_by(lambda asked: listed(node("n1"), unreadable))) as (client, _):
        seen = await read_cluster_once(client, lambda kind, count: None)
    assert [one.name for one in seen.snapshot.nodes] == ["n1"]
    [found] = seen.unreadable
    assert "odd" in found.problem


NEEDED = [kind for kind in ALL_KINDS if not kind.optional]


@pytest.mark.parametrize("kind", NEEDED, ids=lambda kind: str(kind.plural))
async def test_names_a_kind_that_may_not_be_listed_and_the_role(kind, tmp_path):
    def respond(asked: ReceivedRequest) -> PreparedAnswer:
        if kind_of(asked) == kind.plural:
            told = f'{kind.plural} is forbidden: User "x" cannot list resource "{kind.plural}" at the cluster scope'
            return build_status(403, told, reason="Forbidden")
        return listed()

    async with create_client(tmp_path, respond) as (client, _):
        with pytest.raises(BadInputError, match=f"{kind.plural} cannot be listed: .*deploy/rbac/observe.yaml"):
            await read_cluster_once(client, lambda kind, count: None)


async def test_distinguishes_rejected_credentials_from_missing_permissions(tmp_path):
    async with create_client(tmp_path, lambda asked: build_status(401, "Unauthorized", reason="Unauthorized")) as (
        client,
        _,
    ):
        with pytest.raises(BadInputError, match="does not accept the credentials") as error:
            await read_cluster_once(client, lambda kind, count: None)
    assert "rbac" not in str(error.value)


async def test_a_server_that_fails_during_the_read_is_unavailable(tmp_path):
    async with create_client(tmp_path, nodes_by(lambda asked: build_status(500, "etcd is gone"))) as (client, _):
        with pytest.raises(UnavailableError, match="etcd is gone"):
            await read_cluster_once(client, lambda kind, count: None)
