"""Tiny clusters at the edge cases of kube-scheduler's rules: placements and messages."""

import json
from itertools import permutations
from typing import Any

import pytest

from cruise.decisions.packing.problem import build_packing_problem
from cruise.decisions.packing.proposal import build_proposal
from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.packing_plan import PackingProposal
from cruise.domain.reasons import UnschedulableCode
from cruise.kube_json.reading.snapshot import read_snapshot
from cruise.packer.answer import PackingNote, PackingNoteCode, PackingStatus
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from cruise.packer.problem import PackingObjective
from tests.builders import Json, make_list_json, make_metadata
from tests.storage_builders import DRIVER, make_claim_json, make_drivers_json, make_storage_class_json, make_volume_json

ZONE = "topology.kubernetes.io/zone"


def a_node(name: str, cpu: str = "1", **more: Any) -> Json:
    labels = more.pop("labels", {}) | {"kubernetes.io/hostname": name}
    offered = {"cpu": cpu, "memory": "8Gi", "pods": "110", **more}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"allocatable": offered, "capacity": offered, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def a_pod(name: str, node: str = "", cpu: str = "600m", status: Json | None = None, **spec: Any) -> Json:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    metadata = make_metadata(name, "shop") | {"labels": {"app": name.split("-")[0]}, "uid": f"uid-{name}"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name.split("-")[0], "uid": "u", "controller": True}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata | {"ownerReferences": [owner]},
        "spec": {"priority": 0, "containers": [{"name": "app", "resources": resources}]}
        | ({"nodeName": node} if node else {})
        | spec,
        "status": {"phase": "Running" if node else "Pending"} | (status or {}),
    }


