"""What becomes of the Vertical Pod Autoscaler's resizes in place that the kubelet does not carry out.

Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.8.1, pkg/updater/restriction/pods_inplace_restriction.go.
A resize for which the node has no room stays in the pod's spec and the kubelet tries it again; while it waits, the pod
is given no other. After more than five minutes the pod may be evicted instead. The timer is documented as one of the
resize; upstream's code starts it once a pod, when it first sees one wait, so that a second resize that has to wait is
given up on at once. A pod whose limit the kubelet refuses to lower may be evicted at the next loop.
"""

import numpy as np

from cruise.backtest.replay.policy import Sizes
from cruise.domain.arrays import BoolArray, Int64Array

_PATIENCE_SECONDS = 300
_NEVER = -1


class ResizesInPlace:
    """The resizes of C containers that were requested and are not seen to be done."""

    def __init__(self, count: int) -> None:
        self._wanted = Sizes.zeros(count)
        self._open: BoolArray = np.zeros(count, dtype=np.bool_)
        self._refused: BoolArray = np.zeros(count, dtype=np.bool_)
        self._waits_since: Int64Array = np.full(count, _NEVER, dtype=np.int64)

    def request(self, containers: Int64Array, sizes: Sizes, refused: BoolArray) -> None:
        """Remember resizes, one entry each, and which of them the kubelet refuses."""
        self._wanted.put(containers, sizes)
        self._open[containers] = True
        self._refused[containers] = refused

    def drop(self, containers: Int64Array) -> None:
        """Forget those of pods that are gone."""
        self._open[containers] = False
        self._waits_since[containers] = _NEVER

    def waiting(self, sizes: Sizes) -> BoolArray:
        """Tell which are still not done, given the sizes that are in force."""
        self._open &= (sizes.cpu_millicores != self._wanted.cpu_millicores) | (
            sizes.memory_bytes != self._wanted.memory_bytes
        )
        return self._open.copy()

    def tried_again(self, containers: BoolArray) -> BoolArray:
        """Tell which of some containers have a resize that the kubelet goes on trying."""
        return containers & self._open & ~self._refused

    def evictable(self, at: int, waiting: BoolArray) -> BoolArray:
        """Tell which of those that wait may be evicted: the refused, and those that have waited too long."""
        self._waits_since[waiting & (self._waits_since == _NEVER)] = at
        return waiting & (self._refused | (at - self._waits_since > _PATIENCE_SECONDS))

    def wanted(self, containers: Int64Array) -> Sizes:
        """Return what was requested, which the kubelet goes on trying."""
        return self._wanted.take(containers)


def refused_for_use(limits: Int64Array, wanted_limits: Int64Array, used_bytes: Int64Array) -> BoolArray:
    """Tell which memory limits the kubelet does not lower, as more is in use."""
    return (wanted_limits > 0) & (wanted_limits < limits) & (used_bytes > wanted_limits)
