"""The resize conditions of a pod."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cruise.domain.resources import ResourceName


class ResizePending(StrEnum):
    """The reason of the condition PodResizePending."""

    DEFERRED = "Deferred"
    INFEASIBLE = "Infeasible"


@dataclass(frozen=True, slots=True)
class ResizeState:
    """The resize conditions of a pod; `pending_since` is the last transition.

    `static_manager` is the resource whose static manager makes the resize infeasible; with `memory_swaps`, swap does.
    """

    pending: ResizePending | None = None
    pending_since: datetime | None = None
    in_progress: bool = False
    error: bool = False
    static_manager: ResourceName | None = None
    memory_swaps: bool = False


NO_RESIZE = ResizeState()