def among_namespaces(affinity: str, operator: str, *values: str) -> Json:
    """Affinity to pods of the namespaces with such a label."""
    expression = {"key": "team", "operator": operator} | ({"values": list(values)} if values else {})
    term = {
        "topologyKey": ZONE,
        "labelSelector": {"matchLabels": {"app": "web"}},
        "namespaceSelector": {"matchExpressions": [expression]},
    }
    return {affinity: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def on_claim(name: str) -> Json:
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def cluster(*items: Json) -> ClusterSnapshot:
    return read_snapshot([json.dumps(make_list_json(*items)).encode()], "f.json")


def planned(*items: Json, objective: PackingObjective = PackingObjective.PAPER) -> PackingProposal:
    """The plan, which passes verification."""
    snapshot = cluster(*items)
    built = build_packing_problem(snapshot, objective=objective)
    found = build_proposal(built, pack(built.problem, SolveBudget(work_units=2e9), lambda packing: None))
    assert isinstance(found, PackingProposal)
    assert find_plan_objections(snapshot, found) == ()
    return found


def placed(plan: PackingProposal) -> dict[str, str]:
    return {one.pod: one.target for one in plan.placed}


def said(plan: PackingProposal) -> dict[str, tuple[tuple[str, ...], bool]]:
    return {one.pod: (one.blocked_by, one.impossible) for one in plan.unplaced}


@pytest.mark.parametrize("objective", [PackingObjective.PAPER, PackingObjective.OPERATOR])
def test_neither_of_two_equal_pods_is_impossible_if_one_fits(objective):
    plan = planned(a_node("n1"), a_pod("web-1"), a_pod("web-2"), objective=objective)
    assert plan.status is PackingStatus.OPTIMAL
    assert list(said(plan).values()) == [(("cpu",), False)]


def test_a_pod_is_impossible_without_pods_of_its_priority_or_preemption():
    full = [a_node("n1"), a_pod("there", "n1"), a_pod("web-1", priority=0)]
    assert said(planned(*full, objective=PackingObjective.OPERATOR)) == {"web-1": (("cpu",), True)}


@pytest.mark.parametrize("objective", [PackingObjective.PAPER, PackingObjective.OPERATOR])
def test_no_chain_preempts_for_a_pod_that_never_preempts(objective):
    nodes = [a_node("n1", labels={"disk": "ssd"}), a_node("n2")]
    low = a_pod("low-1", "n2", priority=-5)
    between = a_pod("web-1", "n1", priority=5)
    timid = a_pod("late-1", priority=1, preemptionPolicy="Never", nodeSelector={"disk": "ssd"})
    plan = planned(*nodes, low, between, timid, objective=objective)
    assert (plan.moves, plan.preempted, placed(plan)) == ((), (), {})
    assert plan.status is PackingStatus.ALREADY_OPTIMAL


@pytest.mark.parametrize(
    ("pod", "more", "why"),
    [
        (a_pod("web-1", schedulingGates=[{"name": "g"}]), [], "scheduling gates"),
        (a_pod("web-1", schedulerName="volcano"), [], "scheduler volcano"),
        (a_pod("web-1", resourceClaims=[{"name": "gpu", "resourceClaimName": "g"}]), [], "device gpu"),
        (a_pod("web-1", volumes=[on_claim("data")]), [], "claim data: no claims are known"),
        (
            a_pod("web-1", volumes=[on_claim("data")]),
            [make_claim_json(volume="pv-9"), make_drivers_json(ebs_csi_aws_com=5)],
            "claim data: volume pv-9 is not known",
        ),
        (
            a_pod("web-1", volumes=[on_claim("data")]),
            [make_claim_json(storage="fast"), make_storage_class_json(provisioner="kubernetes.io/no-provisioner")],
            "claim data: volumes of class fast are created by hand",
        ),
        (
            a_pod("web-1", volumes=[on_claim("data")]),
            [make_claim_json(storage="fast"), make_storage_class_json()],
            "claim data: no CSINode is known",
        ),
        (a_pod("web-1", schedulingGroup={"podGroupName": "train"}), [], "pod group train"),
        (
            a_pod("web-1", affinity=among_namespaces("podAffinity", "NotIn", "a")),
            [],
            "namespaceSelector with nothing but NotIn or DoesNotExist",
        ),
        (
            a_pod("web-1", hostNetwork=True, hostUsers=False),
            [],
            "node feature UserNamespacesHostNetworkSupport",
        ),
    ],
)
def test_what_is_not_modelled_is_said_and_counts_in_no_proof(pod, more, why):
    plan = planned(a_node("n1"), a_pod("other-1"), pod, *more)
    assert placed(plan) == {"other-1": "n1"}
    assert said(plan) == {"web-1": ((f"not-judged: {why}",), False)}
    assert [(line.placed, line.maximum) for line in plan.by_priority] == [(1, 1)]


def test_a_running_pod_of_another_scheduler_is_not_moved():
    moves = [a_node("n1"), a_node("n2", cpu="2"), a_pod("web-1", cpu="1500m"), a_pod("there", "n2", schedulerName="x")]
    plan = planned(*moves)
    assert (plan.moves, said(plan)["web-1"][1]) == ((), True)


def test_capacity_is_reserved_for_a_nominated_pod():
    waiting = a_pod("late-1", status={"nominatedNodeName": "n1"})
    plan = planned(a_node("n1"), a_pod("early-1"), waiting)
    assert placed(plan) == {"late-1": "n1"}
    held = planned(
        a_node("n1", cpu="2"), a_pod("there", "n1", cpu="1500m", priority=9), a_pod("early-1", cpu="400m"), waiting
    )
    assert said(held)["late-1"][0][0].startswith("not-judged: nominated for n1")
    assert "early-1" not in placed(held)


def test_huge_pages_of_the_whole_pod_and_overhead_of_any_resource_count():
    huge = a_node("n1", cpu="4", **{"hugepages-2Mi": "64Mi"})
    pages = {"requests": {"hugepages-2Mi": "48Mi"}, "limits": {"hugepages-2Mi": "48Mi"}}
    assert len(placed(planned(huge, *(a_pod(f"web-{n}", resources=pages) for n in (1, 2))))) == 1
    scratch = a_node("n1", cpu="4", **{"ephemeral-storage": "1Gi"})
    more = {"ephemeral-storage": "600Mi"}
    assert len(placed(planned(scratch, *(a_pod(f"web-{n}", overhead=more) for n in (1, 2))))) == 1


def test_a_claim_in_use_on_one_node_is_usable_only_there():
    shared = [make_claim_json(volume="pv-1"), make_volume_json(nfs={"path": "/"})]
    uses = [on_claim("data")]
    nodes = [a_node("n1", cpu="2"), a_node("n2", cpu="3")]
    there = a_pod("web-1", "n1", volumes=uses)
    assert placed(planned(*nodes, *shared, there, a_pod("web-2", volumes=uses))) == {"web-2": "n1"}
    full = planned(a_node("n1"), nodes[1], *shared, there, a_pod("web-2", volumes=uses))
    assert said(full)["web-2"][1] is True
    both = placed(planned(*nodes, *shared, a_pod("web-1", volumes=uses), a_pod("web-2", volumes=uses)))
    assert len(both) == 2 and len(set(both.values())) == 1


def test_a_volume_that_is_made_with_its_pod_does_not_tie_the_replacement():
    in_zone = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]}
    }
    volume = make_volume_json(csi={"driver": DRIVER, "volumeHandle": "v"}, nodeAffinity=in_zone)
    own = [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}}]
    items = [
        a_node("n1", labels={ZONE: "a"}),
        a_node("n2", labels={ZONE: "b"}),
        make_storage_class_json(volumeBindingMode="WaitForFirstConsumer"),
        make_drivers_json(ebs_csi_aws_com=9),
        make_claim_json("web-1-data", volume="pv-1", storage="fast"),
        volume,
        a_pod("web-1", "n1", volumes=own),
        a_pod("late-1", nodeSelector={ZONE: "a"}),
    ]
    plan = planned(*items)
    assert [(one.pod, one.target) for one in plan.moves] == [("web-1", "n2")]


