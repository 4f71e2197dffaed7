"""Every headroom model by its name: how it is prepared for a pass, and what of the past it needs.

A model's module is imported only where one is prepared: settings read the names, and start without numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName

if TYPE_CHECKING:
    from cruise.decisions.sizing.headroom.model import Headroom
    from cruise.decisions.sizing.headroom.past_demand import PastDemand
    from cruise.decisions.sizing.headroom.risk_level import KeptRisk

    Risks = Mapping[ResourceName, KeptRisk]


@dataclass(frozen=True, slots=True)
class Model:
    """How a model is prepared from past demand and kept risks, both empty where it does not read them.

    With `reads_usage` it reads the last hour's samples, with `reads_hours` the peaks of the clock hours that count as
    well, and with `learns` how the stated risks were kept, and the levels that follow.
    """

    prepare: Callable[[PastDemand, Risks, Policy], Headroom]
    reads_usage: bool = False
    reads_hours: bool = False
    learns: bool = False


def _shared_max(past: PastDemand, risks: Risks, policy: Policy) -> Headroom:
    from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX

    return SHARED_MAX


def _joint_peak(past: PastDemand, risks: Risks, policy: Policy) -> Headroom:
    from cruise.decisions.sizing.headroom.joint_peak import JointPeak

    return JointPeak(past)


def _risk(past: PastDemand, risks: Risks, policy: Policy) -> Headroom:
    from cruise.decisions.sizing.headroom.risk import Risk

    return Risk(past, risks)


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "shared-max": Model(_shared_max),
        "joint-peak": Model(_joint_peak, reads_usage=True, reads_hours=True),
        "risk": Model(_risk, reads_usage=True, reads_hours=True, learns=True),
    }
)
