"""Notifications in words, and in the forms that receivers take: a JSON document of cruise's, Slack's, Teams'."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from cruise import __version__
from cruise.domain.actions import ActionResult, EvictPod, Outcome, ResizePod, SkippedPod
from cruise.domain.usage import OomRecord
from cruise.domain.users import (
    Notification,
    NotificationEvent,
    NotificationGroup,
    NotificationTopic,
    UserAction,
    UserActionKind,
)
from cruise.interfaces.events import describe_user_action
from cruise.interfaces.reasons import describe_detail, describe_reason
from cruise.interfaces.text import JsonValue, convert_to_json, escape_text, format_count, format_memory

_LONGEST = 400
_MOST_LINES = 20
_TOLD_DEEDS = frozenset({UserActionKind.PAUSE, UserActionKind.RESUME, UserActionKind.REVERT})
_TITLES = {
    NotificationTopic.OOM_KILLED: "Out of memory",
    NotificationTopic.REFUSED: "Refused",
    NotificationTopic.PAUSED: "Steered by people",
}


def find_refusal_notifications(outcomes: Iterable[Outcome]) -> Iterator[NotificationEvent]:
    """Yield a notice for each write that was refused."""
    for outcome in outcomes:
        if outcome.result is not ActionResult.REFUSED:
            continue
        action = outcome.action
        if isinstance(action, ResizePod | EvictPod):
            done = "resized" if isinstance(action, ResizePod) else "evicted"
            namespace, subject = action.namespace, f"{action.namespace}/{action.pod}"
        else:
            done, namespace, subject = "written", "", f"node {action.node}"
        why = describe_detail(outcome.detail) or outcome.reason.value
        message = escape_text(f"{subject} was not {done}: {why}", _LONGEST)
        yield NotificationEvent(outcome.at, NotificationTopic.REFUSED, namespace, outcome.reason.value, message)


def create_oom_notification(
    record: OomRecord, decision: ResizePod | EvictPod | SkippedPod, outcome: Outcome
) -> NotificationEvent:
    """Return the notice of a container that was killed for lack of memory."""
    limit = f" at {format_memory(record.memory_limit_bytes)}" if record.memory_limit_bytes else ""
    if isinstance(decision, SkippedPod):
        then = f"left as it is, {describe_reason(decision.reason, decision.detail)}"
    else:
        wanted = "resize" if isinstance(decision, ResizePod) else "eviction"
        then = f"{wanted} {outcome.result.value}"
    message = escape_text(f"{record.namespace}/{record.pod} {record.container} was killed{limit}: {then}", _LONGEST)
    return NotificationEvent(
        record.finished_at, NotificationTopic.OOM_KILLED, record.namespace, record.workload or record.pod, message
    )


def find_pause_notifications(interventions: Iterable[UserAction]) -> Iterator[NotificationEvent]:
    """Yield a notice for each time that somebody paused, resumed or reverted, the earliest first."""
    for one in sorted(interventions, key=lambda one: one.at):
        if one.kind in _TOLD_DEEDS:
            yield NotificationEvent(
                one.at, NotificationTopic.PAUSED, one.namespace or "", one.kind.value, describe_user_action(one)
            )


def render_generic_body(notification: Notification) -> bytes:
    """Return cruise's own document."""
    document: JsonValue = {
        "apiVersion": "cruise.io/v1",
        "kind": "Notification",
        "id": notification.key,
        "at": convert_to_json(notification.at),
        "notices": [convert_to_json(group) for group in notification.groups],
        "dropped": notification.dropped,
        "by": f"cruise {__version__}",
    }
    return msgspec.json.encode(document)


def render_slack_body(notification: Notification) -> bytes:
    """Return a message for Slack's incoming webhooks; what users wrote makes no links and calls nobody."""
    title, sections = _parts(notification)
    blocks: list[JsonValue] = [
        {"type": "section", "text": {"type": "mrkdwn", "text": f"*{heading}*\n" + "\n".join(map(_for_slack, lines))}}
        for heading, lines in sections.items()
    ]
    return msgspec.json.encode({"text": _for_slack(title), "blocks": blocks})


def render_teams_body(notification: Notification) -> bytes:
    """Return a message for Teams: an Adaptive Card."""
    title, sections = _parts(notification)
    body: list[JsonValue] = [{"type": "TextBlock", "size": "Medium", "weight": "Bolder", "text": title, "wrap": True}]
    for heading, lines in sections.items():
        body.append({"type": "TextBlock", "weight": "Bolder", "text": heading, "spacing": "Medium"})
        body += [{"type": "TextBlock", "text": _for_teams(line), "wrap": True, "spacing": "Small"} for line in lines]
    card: JsonValue = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return msgspec.json.encode({"type": "message", "attachments": [attachment]})


BODY_RENDERERS = {"generic": render_generic_body, "slack": render_slack_body, "teams": render_teams_body}


def _parts(notification: Notification) -> tuple[str, Mapping[str, list[str]]]:
    """Return a title, and under each heading its lines."""
    groups = notification.groups
    counts = {topic: sum(one.count for one in groups if one.topic is topic) for topic in NotificationTopic}
    words = [
        format_count(counts[NotificationTopic.OOM_KILLED], "kill"),
        format_count(counts[NotificationTopic.REFUSED], "refusal"),
        format_count(counts[NotificationTopic.PAUSED], "change by people", "changes by people"),
    ]
    title = f"cruise: {', '.join(word for word, count in zip(words, counts.values(), strict=True) if count)}"
    sections: dict[str, list[str]] = {}
    for one in groups[:_MOST_LINES]:
        sections.setdefault(_TITLES[one.topic], []).append(_line(one))
    more = sum(one.count for one in groups[_MOST_LINES:]) + notification.dropped
    if more:
        sections["Not listed"] = [format_count(more, "more notice")]
    return title, sections


def _line(group: NotificationGroup) -> str:
    many = f"{group.count:,} times, the last: " if group.count > 1 else ""
    return f"{many}{group.message}"


def _for_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _for_teams(text: str) -> str:
    return "".join(f"\\{one}" if one in "\\`*_[]()~#!" else one for one in text)
