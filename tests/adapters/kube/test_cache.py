"""The cluster cache has the same content in whatever order objects arrive."""

import gc
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.kube.cache import ClusterCache
from cruise.adapters.kube.kinds import ALL_KINDS
from cruise.domain.annotations import Overrides
from cruise.domain.cluster import ClusterSnapshot, WorkloadRef
from cruise.domain.overrides import parse_overrides
from cruise.domain.policy import Mode
from cruise.domain.resources import StatedResources
from cruise.domain.scheduling import LabelSelector
from cruise.kube_json.reading.object_collection import ObjectCollection
from cruise.kube_json.reading.stream import StreamDecoder
from cruise.kube_json.wire.object_json import AnyObject
from tests.builders import (
    Json,
    make_autoscaler_json,
    make_budget_json,
    make_container_json,
    make_deployment_json,
    make_limit_range_json,
    make_namespace_json,
    make_node_json,
    make_pod_json,
    make_replica_set_json,
    make_workload_json,
)
from tests.storage_builders import (
    make_claim_json,
    make_drivers_json,
    make_priority_class_json,
    make_storage_class_json,
    make_volume_json,
)

KINDS = {str(kind.shape.__struct_config__.tag): kind for kind in ALL_KINDS}
DECODERS = {name: StreamDecoder(kind.shape) for name, kind in KINDS.items()}


def put(cache: ClusterCache, *documents: Json, version: int = 1) -> None:
    for document in documents:
        kind = document["kind"]
        page = decoded(document)
        (item,) = page.items or page.unreadable
        cache.get_store(KINDS[kind]).put(item, str(version))


def decoded(document: Json) -> Any:
    return DECODERS[document["kind"]].decode_page(msgspec.json.encode({"metadata": {}, "items": [document]}))


def drop(cache: ClusterCache, document: Json, version: int = 1) -> None:
    metadata = document["metadata"]
    cache.get_store(KINDS[document["kind"]]).drop((metadata.get("namespace", ""), metadata["name"]), str(version))


def gathered(documents: Iterable[Json], *, followed: bool = False) -> ClusterSnapshot:
    gathering = ObjectCollection()
    for document in documents:
        gathering.add(msgspec.convert(document, AnyObject))
    found = gathering.build_snapshot()
    return replace(found, namespaces=frozenset({"shop"})) if followed else found


def web_pod(name: str = "web-7d9f8b6c5d-aaaaa", **more: Any) -> Json:
    return make_pod_json(name, **more)


CLAIMED = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
WHOLE = (
    make_node_json("n1"),
    make_node_json("n2", labels={"kubernetes.io/os": "windows"}),
    make_namespace_json("shop", {"cruise.io/mode": "full"}),
    make_deployment_json("web"),
    make_replica_set_json("web-7d9f8b6c5d", owner="Deployment/web"),
    make_replica_set_json("odd-1", owner="Rollout/odd"),
    make_replica_set_json("roll-1", owner="Rollout/roll", template={"spec": {"containers": [make_container_json()]}}),
    make_workload_json("CronJob", "nightly"),
    make_workload_json("Job", "nightly-1", owner="CronJob/nightly"),
    make_workload_json("ReplicaSet", "alone"),
    make_workload_json("CloneSet", "clone", template={"spec": {"containers": [make_container_json()]}}),
    make_budget_json(selector={}, disruptions_allowed=1),
    make_budget_json("none", selector=None),
    make_autoscaler_json(),
    make_limit_range_json({"type": "Pod", "max": {"cpu": "4"}}),
    web_pod("web-7d9f8b6c5d-aaaaa"),
    web_pod("web-7d9f8b6c5d-bbbbb", node="n2"),
    web_pod("odd-1-x", owner="ReplicaSet/odd-1", labels={}),
    web_pod("nightly-1-y", owner="Job/nightly-1", node=None),
    web_pod("nightly-29384712-y", owner="Job/nightly-29384712"),
    web_pod("bare", owner=None, namespace="zoo"),
    web_pod("alone-z", owner="ReplicaSet/alone", namespace="shop", labels={}),
    web_pod("clone-x2x4z", owner="CloneSet/clone"),
    web_pod("finished", node="gone", phase="Succeeded"),
    web_pod("db-0", owner="StatefulSet/db", spec={"volumes": [CLAIMED], "priority": 7}),
    make_claim_json("data", volume="pv-1"),
    make_claim_json("more", storage="fast"),
    make_volume_json("pv-1"),
    make_storage_class_json("fast"),
    make_drivers_json("n1", ebs_csi_aws_com=25),
    make_priority_class_json("usual", 7, globalDefault=False),
)


