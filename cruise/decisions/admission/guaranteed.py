"""The sizes that a Guaranteed pod is created with: those of a node pass, with limits equal to requests."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.pod_policy.container_bounds import ContainerBounds
from cruise.decisions.sizing.guaranteed import GuaranteedBounds, compute_guaranteed_sizes, get_guaranteed_usage
from cruise.domain.actions import ContainerTarget
from cruise.domain.arrays import UNBOUNDED, Int64Array, convert_to_int64, round_up_integers
from cruise.domain.cluster import Container
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName, StatedResources
from cruise.domain.usage import StatisticsTable

_CORE_MILLICORES = 1000
_FIRST_BOUND = {ResourceName.CPU: 0, ResourceName.MEMORY: 2}


@dataclass(frozen=True, slots=True)
class GuaranteedAdmission:
    """What the sizes of one new pod depend on, with an entry per sized container.

    `submitted` are the requests before any mutation, `rows` those of `statistics`, `memory_ceilings` what memory may
    rise to. With `keeps_template` no size is below what the containers state.
    """

    sized: Sequence[Container]
    submitted: Sequence[StatedResources]
    rows: Sequence[int]
    bounds: Sequence[ContainerBounds]
    memory_ceilings: Sequence[int]
    managed: Sequence[frozenset[ResourceName]]
    keeps_template: bool

    def compute_targets(self, statistics: StatisticsTable, policy: Policy) -> list[ContainerTarget]:
        """Return the containers with their new requests, and equal limits."""
        use = get_guaranteed_usage(statistics, convert_to_int64(self.rows), policy)
        columns = []
        for resource in ResourceName:
            first = _FIRST_BOUND[resource]
            ceilings = self.memory_ceilings if resource is ResourceName.MEMORY else [UNBOUNDED] * len(self.sized)
            lower, upper = (
                convert_to_int64([one.whole_unit_bounds[at] for one in self.bounds]) for at in (first, first + 1)
            )
            submitted = convert_to_int64([one.resources.get(resource) for one in self.submitted])
            bounds = GuaranteedBounds(lower, upper, convert_to_int64(ceilings))
            sizes, _ = compute_guaranteed_sizes(resource, use[resource], submitted, bounds, policy)
            columns.append(self._keep_unmanaged(resource, submitted, sizes).tolist())
        amounts = [StatedResources(*pair) for pair in zip(*columns, strict=True)]
        return [
            ContainerTarget(one.name, one.role, amount, amount) for one, amount in zip(self.sized, amounts, strict=True)
        ]

    def _keep_unmanaged(self, resource: ResourceName, submitted: Int64Array, sizes: Int64Array) -> Int64Array:
        """Return the sizes where they may change, and the stated ones elsewhere.

        Whole cores stay whole: a kubelet with the static CPU manager gives such a container cores of its own.
        """
        stated = convert_to_int64([one.requests.resources.get(resource) for one in self.sized])
        if resource is ResourceName.CPU:
            sizes = np.where(submitted % _CORE_MILLICORES, sizes, round_up_integers(sizes, _CORE_MILLICORES))
            sizes = np.where([one.keeps_cpu_limit for one in self.bounds], stated, sizes)
        else:
            sizes = np.where([one.keeps_memory_limit for one in self.bounds], stated, sizes)
        sizes = np.maximum(sizes, stated) if self.keeps_template else sizes
        return np.where([resource in one for one in self.managed], sizes, stated)