@pytest.mark.parametrize(
    ("owner", "finding"),
    [("uid-web-1", None), ("uid-web-0", UnschedulableCode.CLAIM_OF_ANOTHER), ("", UnschedulableCode.CLAIM_OF_ANOTHER)],
)
def test_a_claim_of_an_ephemeral_volume_serves_the_pod_that_owns_it_alone(owner, finding):
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": owner, "controller": True}
    metadata = make_metadata("web-1-data", "shop", ownerReferences=[reference] if owner else [])
    own = [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}}]
    claim = make_claim_json("web-1-data", volume="pv-1", storage="fast", metadata=metadata)
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    claims = [claim, make_volume_json(), make_storage_class_json(), make_drivers_json(ebs_csi_aws_com=9)]
    # Room would have to be made for it.
    nodes = [a_node("n1", labels={"disk": "ssd"}), a_node("n2"), a_pod("app-1", "n1")]
    plan = planned(*nodes, *claims, a_pod("web-1", volumes=own, nodeSelector={"disk": "ssd"}))
    assert [one.reason.code for one in plan.unplaced] == ([] if finding is None else [finding])
    assert len(plan.moves) == (finding is None)


LABELLED = {"scheduling.x-k8s.io/pod-group": "train"}


@pytest.mark.parametrize(
    ("metadata", "spec"),
    [
        ({}, {"schedulingGroup": {"podGroupName": "train"}}),
        ({"labels": LABELLED}, {}),
        ({"labels": {"pod-group.scheduling.sigs.k8s.io": "train"}}, {}),
        ({"annotations": {"scheduling.k8s.io/group-name": "train"}}, {}),
    ],
)
def test_a_pod_group_member_is_not_moved_and_no_pod_is_moved_for_one(metadata, spec):
    nodes = [a_node("n1", labels={"disk": "ssd"}), a_node("n2"), a_pod("app-1", "n1")]
    one_in = a_pod("web-1", nodeSelector={"disk": "ssd"})
    assert len(planned(*nodes, one_in).moves) == 1
    of_group = a_pod("web-1", nodeSelector={"disk": "ssd"}, **spec)
    of_group["metadata"] |= metadata
    waits = planned(*nodes, of_group)
    assert (waits.moves, waits.preempted) == ((), ())
    assert said(waits)["web-1"][0][0].startswith("not-judged: pod group ")
    member = a_pod("app-1", "n1", **spec)
    member["metadata"] |= metadata
    stays = planned(*nodes[:2], member, one_in)
    assert (stays.moves, stays.preempted) == ((), ())


