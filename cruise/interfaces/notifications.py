"""Notifications: their messages, and their bodies for generic receivers, Slack and Teams."""

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
from cruise.interfaces.text import (
    JsonValue,
    build_slack_section,
    convert_to_json,
    escape_slack,
    escape_text,
    format_count,
    format_memory,
)

_MAX_MESSAGE_LENGTH = 400
_MAX_LINES = 20
_NOTIFIED_ACTIONS = frozenset({UserActionKind.PAUSE, UserActionKind.RESUME, UserActionKind.REVERT})
_TITLES = {
    NotificationTopic.OOM_KILLED: "OOM kills",
    NotificationTopic.REFUSED: "Rejected writes",
    NotificationTopic.PAUSED: "User actions",
}


def find_refusal_notifications(outcomes: Iterable[Outcome]) -> Iterator[NotificationEvent]:
    """Yield an event for each write that was rejected."""
    for outcome in outcomes:
        if outcome.result is not ActionResult.REFUSED:
            continue
        action = outcome.action
        if isinstance(action, ResizePod | EvictPod):
            verb = "resized" if isinstance(action, ResizePod) else "evicted"
            namespace, subject = action.namespace, f"{action.namespace}/{action.pod}"
        else:
            verb, namespace, subject = "written", "", f"node {action.node}"
        reason = describe_detail(outcome.detail) or outcome.reason.value
        message = escape_text(f"{subject} was not {verb}: {reason}", _MAX_MESSAGE_LENGTH)
        yield NotificationEvent(outcome.at, NotificationTopic.REFUSED, namespace, outcome.reason.value, message)


def create_oom_notification(
    record: OomRecord, decision: ResizePod | EvictPod | SkippedPod, outcome: Outcome
) -> NotificationEvent:
    """Return the event of an OOM kill."""
    limit = f" at {format_memory(record.memory_limit_bytes)}" if record.memory_limit_bytes else ""
    if isinstance(decision, SkippedPod):
        reaction = f"skipped, {describe_reason(decision.reason, decision.detail)}"
    else:
        action = "resize" if isinstance(decision, ResizePod) else "eviction"
        reaction = f"{action} {outcome.result.value}"
    container = f"{record.namespace}/{record.pod} {record.container}"
    message = escape_text(f"{container} was OOM killed{limit}: {reaction}", _MAX_MESSAGE_LENGTH)
    return NotificationEvent(
        record.finished_at, NotificationTopic.OOM_KILLED, record.namespace, record.workload or record.pod, message
    )


def find_pause_notifications(actions: Iterable[UserAction]) -> Iterator[NotificationEvent]:
    """Yield an event for each pause, resume and revert, the earliest first."""
    for one in sorted(actions, key=lambda one: one.at):
        if one.kind in _NOTIFIED_ACTIONS:
            yield NotificationEvent(
                one.at, NotificationTopic.PAUSED, one.namespace or "", one.kind.value, describe_user_action(one)
            )


def render_generic_body(notification: Notification) -> bytes:
    """Return cruise's own JSON document."""
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
    """Return a message for Slack's incoming webhooks, escaped so that it makes no links or mentions."""
    title, sections = _build_sections(notification)
    blocks: list[JsonValue] = [
        build_slack_section(f"*{heading}*\n" + "\n".join(map(escape_slack, lines)))
        for heading, lines in sections.items()
    ]
    return msgspec.json.encode({"text": escape_slack(title), "blocks": blocks})


def render_teams_body(notification: Notification) -> bytes:
    """Return a message for Teams: an Adaptive Card."""
    title, sections = _build_sections(notification)
    body: list[JsonValue] = [{"type": "TextBlock", "size": "Medium", "weight": "Bolder", "text": title, "wrap": True}]
    for heading, lines in sections.items():
        body.append({"type": "TextBlock", "weight": "Bolder", "text": heading, "spacing": "Medium"})
        body += [{"type": "TextBlock", "text": _escape_teams(line), "wrap": True, "spacing": "Small"} for line in lines]
    card: JsonValue = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return msgspec.json.encode({"type": "message", "attachments": [attachment]})


BODY_RENDERERS = {"generic": render_generic_body, "slack": render_slack_body, "teams": render_teams_body}


def _build_sections(notification: Notification) -> tuple[str, Mapping[str, list[str]]]:
    """Return a title, and the lines by heading."""
    groups = notification.groups
    counts = {topic: sum(one.count for one in groups if one.topic is topic) for topic in NotificationTopic}
    totals = [
        format_count(counts[NotificationTopic.OOM_KILLED], "OOM kill"),
        format_count(counts[NotificationTopic.REFUSED], "rejected write"),
        format_count(counts[NotificationTopic.PAUSED], "user action"),
    ]
    title = f"cruise: {', '.join(total for total, count in zip(totals, counts.values(), strict=True) if count)}"
    sections: dict[str, list[str]] = {}
    for one in groups[:_MAX_LINES]:
        sections.setdefault(_TITLES[one.topic], []).append(_format_group(one))
    more = sum(one.count for one in groups[_MAX_LINES:]) + notification.dropped
    if more:
        sections["Not listed"] = [format_count(more, "more event")]
    return title, sections


def _format_group(group: NotificationGroup) -> str:
    count = f"{group.count:,} times, the last: " if group.count > 1 else ""
    return f"{count}{group.message}"


def _escape_teams(text: str) -> str:
    return "".join(f"\\{one}" if one in "\\`*_[]()~#!" else one for one in text)
