"""Notifications in words, and in the forms that receivers take: a JSON document of cruise's, Slack's, Teams'."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from cruise import __version__
from cruise.domain.actions import EvictPod, Hold, Outcome, ResizePod, Verdict
from cruise.domain.callers import Deed, Intervention
from cruise.domain.notices import Notice, NoticeGroup, Notification, Topic
from cruise.domain.usage import OomRecord
from cruise.interfaces.amounts import count_text, memory_text
from cruise.interfaces.announcements import intervention_words
from cruise.interfaces.plain_text import plain
from cruise.interfaces.reasons import detail_words, in_words
from cruise.interfaces.shapes import Shape, shape

_LONGEST = 400
_MOST_LINES = 20
_TOLD_DEEDS = frozenset({Deed.PAUSE, Deed.RESUME, Deed.REVERT})
_TITLES = {Topic.KILLED: "Out of memory", Topic.REFUSED: "Refused", Topic.PAUSED: "Steered by people"}


def refusals_in(outcomes: Iterable[Outcome]) -> Iterator[Notice]:
    """Yield a notice for each write that was refused."""
    for outcome in outcomes:
        if outcome.verdict is not Verdict.REFUSED:
            continue
        action = outcome.action
        if isinstance(action, ResizePod | EvictPod):
            done = "resized" if isinstance(action, ResizePod) else "evicted"
            namespace, subject = action.namespace, f"{action.namespace}/{action.pod}"
        else:
            done, namespace, subject = "written", "", f"node {action.node}"
        why = detail_words(outcome.detail) or outcome.reason.value
        message = plain(f"{subject} was not {done}: {why}", _LONGEST)
        yield Notice(outcome.at, Topic.REFUSED, namespace, outcome.reason.value, message)


def kill_notice(record: OomRecord, decision: ResizePod | EvictPod | Hold, outcome: Outcome) -> Notice:
    """Return the notice of a container that was killed for lack of memory."""
    limit = f" at {memory_text(record.memory_limit_bytes)}" if record.memory_limit_bytes else ""
    if isinstance(decision, Hold):
        then = f"left as it is, {in_words(decision.reason, decision.detail)}"
    else:
        wanted = "resize" if isinstance(decision, ResizePod) else "eviction"
        then = f"{wanted} {outcome.verdict.value}"
    message = plain(f"{record.namespace}/{record.pod} {record.container} was killed{limit}: {then}", _LONGEST)
    return Notice(record.finished_at, Topic.KILLED, record.namespace, record.workload or record.pod, message)


def pauses_in(interventions: Iterable[Intervention]) -> Iterator[Notice]:
    """Yield a notice for each time that somebody paused, resumed or reverted, the earliest first."""
    for one in sorted(interventions, key=lambda one: one.at):
        if one.deed in _TOLD_DEEDS:
            yield Notice(one.at, Topic.PAUSED, one.namespace or "", one.deed.value, intervention_words(one))


def generic_body(notification: Notification) -> bytes:
    """Return cruise's own document."""
    document: Shape = {
        "apiVersion": "cruise.io/v1",
        "kind": "Notification",
        "id": notification.key,
        "at": shape(notification.at),
        "notices": [shape(group) for group in notification.groups],
        "dropped": notification.dropped,
        "by": f"cruise {__version__}",
    }
    return msgspec.json.encode(document)


def slack_body(notification: Notification) -> bytes:
    """Return a message for Slack's incoming webhooks; what users wrote makes no links and calls nobody."""
    title, sections = _parts(notification)
    blocks: list[Shape] = [
        {"type": "section", "text": {"type": "mrkdwn", "text": f"*{heading}*\n" + "\n".join(map(_for_slack, lines))}}
        for heading, lines in sections.items()
    ]
    return msgspec.json.encode({"text": _for_slack(title), "blocks": blocks})


def teams_body(notification: Notification) -> bytes:
    """Return a message for Teams: an Adaptive Card."""
    title, sections = _parts(notification)
    body: list[Shape] = [{"type": "TextBlock", "size": "Medium", "weight": "Bolder", "text": title, "wrap": True}]
    for heading, lines in sections.items():
        body.append({"type": "TextBlock", "weight": "Bolder", "text": heading, "spacing": "Medium"})
        body += [{"type": "TextBlock", "text": _for_teams(line), "wrap": True, "spacing": "Small"} for line in lines]
    card: Shape = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return msgspec.json.encode({"type": "message", "attachments": [attachment]})


BODIES = {"generic": generic_body, "slack": slack_body, "teams": teams_body}


def _parts(notification: Notification) -> tuple[str, Mapping[str, list[str]]]:
    """Return a title, and under each heading its lines."""
    groups = notification.groups
    counts = {topic: sum(one.count for one in groups if one.topic is topic) for topic in Topic}
    words = [
        count_text(counts[Topic.KILLED], "kill"),
        count_text(counts[Topic.REFUSED], "refusal"),
        count_text(counts[Topic.PAUSED], "change by people", "changes by people"),
    ]
    title = f"cruise: {', '.join(word for word, count in zip(words, counts.values(), strict=True) if count)}"
    sections: dict[str, list[str]] = {}
    for one in groups[:_MOST_LINES]:
        sections.setdefault(_TITLES[one.topic], []).append(_line(one))
    more = sum(one.count for one in groups[_MOST_LINES:]) + notification.dropped
    if more:
        sections["Not listed"] = [count_text(more, "more notice")]
    return title, sections


def _line(group: NoticeGroup) -> str:
    many = f"{group.count:,} times, the last: " if group.count > 1 else ""
    return f"{many}{group.message}"


def _for_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _for_teams(text: str) -> str:
    return "".join(f"\\{one}" if one in "\\`*_[]()~#!" else one for one in text)