def test_a_pending_claim_is_provisioned_where_its_class_has_capacity():
    def room(zone: str, size: str) -> Json:
        return {
            "kind": "CSIStorageCapacity",
            "apiVersion": "storage.k8s.io/v1",
            "metadata": {"name": f"room-{zone}", "namespace": "kube-system"},
            "storageClassName": "fast",
            "nodeTopology": {"matchLabels": {ZONE: zone}},
            "capacity": size,
        }

    publishing = {
        "kind": "CSIDriver",
        "apiVersion": "storage.k8s.io/v1",
        "metadata": {"name": DRIVER},
        "spec": {"storageCapacity": True},
    }
    items = [
        a_node("n1", labels={ZONE: "a"}),
        a_node("n2", labels={ZONE: "b"}),
        make_storage_class_json(volumeBindingMode="WaitForFirstConsumer"),
        make_drivers_json(ebs_csi_aws_com=9),
        make_claim_json(storage="fast", spec={"resources": {"requests": {"storage": "10Gi"}}}),
        a_pod("web-1", volumes=[on_claim("data")]),
        publishing,
    ]
    assert placed(planned(*items, room("a", "5Gi"), room("b", "20Gi"))) == {"web-1": "n2"}
    assert said(planned(*items, room("a", "5Gi"))) == {"web-1": (("volume",), True)}
    # kube-scheduler checks the capacity again once it has chosen a node.
    chosen = {"volume.kubernetes.io/selected-node": "n1"}
    items[4] = make_claim_json(storage="fast", annotations=chosen, spec=items[4]["spec"])
    assert said(planned(*items, room("a", "5Gi"), room("b", "20Gi"))) == {"web-1": (("volume",), True)}
    assert placed(planned(*items, room("a", "10Gi"), room("b", "20Gi"))) == {"web-1": "n1"}


OBJECTIVES = pytest.mark.parametrize("objective", [PackingObjective.PAPER, PackingObjective.OPERATOR])


def two_zones() -> list[Json]:
    return [a_node("n1", cpu="4", labels={ZONE: "a"}), a_node("n2", cpu="4", labels={ZONE: "b"})]


def says_more_may_come(plan: PackingProposal, waiting: int) -> bool:
    """Return whether nothing is proved about the pods that stay pending, of `waiting` in all."""
    unproved = plan.status is PackingStatus.FEASIBLE or plan.status is PackingStatus.NO_IMPROVEMENT
    most = sum(line.maximum - line.running for line in plan.by_priority)
    noted = PackingNote(PackingNoteCode.OTHER_ORDERS) in plan.notes
    return unproved and noted and most == waiting and not any(impossible for _, impossible in said(plan).values())


@OBJECTIVES
@pytest.mark.parametrize("names", [("web-1", "web-2"), ("web-2", "web-1")])
def test_a_pod_with_a_spread_constraint_may_precede_the_pods_that_it_counts(objective, names):
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "nodeAffinityPolicy": "Ignore"}
    spread["labelSelector"] = {"matchLabels": {"app": "web"}}
    in_a: Json = {"nodeSelector": {ZONE: "a"}}
    pods = [a_pod(names[0], topologySpreadConstraints=[spread], **in_a), a_pod(names[1], **in_a)]
    plan = planned(*two_zones(), *pods, objective=objective)
    assert len(plan.placed) == 1 and says_more_may_come(plan, 2)
    # If all pods have the same spread constraint, every order has the same result.
    alike = [a_pod(name, topologySpreadConstraints=[spread], **in_a) for name in names]
    plan = planned(*two_zones(), *alike, objective=objective)
    assert (plan.status, len(plan.placed), plan.notes) == (PackingStatus.OPTIMAL, 1, ())


@OBJECTIVES
@pytest.mark.parametrize("names", list(permutations(("web-1", "web-2", "web-3"))))
def test_the_first_of_a_group_may_be_placed_before_others_run_elsewhere(objective, names):
    terms = [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}]
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pods = [a_pod(name, affinity=near, nodeSelector={ZONE: zone}) for name, zone in zip(names[:2], "ab", strict=True)]
    plan = planned(*two_zones(), *pods, a_pod(names[2]), objective=objective)
    assert len(plan.placed) == 2 and says_more_may_come(plan, 3)
    # With one of them running already, no other is the first.
    settled = planned(*two_zones(), a_pod(names[2], "n2"), *pods, objective=objective)
    assert (settled.status, len(settled.placed)) == (PackingStatus.OPTIMAL, 1)


