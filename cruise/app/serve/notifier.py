"""Notifications: collected during the passes, sent together once an interval, retried a few times, then dropped."""

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from cruise.adapters.api_client import NotificationWebhook, read_token_file
from cruise.app.process import get_current_time
from cruise.app.serve.activity import ControllerHooks
from cruise.domain.actions import Outcome, SkippedPod
from cruise.domain.cluster import PodsByName
from cruise.domain.users import Notification, NotificationEvent, NotificationTopic, UserAction, group_notifications
from cruise.errors import BadInputError, CruiseError, RefusedError, UnavailableError
from cruise.interfaces.notifications import (
    BODY_RENDERERS,
    create_oom_notification,
    find_pause_notifications,
    find_refusal_notifications,
)
from cruise.runtime.oom import OomReactionResult
from cruise.runtime.ports import StorePort
from cruise.settings import Settings

log = structlog.get_logger()

_MOST_WAITING = 1000
_SHORTEST_SECRET = 16
RETRY_DELAYS = (2.0, 10.0, 30.0)
_LOOK_AT_PAUSES_SECONDS = 15.0

UserActionsFunction = Callable[[datetime], Awaitable[Iterable[UserAction]]]


def get_notification_webhook(settings: Settings) -> NotificationWebhook | None:
    """Return the notification webhook of the settings, None without one. Raises BadInputError, without secrets."""
    url = settings.notify_url
    if settings.notify_url_file is not None:
        url = read_token_file(settings.notify_url_file, "notify_url_file")
    if url is None:
        return None
    file = settings.notify_secret_file
    secret = read_token_file(file, "notify_secret_file") if file is not None else None
    if secret is not None and len(secret) < _SHORTEST_SECRET:
        raise BadInputError(
            f"notify_secret_file {file} holds under {_SHORTEST_SECRET} characters, which can be guessed"
        )
    return NotificationWebhook(url, secret.encode() if secret is not None else None)


def create_notifier(
    settings: Settings, store: StorePort, counts: Counter[str], pauses: Iterable[float] = RETRY_DELAYS
) -> "Notifier | None":
    """Return the notifier of the settings, which counts results in `counts`; None without one. Raises BadInputError."""
    webhook = get_notification_webhook(settings)
    if webhook is None:
        return None
    body_of, topics, interval = (
        BODY_RENDERERS[settings.notify_format.value],
        settings.notify_topics,
        settings.notify_interval,
    )
    return Notifier(
        webhook, body_of, topics, interval, get_current_time, store.read_user_actions, pauses, counts=counts
    )


class MessageSender(Protocol):
    """Sends one message; adapters.api_client."""

    async def post(self, body: bytes, key: str, at: int) -> None:
        """Raises RefusedError, UnavailableError."""


class Notifier:
    """Collects notices without waiting, and sends them while `run` runs.

    `interventions` returns the user actions since a time. Notices beyond the queue's limit are counted; `counts` counts
    notices by result.
    """

    def __init__(
        self,
        post: MessageSender,
        body_of: Callable[[Notification], bytes],
        topics: Iterable[NotificationTopic],
        interval: timedelta,
        clock: Callable[[], datetime],
        interventions: UserActionsFunction,
        pauses: Iterable[float] = RETRY_DELAYS,
        look_seconds: float = _LOOK_AT_PAUSES_SECONDS,
        counts: Counter[str] | None = None,
    ) -> None:
        self._post = post
        self._body_of = body_of
        self._topics = frozenset(topics)
        self._interval = interval.total_seconds()
        self._clock = clock
        self._interventions = interventions
        self._pauses = tuple(pauses)
        self._look_seconds = look_seconds
        self.outcomes: Counter[str] = Counter() if counts is None else counts
        self._waiting: deque[NotificationEvent] = deque()
        self._some = asyncio.Event()
        self.dropped = 0

    def add(self, notices: Iterable[NotificationEvent]) -> None:
        """Add notices; the newest ones are dropped if the queue is full."""
        for notice in notices:
            if notice.topic not in self._topics:
                continue
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(notice)
                self._some.set()
            else:
                self.dropped += 1
                self.outcomes["dropped"] += 1

    def add_hooks(self, hooks: ControllerHooks) -> ControllerHooks:
        """Return hooks that also notify of refusals, kills and user actions."""

        async def announce(outcomes: Sequence[Outcome], skipped: Sequence[SkippedPod], pods: PodsByName) -> None:
            self.add(find_refusal_notifications(outcomes))
            await hooks.announce(outcomes, skipped, pods)

        def reacted(reaction: OomReactionResult) -> None:
            self.add([create_oom_notification(reaction.record, reaction.decision, reaction.outcome)])
            hooks.on_oom_reaction(reaction)

        return replace(hooks, announce=announce, on_oom_reaction=reacted, on_idle=self.run)

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_repeatedly())
            if NotificationTopic.PAUSED in self._topics:
                tasks.create_task(self._follow_user_actions())

    async def _send_repeatedly(self) -> None:
        while True:
            await self._some.wait()
            await self.send()
            await asyncio.sleep(self._interval)

    async def send(self) -> None:
        """Send all queued notices as one message; after some failures they are counted as dropped."""
        notices, self._waiting = list(self._waiting), deque()
        self._some.clear()
        if not notices:
            return
        dropped, self.dropped = self.dropped, 0
        message = Notification(secrets.token_hex(16), self._clock(), group_notifications(notices), dropped)
        body = self._body_of(message)
        for pause in (*self._pauses, None):
            try:
                await self._post.post(body, message.key, int(self._clock().timestamp()))
            except (RefusedError, UnavailableError) as error:
                if pause is None or isinstance(error, RefusedError):
                    self.dropped += dropped + len(notices)
                    self.outcomes["dropped"] += len(notices)
                    log.warning("not notified", notices=len(notices), problem=str(error))
                    return
                await asyncio.sleep(pause)
            else:
                self.outcomes["sent"] += len(notices)
                log.info("notified", notices=len(notices))
                return

    async def _follow_user_actions(self) -> None:
        since = self._clock()
        while True:
            await asyncio.sleep(self._look_seconds)
            with suppress(CruiseError):
                found = [one for one in await self._interventions(since) if one.at > since]
                since = max((one.at for one in found), default=since)
                self.add(find_pause_notifications(found))
