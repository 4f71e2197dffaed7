"""The headroom model that the policy names."""

from collections.abc import Callable, Mapping

from cruise.decisions.sizing.headroom.joint_peak import JointPeak
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.headroom.risk import Risk
from cruise.decisions.sizing.headroom.scores import Margin
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.domain.policy import HeadroomModel, Policy
from cruise.domain.resources import ResourceName


def headroom_of(
    policy: Policy, past: Callable[[], PastDemand], margins: Callable[[], Mapping[ResourceName, Margin]]
) -> Headroom:
    """Prepare the policy's model for a pass; what it does not ask for is not made."""
    match policy.headroom:
        case HeadroomModel.SHARED_MAX:
            return SHARED_MAX
        case HeadroomModel.JOINT_PEAK:
            return JointPeak(past())
        case HeadroomModel.RISK:
            return Risk(past(), margins(), policy.headroom_start)
