from dataclasses import replace

import pytest

from cruise.domain.packing_plan import PlannedPlacement, PlannedPreemption, PlanStage, PriorityResult
from cruise.domain.reasons import UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.interfaces.packing.nodes import compute_node_requests
from cruise.interfaces.packing.table import format_solve_time, render_pack_table
from cruise.interfaces.packing.unschedulable import describe_unplaced_pod
from cruise.packer.answer import PackingNote, PackingNoteCode, PackingStatus
from tests.builders import make_container, make_node, make_pod, make_snapshot
from tests.interfaces.packing.proposals import WORDS, by_name, make_proposal, make_scene
from tests.shown import render_to_text


def table(proposal=None, snapshot=None, width=160, seconds=0.41, in_full=False):
    snapshot = snapshot or make_scene()
    proposal = proposal or make_proposal()
    return render_to_text(
        lambda console: render_pack_table(proposal, snapshot, by_name(snapshot), seconds, console, in_full), width
    )


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_first_lines_say_what_is_achieved_and_proved():
    text = flat(table())
    assert "1 of 2 pending pods placed; 1 moves, 1 is preempted, 1 is resized." in text
    assert "optimal in 0.41 s: proved that no plan places more pods" in text


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            PackingStatus.FEASIBLE,
            "better than now; not proved to be the best: at most 3 more pods of priority 5 could be placed",
        ),
        (PackingStatus.NO_IMPROVEMENT, "nothing better than now was found in time; not proved"),
        (PackingStatus.ALREADY_OPTIMAL, "already-optimal in 0.41 s: proved that no plan places more"),
    ],
)
def test_an_open_proof_says_how_far_it_is(status, expected):
    tiers = (PriorityResult(9, 4, 3, 4), PriorityResult(5, 2, 2, 5))
    assert expected in flat(table(make_proposal(status=status, by_priority=tiers)))


def test_where_the_counts_are_proved_only_evictions_are_open():
    text = flat(table(make_proposal(status=PackingStatus.FEASIBLE)))
    assert "no plan places more pods, whether one needs fewer evictions is open" in text


@pytest.mark.parametrize(
    ("least", "expected"),
    [
        (1, "no plan places more pods, proved; it evicts 2, and to place as many takes at least 1 (gap 50 %)"),
        (0, "no plan places more pods, whether one needs fewer evictions is open"),
    ],
)
def test_evictions_are_shown_with_their_lower_bound(least, expected):
    assert expected in flat(table(make_proposal(status=PackingStatus.FEASIBLE, min_evicted=least)))


def test_placements_and_their_price_are_reported_together():
    tiers = (PriorityResult(9, 4, 3, 6),)
    text = flat(table(make_proposal(status=PackingStatus.FEASIBLE, by_priority=tiers, min_evicted=2)))
    assert (
        "at most 2 more pods of priority 9 could be placed; it evicts 2, and to place as many takes at least 2" in text
    )


def test_a_cluster_without_pending_pods():
    empty = make_proposal(status=PackingStatus.ALREADY_OPTIMAL, unplaced=(), stages=())
    text = table(empty)
    assert text.startswith("No pod is pending.\n")
    assert "Steps" not in text


def test_a_pending_pod_shows_what_it_asks_for_and_what_becomes_of_it():
    lines = table().splitlines()
    [placed] = [line for line in lines if "a/p " in line and "on n1" in line and "place" not in line]
    assert placed.split() == ["a/p", "1,000", "1,500m", "1,024Mi", "on", "n1"]
    assert f"impossible: {describe_unplaced_pod(make_proposal().unplaced[0])}" in flat(table())


def test_what_is_possible_but_not_found_is_not_called_impossible():
    open_end = make_proposal(
        unplaced=(UnplacedPod("a", "z", ("cpu",), UnschedulableReason(UnschedulableCode.NO_NODES), False),)
    )
    assert "stays pending: the cluster has no nodes" in flat(table(open_end))


def test_replicas_that_stay_pending_for_the_same_reason_share_a_line():
    pods = [make_pod(f"w-{number}", "a", None, owner_name="w-1") for number in range(40)]
    snapshot = make_snapshot(pods, nodes=[make_node()])
    unplaced = tuple(
        UnplacedPod(
            "a",
            pod.name,
            ("cpu",),
            UnschedulableReason(UnschedulableCode.NOT_EVALUATED, unsupported="needs more"),
            True,
        )
        for pod in snapshot.pods
    )
    proposal = make_proposal(status=PackingStatus.ALREADY_OPTIMAL, unplaced=unplaced, stages=())
    text = table(proposal, snapshot)
    assert "a/w-0 and 39 more" in text
    assert text.count("needs more") == 1


def test_steps_are_numbered_by_stage_in_their_order():
    text = table()
    steps = [line.split() for line in text.partition("Steps")[2].partition("Nodes")[0].splitlines()]
    kinds = [
        words[1] if words[0].isdigit() else words[0] for words in steps if words and words[0] not in ("STAGE", "A")
    ]
    assert kinds == ["resize", "preempt", "move", "place"]
    assert [words[0] for words in steps if words and words[0].isdigit()] == ["1", "2"]
    assert "1,000m → 200m" in text
    assert "n1 → n2" in text


def test_pods_that_change_places_are_evicted_before_any_arrives():
    there, back = PlannedPlacement("a", "q", "", "n1", "n3"), PlannedPlacement("a", "calm", "", "n3", "n1")
    proposal = make_proposal(stages=(PlanStage((), (there, back), (there, back)),))
    text = table(proposal)
    assert text.count("evict ") == 2
    assert "n1 → pending" in text
    assert "pending → n3" in text