def test_no_plan_is_proved_best_if_a_preempted_pod_returns_after_it():
    # The first of its group arrives in an empty namespace alone; then a replacement finds the other node unchanged.
    terms = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    low = [a_pod(f"low-{n}", f"n{n}", priority=-5) for n in (1, 2)]
    plan = planned(a_node("n1"), a_node("n2"), *low, a_pod("first-1", priority=5, affinity=near))
    assert (len(plan.placed), len(plan.preempted)) == (1, 2)
    assert (plan.status, plan.notes) == (PackingStatus.FEASIBLE, (PackingNote(PackingNoteCode.OTHER_ORDERS),))
    assert [(line.placed, line.maximum) for line in plan.by_priority] == [(1, 1), (0, 2)]


def test_no_eviction_is_proved_to_be_needed_that_an_order_saves():
    # The first of its group arrives on the node that the other one needs, and no pod is evicted for that one.
    near = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ZONE, "labelSelector": {}}]}
    nodes = [a_node("n1", cpu="2", labels={ZONE: "a"}), a_node("n2", labels={ZONE: "b"})]
    first = a_pod("first-1", priority=5, affinity={"podAffinity": near}, nodeSelector={ZONE: "a"}, cpu="1400m")
    first["metadata"]["namespace"] = "bank"
    other = a_pod("other-1")
    other["metadata"]["namespace"] = "bank"
    plan = planned(*nodes, a_pod("web-1", "n1", cpu="400m", priority=-5), first, other)
    assert (len(plan.placed), [one.pod for one in plan.moves]) == (2, ["web-1"])
    assert (plan.status, plan.notes) == (PackingStatus.FEASIBLE, (PackingNote(PackingNoteCode.OTHER_ORDERS),))


def test_no_pod_is_placed_as_the_first_of_a_group_that_an_eviction_then_starts_elsewhere():
    near = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ZONE, "labelSelector": {}}]}
    first = a_pod("web-2", affinity={"podAffinity": near}, nodeSelector={ZONE: "a"})
    other = a_pod("web-1", priority=5, nodeSelector={ZONE: "b"}, cpu="4")
    low = a_pod("low-1", "n2", priority=-5)
    for pod in (first, other):
        pod["metadata"]["namespace"] = "bank"
    plan = planned(*two_zones(), low, first, other)
    assert (placed(plan), [one.pod for one in plan.moves]) == ({"web-1": "n2"}, ["low-1"])
    assert plan.status is PackingStatus.FEASIBLE


