"""Notifications in words and in their three forms."""

import json
from dataclasses import replace
from datetime import timedelta

from cruise.domain.actions import EvictPod, Hold, Outcome, Reason, TaintNode, Verdict
from cruise.domain.callers import Deed, Intervention
from cruise.domain.notices import Notification, Topic, grouped
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.domain.usage import OomRecord
from cruise.interfaces.notices import generic_body, kill_notice, pauses_in, refusals_in, slack_body, teams_body
from tests.builders import NOW, make_ref

EVICTION = EvictPod(
    "shop", "web-1", "u", "n1", make_ref("Deployment/web"), EvictionRanking.LOW, ResourceName.CPU, Reason.DOES_NOT_FIT
)
HELD = Outcome(NOW, EVICTION, Verdict.HELD, Reason.COOLING_DOWN)
KILL = OomRecord("shop", "web-1", "u", "Deployment/web", "app", "", "n1", NOW, 256 * MEBIBYTE, None, None, 0)


def message(text: str = "no") -> Notification:
    outcomes = [
        Outcome(NOW, EVICTION, Verdict.REFUSED, Reason.DISRUPTION_BUDGET, text),
        Outcome(NOW, EVICTION, Verdict.DONE, Reason.DOES_NOT_FIT),
        Outcome(NOW, TaintNode("n1", Reason.OVERLOADED), Verdict.REFUSED, Reason.FORBIDDEN, text),
    ]
    people = [
        Intervention(NOW + timedelta(seconds=5), "ana", Deed.PAUSE),
        Intervention(NOW, "ben", Deed.PUT_OVERRIDE, "shop", make_ref("Deployment/web"), "cpu-min=1"),
    ]
    kill = kill_notice(KILL, Hold("shop", "web-1", Reason.COOLING_DOWN), HELD)
    notices = [*refusals_in(outcomes), kill, *pauses_in(people)]
    return Notification("k1", NOW, grouped(notices), 3)


def test_the_document_has_what_happened_and_what_is_missing():
    document = json.loads(generic_body(message()))
    assert (document["kind"], document["id"], document["dropped"]) == ("Notification", "k1", 3)
    assert [(one["topic"], one["reason"], one["message"]) for one in document["notices"]] == [
        ("killed", "Deployment/web", "shop/web-1 app was killed at 256Mi: left as it is, it was acted on a moment ago"),
        ("refused", "forbidden", "node n1 was not written: no"),
        ("refused", "disruption-budget", "shop/web-1 was not evicted: no"),
        ("paused", "pause", "ana paused cruise: no write to the cluster begins"),
    ]


def test_slack_gets_text_that_makes_no_links_and_calls_nobody():
    document = json.loads(slack_body(message("<!channel> <https://evil.example|x> &")))
    assert document["text"] == "cruise: 1 kill, 2 refusals, 1 change by people"
    text = json.dumps(document["blocks"])
    assert "<" not in text
    assert "&lt;!channel&gt;" in text
    assert document["blocks"][-1]["text"]["text"] == "*Not listed*\n3 more notices"


def test_teams_gets_an_adaptive_card_whose_text_is_text():
    [attachment] = json.loads(teams_body(message("[x](https://evil.example)")))["attachments"]
    card = attachment["content"]
    assert (attachment["contentType"], card["type"]) == ("application/vnd.microsoft.card.adaptive", "AdaptiveCard")
    assert {one["type"] for one in card["body"]} == {"TextBlock"}
    assert "\\[x\\]\\(https://evil.example\\)" in "".join(one["text"] for one in card["body"])


def test_a_message_of_very_many_groups_stays_short():
    kill = kill_notice(KILL, Hold("shop", "web-1", Reason.COOLING_DOWN), HELD)
    many = grouped(replace(kill, reason=f"Deployment/{at}") for at in range(900))
    found = Notification("k", NOW, many)
    assert len(slack_body(found)) < 40_000, "Slack takes no more"
    assert len(teams_body(found)) < 28_000, "Teams takes no more"
    assert len(json.loads(generic_body(found))["notices"]) == 900


def test_kills_come_first():
    assert [one.topic for one in message().groups] == [Topic.KILLED, Topic.REFUSED, Topic.REFUSED, Topic.PAUSED]
