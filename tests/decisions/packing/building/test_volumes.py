"""What volumes ask of a packing."""

from cruise.decisions.packing.building import build_problem
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.colocation import Claim, PodConstraints, Surroundings
from cruise.domain.details import Detail
from cruise.domain.scheduling import NodeSelectorTerm, Operator, Requirement
from cruise.domain.unplaced import Finding, Pattern
from cruise.packer.answer import Note, NoteCode
from tests.decisions.packing.shop import a_node, a_pod

IN_ZONE_A = (NodeSelectorTerm((Requirement("zone", Operator.IN, ("a",)),)),)


def using(*claims: str) -> PodConstraints:
    return PodConstraints(claims=claims)


def cluster(*claims: Claim, pods: tuple[Pod, ...]) -> Snapshot:
    return Snapshot(
        nodes=(a_node("n1", labels={"zone": "a"}), a_node("n2", labels={"zone": "b"})),
        pods=pods,
        surroundings=Surroundings(
            claims={(claim.namespace, claim.name): claim for claim in claims}, attach_limits={"n1": {"ebs": 2}}
        ),
    )


def test_a_pod_whose_claim_cannot_be_used_is_left_out_or_stays() -> None:
    lost = Claim("shop", "lost", bound=False)
    pods = (a_pod("a", constraints=using("lost")), a_pod("b", "n1", constraints=using("unheard")))
    built = build_problem(cluster(lost, pods=pods))
    assert [(one.pod, one.blocked_by, one.finding) for one in built.left_out] == [
        ("a", ("volume",), Finding(Pattern.CLAIM_UNBOUND, claim="lost"))
    ]
    assert built.unmovable == (Detail.VOLUME_UNKNOWN.of("unheard"),)


def test_volumes_tell_where_a_pod_may_arrive() -> None:
    waits = Claim("shop", "data", bound=False, waits=True, terms=IN_ZONE_A)
    problem = build_problem(cluster(waits, pods=(a_pod("a", constraints=using("data")),))).problem
    assert problem.admits[problem.sites[0]].tolist() == [True, False]


def test_attached_volumes_are_a_resource_of_nodes_that_limit_them() -> None:
    claims = [
        Claim("shop", name, driver="ebs", volume=volume) for name, volume in (("x", "v1"), ("y", "v1"), ("z", "v2"))
    ]
    problem = build_problem(cluster(*claims, pods=(a_pod("a", constraints=using("x", "y", "z")),))).problem
    assert problem.resources == ("cpu", "memory", "pods", "attach:ebs")
    assert problem.demands[:, 3].tolist() == [2]
    assert problem.capacities[:, 3].tolist() == [2, UNBOUNDED]


def test_a_running_pod_attaches_what_it_has_though_its_replacement_could_not_be_created() -> None:
    # Its class binds at once, so that nothing is known of the claim that would be made with the replacement.
    claims = (Claim("shop", "own", driver="ebs", volume="v1"), Claim("shop", "other", driver="ebs", volume="v2"))
    own = PodConstraints(claims=("own",), own_claims=("own",))
    pods = (a_pod("a", "n1", constraints=own), a_pod("b", constraints=using("other")))
    built = build_problem(cluster(*claims, pods=pods))
    assert built.unmovable == (Detail.VOLUME_UNKNOWN.of("own"), None)
    assert built.problem.demands[built.problem.pod_class, 3].tolist() == [1, 1]


def test_a_claim_for_one_pod_that_is_used_on_a_vanished_node_keeps_the_next_one_pending() -> None:
    lone = Claim("shop", "data", single_pod=True)
    pods = (a_pod("z-old", "gone", constraints=using("data")), a_pod("a-new", constraints=using("data")))
    built = build_problem(cluster(lone, pods=pods))
    assert [(one.pod, one.finding) for one in built.left_out] == [
        ("a-new", Finding(Pattern.CLAIM_OUT_OF_REACH, claim="data"))
    ]
    assert built.notes == (Note(NoteCode.LEFT_OUT, "volume", 1), Note(NoteCode.NODES_MISSING, count=1))