@OBJECTIVES
def test_a_daemonset_pod_is_placed_on_its_node_even_if_cordoned(objective):
    cordoned = a_node("n1")
    cordoned["spec"] = {
        "unschedulable": True,
        "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    }
    all_of_them: Json = {"tolerations": [{"operator": "Exists"}]}
    daemon = a_pod("agent-1", priority=5, **all_of_them)
    daemon["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    plan = planned(cordoned, a_pod("low-1", "n1", priority=-5), daemon, objective=objective)
    assert (placed(plan), [one.pod for one in plan.preempted]) == ({"agent-1": "n1"}, ["low-1"])
    # What does not belong to the node is never sent there, though kube-scheduler might let it in.
    plan = planned(cordoned, a_pod("web-1", **all_of_them), a_pod("plain-1"), objective=objective)
    assert said(plan)["web-1"] == (("cordoned",), False)
    assert said(plan)["plain-1"][1]


@OBJECTIVES
@pytest.mark.parametrize("there", ["n1", ""])
def test_a_volume_that_pods_share_is_attached_once(objective, there):
    def claim(name: str, volume: str) -> list[Json]:
        shared = {"accessModes": ["ReadWriteMany"]}
        return [make_claim_json(name, volume=volume, spec=shared), make_volume_json(volume)]

    nodes = [a_node("n1", cpu="4"), make_drivers_json(ebs_csi_aws_com=1), *claim("data", "pv-1")]
    pods = [a_pod(name, node, volumes=[on_claim("data")]) for name, node in (("web-1", there), ("web-2", ""))]
    plan = planned(*nodes, *pods, objective=objective)
    assert (plan.status, plan.notes, plan.unplaced) == (PackingStatus.OPTIMAL, (), ())
    # With a separate volume for each there is no doubt.
    own = a_pod("web-2", volumes=[on_claim("more")])
    plan = planned(*nodes, *claim("more", "pv-2"), pods[0], own, objective=objective)
    assert plan.status.is_proved
    assert plan.notes == ()


@OBJECTIVES
def test_a_shared_volume_counts_once_towards_the_attach_limit(objective):
    claims = [make_claim_json(name, volume=f"pv-{name}", spec={"accessModes": ["ReadWriteMany"]}) for name in "ab"]
    volumes = [make_volume_json(f"pv-{name}") for name in "ab"]
    nodes = [a_node(name, cpu="2") for name in ("n1", "n2")]
    limits = [make_drivers_json("n1", ebs_csi_aws_com=2), make_drivers_json("n2", ebs_csi_aws_com=0)]
    shared = [a_pod(f"web-{number}", volumes=[on_claim("a")]) for number in (1, 2)]
    plan = planned(*nodes, *claims, *volumes, *limits, *shared, a_pod("db-1", volumes=[on_claim("b")]))
    assert (plan.status, set(placed(plan).values()), len(plan.placed)) == (PackingStatus.OPTIMAL, {"n1"}, 3)
    # To make room for one of them a pod without volumes moves.
    there = [a_pod("web-1", "n1", volumes=[on_claim("a")]), a_pod("big-1", "n1", cpu="1200m")]
    plan = planned(*nodes, *claims, *volumes, *limits, *there, shared[1], objective=objective)
    assert (plan.status, placed(plan)) == (PackingStatus.OPTIMAL, {"web-2": "n1"})
    assert [(one.pod, one.target) for one in plan.moves] == [("big-1", "n2")]


def nominated(name: str, node: str, **more: Any) -> Json:
    return a_pod(name, status={"nominatedNodeName": node}, **more)


def test_a_nominated_pod_that_is_not_judged_keeps_its_place_among_the_pods_of_the_node():
    small = a_node("n1", cpu="4", pods="1")
    plan = planned(small, nominated("web-1", "n1", volumes=[on_claim("x")]), a_pod("other-1"))
    assert placed(plan) == {}


def test_a_nominated_pod_attaches_its_volumes():
    own = [make_claim_json(name, volume=f"pv-{name}") for name in "ab"] + [make_volume_json(f"pv-{n}") for n in "ab"]
    pods = [nominated("web-1", "n1", volumes=[on_claim("a")]), a_pod("other-1", volumes=[on_claim("b")])]
    assert len(placed(planned(a_node("n1", cpu="4"), make_drivers_json(ebs_csi_aws_com=1), *own, *pods))) == 1


def test_a_removed_node_reserves_no_capacity():
    assert len(placed(planned(a_node("n1"), nominated("web-1", "gone"), nominated("web-2", "gone")))) == 1


def test_the_spread_of_a_nominated_pod_counts_all_nodes_that_it_may_use():
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "web"}}
    there = a_pod("web-1", "n1", cpu="100m")
    waits = nominated("web-2", "n1", cpu="100m", topologySpreadConstraints=[spread])
    assert placed(planned(*two_zones(), there, waits)) == {}


@OBJECTIVES
@pytest.mark.parametrize("names", list(permutations(("web-1", "web-2"))))
def test_no_chain_preempts_for_a_pod_that_never_preempts_where_others_may(objective, names):
    nodes = [a_node("n1", labels={"disk": "ssd"}), a_node("n2"), a_node("n3", cpu="500m", labels={"disk": "hdd"})]
    low = a_pod("low-1", "n2", priority=-5)
    between = a_pod(names[0], "n1", priority=5)
    timid = a_pod(names[1], priority=1, preemptionPolicy="Never", nodeSelector={"disk": "ssd"})
    # For this one pods may be preempted, though it fits nowhere.
    high = a_pod("high-1", priority=9, nodeSelector={"disk": "hdd"})
    plan = planned(*nodes, low, between, timid, high, objective=objective)
    assert (plan.moves, plan.preempted, placed(plan)) == ((), (), {})
    assert plan.status is PackingStatus.ALREADY_OPTIMAL