def test_a_long_plan_shows_its_first_steps_and_counts_the_rest():
    pods = [make_pod(f"p-{number:03d}", "a", None, owner_name=f"p-{number}") for number in range(100)]
    snapshot = make_snapshot(pods, nodes=[make_node()])
    placed = tuple(PlannedPlacement("a", pod.name, pod.uid, None, "n1") for pod in snapshot.pods)
    proposal = make_proposal(unplaced=(), stages=(PlanStage((), (), placed),))
    text = table(proposal, snapshot)
    assert "60 more steps" in text
    assert "70 more pending pods" in text
    full = table(proposal, snapshot, in_full=True)
    assert "p-099" in full.partition("Steps")[2]
    assert "--full" not in full


def test_replicas_that_get_a_place_share_a_line():
    pods = [make_pod(f"w-{number}", "a", None, owner_name="w") for number in range(5)]
    snapshot = make_snapshot(pods, nodes=[make_node(f"n{number}") for number in range(5)])
    placed = tuple(PlannedPlacement("a", f"w-{number}", "", None, f"n{number}") for number in range(5))
    proposal = make_proposal(unplaced=(), stages=(PlanStage((), (), placed),))
    assert "on n0, n1, n2 and 2 more" in table(proposal, snapshot)


def test_nodes_are_counted_before_and_after():
    snapshot = make_scene()
    now, after = compute_node_requests(snapshot, make_proposal(), by_name(snapshot))
    assert {name: (load.pods, load.requests.cpu_millicores) for name, load in now.items()} == {
        "n1": (2, 3000),
        "n2": (1, 3000),
        "n3": (1, 3500),
    }
    assert {name: (load.pods, load.requests.cpu_millicores) for name, load in after.items()} == {
        "n1": (2, 200 + 1500),
        "n2": (1, 2000),
        "n3": (1, 3500),
    }


def test_only_nodes_that_change_are_listed_and_all_are_summed():
    nodes = table().partition("Nodes, now")[2].partition("Pods with")[0]
    assert "n3" not in nodes
    assert "all 3 nodes" in nodes
    assert "3.00 → 1.70" in nodes


def test_extended_resources_have_a_column():
    pod = make_pod("train", "a", None, extended_requests=(("nvidia.com/gpu", 2),))
    snapshot = make_snapshot([pod], nodes=[make_node(allocatable_extended={"nvidia.com/gpu": 8})])
    placed = (PlannedPlacement("a", "train", pod.uid, None, "n1"),)
    proposal = make_proposal(unplaced=(), stages=(PlanStage((), (), placed),))
    text = table(proposal, snapshot)
    assert "GPU" in text
    assert "0 → 2" in text


def test_priorities_that_change_show_now_after_and_the_most():
    rows = [line.split() for line in table().partition("Placed pods")[2].splitlines()]
    assert ["1,000", "0", "1", "1"] in rows
    assert ["-10", "1", "0", "0"] in rows
    assert ["0", "3", "3", "3"] not in rows


def test_notes_are_last():
    text = table(replace(make_proposal(), notes=(PackingNote(PackingNoteCode.STILL_COMPILING),)))
    assert text.rstrip().endswith("Note: solver still compiling: answered by the quick method.")


@pytest.mark.parametrize("width", [80, 160])
def test_lines_keep_within_the_terminal(width):
    namespace = "a-long-team-name"
    names = [f"recommendation-service-7d9f8b6c5d-x{number:04d}" for number in range(6)]
    pods = [
        make_pod(
            name, namespace, f"ip-10-0-{number}-17.eu-west-1.compute.internal" if number else None, priority=number
        )
        for number, name in enumerate(names)
    ]
    pods[1] = make_pod(names[1], namespace, None, [make_container(cpu=123456, memory_mib=1234567)])
    nodes = [make_node(name) for name in sorted({pod.node for pod in pods if pod.node})]
    snapshot = make_snapshot(pods, nodes=nodes)
    placed = (PlannedPlacement(namespace, names[0], "", None, nodes[0].name),)
    move = PlannedPlacement(namespace, names[2], "", pods[2].node, nodes[3].name)
    preemption = PlannedPreemption(namespace, names[3], "", pods[3].node or "")
    proposal = make_proposal(
        unplaced=(
            UnplacedPod(
                namespace,
                names[1],
                ("cpu",),
                UnschedulableReason(UnschedulableCode.NOT_EVALUATED, unsupported=WORDS),
                True,
            ),
        ),
        stages=(PlanStage((), (move, preemption), (*placed, move)),),
    )
    lines = table(proposal, snapshot, width).splitlines()
    assert max(map(len, lines)) <= width
    # Every name can be read in full, if need be over two or three lines.
    text = "".join("".join(lines).split())
    assert all(part in text for part in ("a-long-team-name/recom", "mendation-service-7d9f", "8b6c5d-x0001"))
    assert "…" not in text
    assert all(heading in text for heading in ("PRIORITY", "CPU", "MEMORY", "RESULT", "STAGE", "STEP", "NODE", "SHARE"))


def test_short_times_are_shown_in_milliseconds():
    assert [format_solve_time(value) for value in (0.0051, 0.412, 12.3)] == ["5 ms", "0.41 s", "12 s"]
