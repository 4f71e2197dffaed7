"""The constraints that volumes add to a packing."""

from cruise.decisions.packing.problem import build_packing_problem
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.reasons import ReasonDetailCode, UnschedulableCode, UnschedulableReason
from cruise.domain.scheduling import (
    LabelRequirement,
    NodeSelectorTerm,
    PersistentVolumeClaim,
    PodConstraints,
    SelectorOperator,
    StorageAndNamespaces,
)
from cruise.packer.answer import PackingNote, PackingNoteCode
from tests.decisions.packing.shop import make_shop_node, make_shop_pod

IN_ZONE_A = (NodeSelectorTerm((LabelRequirement("zone", SelectorOperator.IN, ("a",)),)),)


def using(*claims: str) -> PodConstraints:
    return PodConstraints(claims=claims)


def cluster(*claims: PersistentVolumeClaim, pods: tuple[Pod, ...]) -> ClusterSnapshot:
    return ClusterSnapshot(
        nodes=(make_shop_node("n1", labels={"zone": "a"}), make_shop_node("n2", labels={"zone": "b"})),
        pods=pods,
        storage_and_namespaces=StorageAndNamespaces(
            claims={(claim.namespace, claim.name): claim for claim in claims}, attach_limits={"n1": {"ebs": 2}}
        ),
    )


def test_a_pod_whose_claim_cannot_be_used_is_omitted_or_not_moved() -> None:
    lost = PersistentVolumeClaim("shop", "lost", bound=False)
    pods = (make_shop_pod("a", constraints=using("lost")), make_shop_pod("b", "n1", constraints=using("unheard")))
    built = build_packing_problem(cluster(lost, pods=pods))
    assert [(one.pod, one.blocked_by, one.reason) for one in built.ignored_pods] == [
        ("a", ("volume",), UnschedulableReason(UnschedulableCode.CLAIM_UNBOUND, claim="lost"))
    ]
    assert built.immovable_reasons == (ReasonDetailCode.VOLUME_UNKNOWN.create("unheard"),)


def test_volumes_restrict_the_nodes_of_a_pod() -> None:
    waits = PersistentVolumeClaim("shop", "data", bound=False, waits_for_first_consumer=True, terms=IN_ZONE_A)
    problem = build_packing_problem(cluster(waits, pods=(make_shop_pod("a", constraints=using("data")),))).problem
    assert problem.allowed_nodes[problem.node_mask_of_class[0]].tolist() == [True, False]


def test_attached_volumes_are_a_resource_of_nodes_that_limit_them() -> None:
    claims = [
        PersistentVolumeClaim("shop", name, driver="ebs", volume=volume)
        for name, volume in (("x", "v1"), ("y", "v1"), ("z", "v2"))
    ]
    problem = build_packing_problem(
        cluster(*claims, pods=(make_shop_pod("a", constraints=using("x", "y", "z")),))
    ).problem
    assert problem.resources == ("cpu", "memory", "pods", "attach:ebs")
    assert problem.demands[:, 3].tolist() == [2]
    assert problem.capacities[:, 3].tolist() == [2, UNBOUNDED]


def test_a_running_pod_attaches_what_it_has_though_its_replacement_could_not_be_created() -> None:
    # Its class binds at once, so that nothing is known of the claim that would be made with the replacement.
    claims = (
        PersistentVolumeClaim("shop", "own", driver="ebs", volume="v1"),
        PersistentVolumeClaim("shop", "other", driver="ebs", volume="v2"),
    )
    own = PodConstraints(claims=("own",), own_claims=("own",))
    pods = (make_shop_pod("a", "n1", constraints=own), make_shop_pod("b", constraints=using("other")))
    built = build_packing_problem(cluster(*claims, pods=pods))
    assert built.immovable_reasons == (ReasonDetailCode.VOLUME_UNKNOWN.create("own"), None)
    assert built.problem.demands[built.problem.pod_class, 3].tolist() == [1, 1]


def test_a_claim_for_one_pod_that_is_used_on_a_vanished_node_keeps_the_next_one_pending() -> None:
    lone = PersistentVolumeClaim("shop", "data", single_pod=True)
    pods = (
        make_shop_pod("z-old", "gone", constraints=using("data")),
        make_shop_pod("a-new", constraints=using("data")),
    )
    built = build_packing_problem(cluster(lone, pods=pods))
    assert [(one.pod, one.reason) for one in built.ignored_pods] == [
        ("a-new", UnschedulableReason(UnschedulableCode.CLAIM_OUT_OF_REACH, claim="data"))
    ]
    assert built.notes == (
        PackingNote(PackingNoteCode.PODS_IGNORED, "volume", 1),
        PackingNote(PackingNoteCode.NODES_MISSING, count=1),
    )
