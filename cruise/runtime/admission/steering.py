"""The pods that a packing plan expects, as admission knows them: each is steered once."""

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from cruise.decisions.admission.steering import find_steering
from cruise.domain.cluster import Pod
from cruise.domain.packing import Steering

# A pod that was steered and yet never created leaves its place free again, for the next one of its controller.
_CLAIMED_SECONDS = 10.0


class Expected:
    """The pods that a packing plan expects; replaced as a whole whenever the store was read."""

    def __init__(self, clock: Callable[[], datetime], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._waiting: Sequence[Steering] = ()
        self._claimed_at: dict[str, float] = {}
        self._owners: re.Pattern[bytes] | None = None

    def use(self, steerings: Sequence[Steering]) -> None:
        """Expect these pods from now on, and no others."""
        if steerings is self._waiting:
            return
        self._waiting = steerings
        known = {one.replaces for one in steerings}
        self._claimed_at = {uid: at for uid, at in self._claimed_at.items() if uid in known}
        names = sorted({re.escape(one.owner_name.encode()) for one in steerings})
        self._owners = re.compile(b'"(?:' + b"|".join(names) + b')"') if names else None

    @property
    def any(self) -> bool:
        """Tell whether any pod is expected."""
        return bool(self._waiting)

    def may_concern(self, review: bytes) -> bool:
        """Tell whether a review may be of a pod that is expected: it names the owner of one."""
        return self._owners is not None and self._owners.search(review) is not None

    def find(self, pod: Pod) -> Steering | None:
        """Return the expected pod that a pod in creation may be, None if it is none of them."""
        latest = self._monotonic() - _CLAIMED_SECONDS
        free = (one for one in self._waiting if self._claimed_at.get(one.replaces, latest) <= latest)
        return find_steering(pod, free, self._clock())

    def claim(self, one: Steering) -> None:
        """Note that a pod was steered: the next one is another."""
        self._claimed_at[one.replaces] = self._monotonic()
