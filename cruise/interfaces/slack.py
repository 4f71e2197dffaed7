"""The parts of messages for Slack's incoming webhooks."""

from cruise.interfaces.text import JsonValue


def build_slack_section(text: str) -> JsonValue:
    """Return a section of Slack's markup; text of others must be escaped."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def escape_slack(text: str) -> str:
    """Escape what Slack would take for a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