@given(st.permutations(WHOLE))
def test_the_order_of_objects_makes_no_difference(documents):
    cache = ClusterCache()
    for document in documents:
        put(cache, document)
        if document["metadata"]["name"] == "n1":
            # Whatever was looked up too early is looked up again.
            cache.snapshot()
    assert cache.snapshot() == gathered(WHOLE, followed=True)


@given(st.lists(st.tuples(st.sampled_from(WHOLE), st.booleans()), max_size=40))
def test_a_deleted_object_leaves_no_state(steps):
    cache, alive = ClusterCache(), {}
    for document, comes in steps:
        key = (document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"])
        if comes:
            put(cache, document)
            alive[key] = document
        else:
            drop(cache, document)
            alive.pop(key, None)
        seen = cache.snapshot()
        assert {node.name for node in seen.nodes} == {name for kind, _, name in alive if kind == "Node"}
    for document in alive.values():
        drop(cache, document)
    assert cache.snapshot() == ClusterSnapshot(namespaces=frozenset())
    assert cache.controllers == {}


def test_builds_nothing_again_without_a_change():
    cache = ClusterCache()
    put(cache, *WHOLE)
    first = cache.snapshot()
    version = cache.version
    put(cache, *WHOLE)
    second = cache.snapshot()
    assert cache.version == version
    assert second == first
    assert all(one is other for one, other in zip(first.pods, second.pods, strict=True))
    assert second.workloads is first.workloads
    assert second.nodes is first.nodes


def test_a_snapshot_does_not_change():
    cache = ClusterCache()
    put(cache, *WHOLE)
    first = cache.snapshot()
    kept = gathered(WHOLE, followed=True)
    put(
        cache,
        make_deployment_json("more"),
        web_pod("web-7d9f8b6c5d-ccccc"),
        make_namespace_json("b", {"cruise.io/mode": "off"}),
    )
    drop(cache, make_node_json("n1"))
    assert first == kept
    assert cache.version > 0


def test_shows_pods_whose_node_is_not_listed_yet():
    cache = ClusterCache()
    put(cache, web_pod(node="n9"))
    snapshot = cache.snapshot()
    assert snapshot.nodes == ()
    assert [pod.node for pod in snapshot.pods] == ["n9"]
    put(cache, make_node_json("n9"))
    assert [node.name for node in cache.snapshot().nodes] == ["n9"]


def test_removes_finished_pods_with_their_node():
    cache = ClusterCache()
    going = web_pod("going", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    put(cache, make_node_json("n1"), going, web_pod("done", phase="Failed"), web_pod("runs"))
    assert len(cache.snapshot().pods) == 3
    drop(cache, make_node_json("n1"))
    assert [pod.name for pod in cache.snapshot().pods] == ["runs"]


def test_looks_up_owners_that_arrive_late():
    cache = ClusterCache()
    job = web_pod("nightly-1-y", owner="Job/nightly-1")
    put(cache, job)
    assert workloads(cache) == {"Job/nightly-1"}
    put(cache, make_workload_json("Job", "nightly-1", owner="CronJob/nightly"))
    assert workloads(cache) == {"CronJob/nightly"}


def test_a_job_that_was_not_seen_is_its_cron_jobs_as_soon_as_that_is_there():
    cron_job, pod = (
        make_workload_json("CronJob", "nightly"),
        web_pod("nightly-29384712-y", owner="Job/nightly-29384712"),
    )
    for documents in ((cron_job, pod), (pod, cron_job)):
        cache = ClusterCache()
        put(cache, *documents)
        assert workloads(cache) == {"CronJob/nightly"}
        # The webhook sees a pod right after its Job.
        owner = ("shop", "Job", "nightly-29384713")
        assert cache.owners.find_workload(*owner, {}) == WorkloadRef("CronJob", "nightly")
    put(cache, make_workload_json("Job", "nightly-29384712"))
    assert workloads(cache) == {"Job/nightly-29384712"}


def test_reads_a_rollouts_template_from_its_replica_sets():
    cache = ClusterCache()
    template = {"spec": {"containers": [make_container_json("app", "2")]}}
    replica_set = make_replica_set_json("web-1", owner="Rollout/web", template=template)
    put(cache, replica_set, web_pod("web-1-x", owner="ReplicaSet/web-1", labels={}))
    assert workloads(cache) == {"Rollout/web"}
    [known] = cache.snapshot().workloads.values()
    assert (known.ref, known.requests) == (WorkloadRef("Rollout", "web"), {"app": StatedResources(2000, 128 << 20)})
    drop(cache, replica_set)
    assert cache.snapshot().workloads == {}


def test_a_replica_set_that_was_not_seen_is_known_by_the_template_hash():
    cache = ClusterCache()
    put(cache, web_pod())
    assert workloads(cache) == {"Deployment/web"}


def test_pods_whose_owner_was_deleted_keep_their_workload():
    cache = ClusterCache()
    job = make_workload_json("Job", "nightly-1", owner="CronJob/nightly")
    put(cache, job, web_pod("nightly-1-y", owner="Job/nightly-1"))
    cache.snapshot()
    drop(cache, job)
    put(cache, web_pod("nightly-1-y", owner="Job/nightly-1", annotations={"cruise.io/mode": "off"}))
    assert workloads(cache) == {"CronJob/nightly"}


def workloads(cache: ClusterCache) -> set[str]:
    return {str(pod.workload) for pod in cache.snapshot().pods}


# ---- objects that cannot be read ----


def create_unreadable_pod(name: str = "odd", node: str | None = "n1") -> Json:
    return web_pod(name, node=node, containers=[make_container_json(cpu="lots")])


@pytest.mark.parametrize(
    "unreadable",
    [
        create_unreadable_pod(),
        web_pod("odd", qos="Novel"),
        web_pod("odd", status={"phase": 5}),
        web_pod("odd", spec={"tolerations": [{"operator": "Exists", "effect": "Maybe"}]}),
    ],
    ids=["quantity", "enum", "shape", "effect"],
)
def test_leaves_out_only_the_node_of_an_unreadable_pod(unreadable):
    cache = ClusterCache()
    put(cache, make_node_json("n1"), make_node_json("n2"), web_pod("a"), web_pod("b", node="n2"))
    put(cache, unreadable)
    snapshot = cache.snapshot()
    assert [node.name for node in snapshot.nodes] == ["n2"]
    assert [pod.name for pod in snapshot.pods] == ["a", "b"]
    assert [one.name for one in cache.list_unreadable()] == ["odd"]
    put(cache, web_pod("odd"))
    assert [node.name for node in cache.snapshot().nodes] == ["n1", "n2"]
    assert list(cache.list_unreadable()) == []


def test_a_pod_that_becomes_undecodable_is_omitted_until_it_is_deleted():
    cache = ClusterCache()
    put(cache, make_node_json("n1"), web_pod("odd"))
    put(cache, create_unreadable_pod())
    assert (cache.snapshot().nodes, cache.snapshot().pods) == ((), ())
    drop(cache, create_unreadable_pod())
    assert [node.name for node in cache.snapshot().nodes] == ["n1"]


def test_an_unreadable_pod_without_a_node_affects_nothing():
    cache = ClusterCache()
    put(cache, make_node_json("n1"), create_unreadable_pod(node=None))
    assert [node.name for node in cache.snapshot().nodes] == ["n1"]


def test_leaves_out_an_unreadable_node():
    cache = ClusterCache()
    put(cache, make_node_json("n1", cpu="many"), make_node_json("n2"), web_pod())
    snapshot = cache.snapshot()
    assert [node.name for node in snapshot.nodes] == ["n2"]
    assert [pod.node for pod in snapshot.pods] == ["n1"]


def test_an_unreadable_budget_covers_its_namespace_and_allows_nothing():
    cache = ClusterCache()
    put(cache, make_budget_json(selector={"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}))
    (budget,) = cache.snapshot().budgets
    assert (budget.namespace, budget.selector, budget.disruptions_allowed) == ("shop", LabelSelector(), 0)


@pytest.mark.parametrize(
    "unreadable",
    [
        {**make_autoscaler_json(), "spec": {}},
        {"kind": "VerticalPodAutoscaler", "metadata": {"namespace": "shop", "name": "web"}, "spec": {"targetRef": {}}},
        make_limit_range_json({"type": "Pod", "max": {"cpu": "much"}}),
        {**make_deployment_json(), "spec": {"replicas": "few"}},
        make_namespace_json() | {"metadata": {"name": "shop", "annotations": ["a"]}},
    ],
    ids=["autoscaler", "VPA", "limit range", "workload", "namespace"],
)
def test_a_namespace_with_an_unreadable_object_has_mode_off(unreadable):
    cache = ClusterCache()
    put(
        cache,
        make_namespace_json("shop", {"cruise.io/mode": "full"}),
        make_namespace_json("other", {"cruise.io/mode": "full"}),
    )
    put(cache, unreadable)
    modes = {name: parse_overrides(stated) for name, stated in cache.snapshot().namespace_annotations.items()}
    assert modes == {"shop": Overrides(mode=Mode.OFF), "other": Overrides(mode=Mode.FULL)}
    drop(cache, unreadable)
    assert "shop" not in cache.snapshot().namespace_annotations or unreadable["kind"] != "Namespace"


# ---- reading ahead of the watch ----


def test_an_older_event_does_not_undo_a_merge():
    cache = ClusterCache()
    store = cache.get_store(KINDS["Pod"])
    put(cache, make_node_json("n1"), web_pod(phase="Pending"), version=5)
    newer = decoded(web_pod(phase="Running", metadata={"resourceVersion": "9"})).items[0]
    store.merge(newer, "5")
    put(cache, web_pod(phase="Pending"), version=7)
    drop(cache, web_pod(), version=8)
    assert [pod.phase for pod in cache.snapshot().pods] == ["Running"]
    put(cache, web_pod(phase="Succeeded"), version=10)
    assert [pod.phase for pod in cache.snapshot().pods] == ["Succeeded"]


def test_does_not_merge_an_object_older_than_the_watch():
    cache = ClusterCache()
    put(cache, web_pod(phase="Running"), version=12)
    older = decoded(web_pod(phase="Pending", metadata={"resourceVersion": "9"})).items[0]
    cache.get_store(KINDS["Pod"]).merge(older, "12")
    assert [pod.phase for pod in cache.snapshot().pods] == ["Running"]


def test_forgets_a_merged_version_with_its_object():
    cache = ClusterCache()
    store = cache.get_store(KINDS["Pod"])
    store.merge(decoded(web_pod(metadata={"resourceVersion": "9"})).items[0], "5")
    store.retain(set())
    assert cache.snapshot().pods == ()
    put(cache, web_pod(), version=3)
    assert len(cache.snapshot().pods) == 1


def test_deleted_pods_leave_no_state():
    cache, before = ClusterCache(), alive()
    put(cache, make_node_json("n1"), *(web_pod(f"steady-{number}") for number in range(100)))
    cache.snapshot()
    sizes = []
    for number in range(40_000):
        pod = web_pod(
            f"job-{number}",
            owner=f"Job/job-{number}",
            labels={"job-name": f"job-{number}"},
            containers=[make_container_json(cpu=f"{number + 1}m")],
        )
        put(cache, pod, version=number)
        if number % 1000 == 0:
            assert len(cache.snapshot().pods) == 101
        drop(cache, pod, version=number)
        if number % 20_000 == 19_999:
            sizes.append(alive() - before)
    assert len(cache.snapshot().pods) == 100
    assert sizes[-1]["Pod"] == 100
    # Some thousands of the latest are kept to compare with, however many have come.
    assert sizes[-1]["Container"] <= 18_000
    assert sizes[-1].total() <= 1.5 * sizes[0].total()


def alive() -> Counter[str]:
    gc.collect()
    kinds = ("Pod", "Container", "WorkloadRef", "Placement", "Amounts")
    return Counter(type(one).__name__ for one in gc.get_objects() if type(one).__name__ in kinds)
