"""The API server's audit log, parsed."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import msgspec

AuditLevel = Literal["None", "Metadata", "Request", "RequestResponse"]
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _Reference(msgspec.Struct, frozen=True):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""


class AuditEvent(msgspec.Struct, frozen=True, rename="camel"):
    """One answered request; bodies are included from the levels Request and RequestResponse on."""

    audit_id: str = msgspec.field(name="auditID")
    stage: str
    verb: str
    request_uri: str = msgspec.field(name="requestURI")
    user_agent: str = ""
    user_account: _User = msgspec.field(name="user", default=_User())
    object_ref: _Reference = _Reference()
    response_status: _Status = _Status()
    request_object: Any = None
    response_object: Any = None
    request_received_timestamp: str = ""
    annotations: dict[str, str] = {}

    @property
    def user(self) -> str:
        """The user of the request."""
        return self.user_account.username

    @property
    def credential(self) -> str:
        """The id of the ServiceAccount token of the request, empty for other users: it distinguishes processes."""
        [credential] = self.user_account.extra.get(_CREDENTIAL, [""])
        return credential.removeprefix("JTI=")

    @property
    def resource(self) -> str:
        """The resource, such as `pods` or `pods/resize`."""
        reference = self.object_ref
        return f"{reference.resource}/{reference.subresource}" if reference.subresource else reference.resource

    @property
    def target(self) -> str:
        """NAMESPACE/NAME, or the name if there is no namespace."""
        reference = self.object_ref
        return f"{reference.namespace}/{reference.name}" if reference.namespace else reference.name

    @property
    def code(self) -> int:
        """The HTTP status of the response."""
        return self.response_status.code


class AuditLog:
    """The events written so far; a write is included at the latest when the next request is answered."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._decoder = msgspec.json.Decoder(AuditEvent)

    def mark(self) -> int:
        """Return the present end of the log."""
        return self._file.stat().st_size if self._file.exists() else 0

    def follow(self, users: str) -> "AuditLogReader":
        """Return a reader of later requests of all users with these prefixes."""
        return AuditLogReader(self._file, self.mark(), users)

    def events(self, since: int = 0, user: str | None = None, verbs: Collection[str] | None = None) -> list[AuditEvent]:
        """Return the requests answered since a mark, in the log's order."""
        with self._file.open("rb") as log:
            log.seek(since)
            lines = log.read().splitlines(keepends=True)
        found = [self._decoder.decode(line) for line in lines if line.endswith(b"\n")]
        return [
            event
            for event in found
            if event.stage == "ResponseComplete"
            and (user is None or event.user == user)
            and (verbs is None or event.verb in verbs)
        ]

    def writes(self, since: int = 0, user: str | None = None) -> list[AuditEvent]:
        """Return the attempts to write, including refused ones (see `code`)."""
        return self.events(since, user, WRITES)


class AuditLogReader:
    """Reads the requests of some users from a position of the log, each line once."""

    def __init__(self, file: Path, since: int, users: str) -> None:
        self._file = file
        self._read_until = since
        self._users = users
        self._decoder = msgspec.json.Decoder(AuditEvent)
        self._found: list[AuditEvent] = []

    def events(self) -> list[AuditEvent]:
        """Return the requests answered so far, in the log's order."""
        with self._file.open("rb") as log:
            log.seek(self._read_until)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read_until += len(line)
                # Most lines belong to other users, and are long.
                if self._users.encode() in line:
                    self._take(self._decoder.decode(line))
        return list(self._found)

    def _take(self, event: AuditEvent) -> None:
        if event.stage == "ResponseComplete" and event.user.startswith(self._users):
            self._found.append(event)
