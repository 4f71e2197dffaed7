"""The report of a revert at both widths and as JSON."""

import json

import pytest

from cruise.domain.actions import ActionResult, ContainerTarget, Outcome, ReasonCode, ResizePod
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import NO_RESOURCES
from cruise.interfaces.revert_report import get_revert_state, render_revert_json, render_revert_table
from tests.builders import NOW, make_amounts, make_container, make_pod
from tests.shown import render_to_text

PODS = {
    ("shop", name): make_pod(name, containers=[make_container(cpu=100, memory_mib=128)])
    for name in ("web-1", "web-2", "web-3", "a-pod-with-a-name-that-no-terminal-of-80-columns-holds-7d9f8b6c5d-x2x4z")
}


def outcome(name: str, verdict: ActionResult, reason: ReasonCode, detail: str = "") -> Outcome:
    pod = PODS["shop", name]
    target = ContainerTarget("app", pod.containers[0].role, make_amounts(700, 1024), make_amounts())
    resize = ResizePod("shop", name, pod.uid, "n1", pod.workload, (target,), NO_RESOURCES, ReasonCode.REVERTED)
    return Outcome(NOW, resize, verdict, reason, detail)


LONG = list(PODS)[3][1]
OUTCOMES = [
    outcome(LONG, ActionResult.DONE, ReasonCode.REVERTED),
    outcome("web-1", ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY),
    outcome(
        "web-2",
        ActionResult.SKIPPED,
        ReasonCode.UNREADABLE_ANNOTATION,
        "annotation cruise.io/original-resources: no JSON",
    ),
    outcome("web-3", ActionResult.DONE, ReasonCode.REVERTED, ReasonDetailCode.GROWTH_PENDING),
]


@pytest.mark.parametrize(
    ("verdict", "reason", "detail", "state"),
    [
        (ActionResult.DONE, ReasonCode.REVERTED, "", "restored"),
        (
            ActionResult.DONE,
            ReasonCode.REVERTED,
            f"{ReasonDetailCode.GROWTH_PENDING}; {ReasonDetailCode.MEMORY_LIMIT_STAYS.create('app')}",
            "pending",
        ),
        (ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY, "", "pending"),
        (ActionResult.SKIPPED, ReasonCode.CHANGED, "", "pending"),
        (ActionResult.FAILED, ReasonCode.REVERTED, "", "pending"),
        (ActionResult.SKIPPED, ReasonCode.NOT_FOUND, "", "not possible"),
        (ActionResult.REFUSED, ReasonCode.RESIZE_REFUSED, "", "not possible"),
    ],
)
def test_what_another_revert_can_do_is_deferred_and_the_rest_is_not_possible(verdict, reason, detail, state):
    assert get_revert_state(outcome("web-1", verdict, reason, detail)) == state


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_names_what_is_left_first_and_fits(width):
    text = render_to_text(lambda console: render_revert_table(False, OUTCOMES, PODS, console), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert text.startswith("4 pods: 1 restored, 2 pending, 1 not possible.\n")
    assert text.index("shop/web-2") < text.index("shop/web-1") < text.index("restored  ")
    assert "100m → 700m" in text
    assert "128Mi → 1,024Mi" in text
    assert "cruise is paused now: it sizes no pod until `cruise resume`." in text


def test_nothing_to_do_is_said_and_so_is_an_earlier_pause():
    text = render_to_text(lambda console: render_revert_table(True, [], {}, console))
    assert text.startswith("There is nothing to restore")
    assert "was paused before and stays paused" in text


def test_the_document_has_sizes_on_both_sides():
    document = json.loads(render_revert_json(NOW, False, OUTCOMES[:1], PODS))
    assert (document["paused"], document["wasPaused"]) == (True, False)
    [pod] = document["pods"]
    assert (pod["pod"], pod["state"], pod["result"]) == (LONG, "restored", "done")
    [container] = pod["containers"]
    assert container["before"]["requests"] == {"cpu": "100m", "memory": "128Mi"}
    assert container["after"]["requests"] == {"cpu": "700m", "memory": "1Gi"}
