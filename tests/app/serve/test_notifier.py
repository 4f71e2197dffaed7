"""Notifications are grouped, rate-limited and bounded, and never delay the controller."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta

import pytest

from cruise.app.serve.activity import NO_HOOKS
from cruise.app.serve.notifier import Notifier, UserActionsFunction, get_notification_webhook
from cruise.domain.users import Notification, NotificationEvent, NotificationTopic, UserAction, UserActionKind
from cruise.errors import BadInputError, RefusedError, UnavailableError
from cruise.interfaces.notifications import render_generic_body
from cruise.settings import load_settings
from tests.builders import NOW


class Recording:
    """Keeps what is posted; fails `failures` times."""

    def __init__(self, *failures: Exception) -> None:
        self.posted: list[tuple[bytes, str]] = []
        self.failures = list(failures)

    async def post(self, body: bytes, key: str, at: int) -> None:
        self.posted.append((body, key))
        if self.failures:
            raise self.failures.pop(0)


def notice(
    namespace: str = "shop", topic: NotificationTopic = NotificationTopic.REFUSED, reason: str = "quota"
) -> NotificationEvent:
    return NotificationEvent(NOW, topic, namespace, reason, f"{namespace}/web-1 was not resized: {reason}")


async def none_found(since) -> list[UserAction]:
    return []


def notifier(
    post: Recording,
    interventions: UserActionsFunction = none_found,
    topics: Iterable[NotificationTopic] = NotificationTopic,
) -> tuple[Notifier, list[Notification]]:
    sent: list[Notification] = []

    def body_of(message: Notification) -> bytes:
        sent.append(message)
        return render_generic_body(message)

    made = Notifier(
        post, body_of, topics, timedelta(0), lambda: NOW, interventions, pauses=(0.0, 0.0), look_seconds=0.01
    )
    return made, sent


async def test_equal_items_are_reported_together():
    post = Recording()
    one, sent = notifier(post)
    one.add([notice(), notice(), notice("pay"), notice(topic=NotificationTopic.OOM_KILLED)])
    await one.send()
    [message] = sent
    assert [(group.topic, group.namespace, group.count) for group in message.groups] == [
        (NotificationTopic.OOM_KILLED, "shop", 1),
        (NotificationTopic.REFUSED, "shop", 2),
        (NotificationTopic.REFUSED, "pay", 1),
    ]
    assert len(post.posted) == 1
    await one.send()
    assert len(post.posted) == 1, "nothing waits any more"


async def test_the_same_message_is_tried_a_few_times_under_its_own_key_and_then_dropped():
    post = Recording(*[UnavailableError("away")] * 3)
    one, sent = notifier(post)
    one.add([notice()])
    await one.send()
    assert len(post.posted) == 3
    assert len({key for _, key in post.posted}) == 1
    one.add([notice("pay")])
    await one.send()
    assert sent[-1].dropped == 1, "the next one says that something is missing"
    assert one.dropped == 0


async def test_what_is_refused_is_not_tried_again():
    post = Recording(RefusedError("no", "404"))
    one, _ = notifier(post)
    one.add([notice()])
    await one.send()
    assert len(post.posted) == 1


async def test_a_flood_is_counted_and_keeps_no_memory():
    one, sent = notifier(Recording())
    one.add(notice() for _ in range(5000))
    await one.send()
    assert one.outcomes == {"sent": 1000, "dropped": 4000}
    assert (sent[0].groups[0].count, sent[0].dropped) == (1000, 4000)


async def test_other_topics_are_passed_over():
    one, sent = notifier(Recording(), topics=[NotificationTopic.OOM_KILLED])
    one.add([notice()])
    await one.send()
    assert sent == []


async def test_what_people_do_is_found_once():
    done = [
        UserAction(NOW + timedelta(seconds=at), "ana", deed)
        for at, deed in ((1, UserActionKind.PAUSE), (2, UserActionKind.RESUME))
    ]

    async def interventions(since) -> list[UserAction]:
        return [one for one in done if one.at >= since]

    one, sent = notifier(Recording(), interventions)
    running = asyncio.ensure_future(one.run())
    async with asyncio.timeout(60):
        while not sent:
            await asyncio.sleep(0.01)
        for _ in range(20):
            await asyncio.sleep(0.01)
    running.cancel()
    assert [group.reason for message in sent for group in message.groups] == ["pause", "resume"]
    assert "ana paused cruise" in sent[0].groups[0].message


async def test_a_notification_receiver_that_never_answers_delays_nothing():
    class Silent(Recording):
        async def post(self, body: bytes, key: str, at: int) -> None:
            await asyncio.Event().wait()

    one, _ = notifier(Silent())
    hooks = one.add_hooks(NO_HOOKS)
    assert hooks.on_idle is not None
    running = asyncio.ensure_future(hooks.on_idle())
    one.add([notice()])
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await hooks.announce([], [], {})
    running.cancel()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"NOTIFY_URL": "https://h.example/canary"}, "notify_format generic needs notify_secret_file"),
        ({"NOTIFY_URL": "http://h.example/canary", "NOTIFY_FORMAT": "slack"}, "notify_url has no TLS"),
        ({"NOTIFY_URL": "https://h/canary", "NOTIFY_URL_FILE": "/x"}, "notify_url and notify_url_file are both set"),
        ({"NOTIFY_URL_FILE": "/nowhere", "NOTIFY_FORMAT": "teams"}, "notify_url_file /nowhere cannot be read"),
        ({"NOTIFY_TOPICS": "kills"}, "NOTIFY_TOPICS"),
        ({"NOTIFY_INTERVAL": "1s"}, "NOTIFY_INTERVAL"),
    ],
)
def test_settings_that_cannot_work_are_one_line_without_the_address(settings: dict[str, str], said: str):
    with pytest.raises(BadInputError) as raised:
        get_notification_webhook(load_settings({f"CRUISE_{name}": value for name, value in settings.items()}, None))
    assert said in str(raised.value)
    assert "canary" not in str(raised.value)


def test_a_short_secret_is_refused(tmp_path):
    (tmp_path / "secret").write_text("canary")
    found = {"CRUISE_NOTIFY_URL": "https://h.example/", "CRUISE_NOTIFY_SECRET_FILE": str(tmp_path / "secret")}
    with pytest.raises(BadInputError, match="under 16 characters") as raised:
        get_notification_webhook(load_settings(found, None))
    assert "canary" not in str(raised.value)
    assert get_notification_webhook(load_settings({}, None)) is None
