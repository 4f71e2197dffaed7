"""Notification texts and their three formats."""

import json
from dataclasses import replace
from datetime import timedelta

from cruise.domain.actions import ActionResult, EvictPod, Outcome, ReasonCode, SkippedPod, TaintNode
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.domain.usage import OomRecord
from cruise.domain.users import Notification, NotificationTopic, UserAction, UserActionKind, group_notifications
from cruise.interfaces.notifications import (
    create_oom_notification,
    find_pause_notifications,
    find_refusal_notifications,
    render_generic_body,
    render_slack_body,
    render_teams_body,
)
from tests.builders import NOW, make_ref

EVICTION = EvictPod(
    "shop",
    "web-1",
    "u",
    "n1",
    make_ref("Deployment/web"),
    EvictionRanking.LOW,
    ResourceName.CPU,
    ReasonCode.NODE_OVER_CAPACITY,
)
HELD = Outcome(NOW, EVICTION, ActionResult.SKIPPED, ReasonCode.COOLDOWN)
KILL = OomRecord("shop", "web-1", "u", "Deployment/web", "app", "", "n1", NOW, 256 * MEBIBYTE, None, None, 0)


def message(text: str = "no") -> Notification:
    outcomes = [
        Outcome(NOW, EVICTION, ActionResult.REFUSED, ReasonCode.POD_DISRUPTION_BUDGET, text),
        Outcome(NOW, EVICTION, ActionResult.DONE, ReasonCode.NODE_OVER_CAPACITY),
        Outcome(NOW, TaintNode("n1", ReasonCode.OVERLOADED), ActionResult.REFUSED, ReasonCode.FORBIDDEN, text),
    ]
    people = [
        UserAction(NOW + timedelta(seconds=5), "ana", UserActionKind.PAUSE),
        UserAction(NOW, "ben", UserActionKind.PUT_POLICY, "shop", make_ref("Deployment/web"), "cpu-min=1"),
    ]
    kill = create_oom_notification(KILL, SkippedPod("shop", "web-1", ReasonCode.COOLDOWN), HELD)
    notices = [*find_refusal_notifications(outcomes), kill, *find_pause_notifications(people)]
    return Notification("k1", NOW, group_notifications(notices), 3)


def test_the_document_has_what_happened_and_what_is_missing():
    document = json.loads(render_generic_body(message()))
    assert (document["kind"], document["id"], document["dropped"]) == ("Notification", "k1", 3)
    assert [(one["topic"], one["reason"], one["message"]) for one in document["notices"]] == [
        (
            "oom-killed",
            "Deployment/web",
            "shop/web-1 app was OOM killed at 256Mi: skipped, an action on it was too recent",
        ),
        ("refused", "forbidden", "node n1 was not written: no"),
        ("refused", "pod-disruption-budget", "shop/web-1 was not evicted: no"),
        ("paused", "pause", "ana paused cruise: it starts no write to the cluster"),
    ]


def test_slack_gets_text_without_links_and_mentions():
    document = json.loads(render_slack_body(message("<!channel> <https://evil.example|x> &")))
    assert document["text"] == "cruise: 1 OOM kill, 2 rejected writes, 1 user action"
    text = json.dumps(document["blocks"])
    assert "<" not in text
    assert "&lt;!channel&gt;" in text
    assert document["blocks"][-1]["text"]["text"] == "*Not listed*\n3 more events"


def test_teams_gets_an_adaptive_card_whose_text_is_text():
    [attachment] = json.loads(render_teams_body(message("[x](https://evil.example)")))["attachments"]
    card = attachment["content"]
    assert (attachment["contentType"], card["type"]) == ("application/vnd.microsoft.card.adaptive", "AdaptiveCard")
    assert {one["type"] for one in card["body"]} == {"TextBlock"}
    assert "\\[x\\]\\(https://evil.example\\)" in "".join(one["text"] for one in card["body"])


def test_a_message_with_very_many_groups_is_short():
    kill = create_oom_notification(KILL, SkippedPod("shop", "web-1", ReasonCode.COOLDOWN), HELD)
    many = group_notifications(replace(kill, reason=f"Deployment/{at}") for at in range(900))
    found = Notification("k", NOW, many)
    assert len(render_slack_body(found)) < 40_000, "Slack takes no more"
    assert len(render_teams_body(found)) < 28_000, "Teams takes no more"
    assert len(json.loads(render_generic_body(found))["notices"]) == 900


def test_oom_kills_are_first():
    assert [one.topic for one in message().groups] == [
        NotificationTopic.OOM_KILLED,
        NotificationTopic.REFUSED,
        NotificationTopic.REFUSED,
        NotificationTopic.PAUSED,
    ]
