"""A Lease as the API server keeps it, however people have edited it, and what a contender writes into it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cruise.adapters.kube.http.answers import decoded

Json = dict[str, Any]
DATABASE_EPOCH = "cruise.io/database-epoch"
_MOST_DIGITS = 18
# A holder that goes leaves a life of one second behind, as other programs' leader election does.
_RELEASED_SECONDS = 1


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease as it was read; `document` is all of it, so that labels and notes of others are written back."""

    document: Json

    @property
    def version(self) -> str:
        """The resourceVersion: differs after every write."""
        return str(_mapping(self.document.get("metadata")).get("resourceVersion", ""))

    @property
    def holder(self) -> str:
        """The holder's identity, empty where it is free."""
        return str(self.spec.get("holderIdentity") or "")

    @property
    def acquired(self) -> str:
        """When the holder took it, as text: distinguishes two holders of the same name."""
        return str(self.spec.get("acquireTime") or "")

    @property
    def released(self) -> bool:
        """Tell whether its holder has let go of it; a Lease that was only emptied has a holder that does not know."""
        return not self.holder and self.spec.get("leaseDurationSeconds") == _RELEASED_SECONDS

    @property
    def epoch(self) -> int:
        """The epoch that the database of a holder had; 0 where nothing usable is stated."""
        stated = _mapping(_mapping(self.document.get("metadata")).get("annotations")).get(DATABASE_EPOCH)
        if not isinstance(stated, str) or len(stated) > _MOST_DIGITS or not (stated.isascii() and stated.isdecimal()):
            return 0
        return int(stated)

    def with_epoch(self, epoch: int) -> "LeaseRecord":
        """Return it with the epoch of the database, which never becomes smaller."""
        if epoch <= self.epoch:
            return self
        metadata = _mapping(self.document.get("metadata"))
        annotations = {**_mapping(metadata.get("annotations")), DATABASE_EPOCH: str(epoch)}
        return LeaseRecord({**self.document, "metadata": {**metadata, "annotations": annotations}})

    def life_seconds(self, own_seconds: float) -> float:
        """Return for how long an unchanged record is to be respected: as it says, within reason of one's own."""
        stated = self.spec.get("leaseDurationSeconds")
        if not isinstance(stated, int):
            return own_seconds
        return min(max(float(stated), own_seconds), 4 * own_seconds)

    def held_by(self, identity: str, acquired: str, seconds: float, now: datetime) -> "LeaseRecord":
        """Return it renewed by `identity`, or taken over if another identity had it."""
        taken = bool(self.version) and (self.holder, self.acquired) != (identity, acquired)
        return self._with(
            {
                "holderIdentity": identity,
                "leaseDurationSeconds": max(1, round(seconds)),
                "acquireTime": acquired,
                "renewTime": micro_time(now),
                "leaseTransitions": (self._transitions + taken) % 2**31,
            }
        )

    def let_go(self, now: datetime) -> "LeaseRecord":
        """Return it without a holder, free for the next."""
        return self._with(
            {
                "holderIdentity": "",
                "leaseDurationSeconds": _RELEASED_SECONDS,
                "acquireTime": None,
                "renewTime": micro_time(now),
                "leaseTransitions": self._transitions,
            }
        )

    @property
    def spec(self) -> Mapping[str, Any]:
        """What holders and contenders write; empty where it was wiped."""
        return _mapping(self.document.get("spec"))

    @property
    def _transitions(self) -> int:
        stated = self.spec.get("leaseTransitions")
        return stated if isinstance(stated, int) and stated >= 0 else 0

    def _with(self, spec: Json) -> "LeaseRecord":
        return LeaseRecord({**self.document, "spec": {**self.spec, **spec}})


def read_lease(body: bytes) -> LeaseRecord:
    """Read an answer. Raises Unavailable where it is no object."""
    return LeaseRecord(decoded(body, Json, "the Lease"))


def new_lease(namespace: str, name: str) -> LeaseRecord:
    """Return a Lease that is not there yet."""
    return LeaseRecord(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {},
        }
    )


def micro_time(now: datetime) -> str:
    """Write a UTC time as Kubernetes' MicroTime."""
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
