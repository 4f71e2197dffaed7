"""The policies that a backtest compares, by name, in the order of its table."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType

from cruise.backtest.baselines.as_requested import AsRequested
from cruise.backtest.baselines.autopilot import Autopilot
from cruise.backtest.baselines.cruisekube import CruiseKube
from cruise.backtest.baselines.oracle import Oracle
from cruise.backtest.baselines.vpa import Vpa
from cruise.backtest.passes import CruisePasses
from cruise.backtest.recording import Recording
from cruise.backtest.sizing import Sizing
from cruise.backtest.terms import Terms
from cruise.domain.policy import HeadroomModel, HeadroomStart, Policy

# The rules as they were first designed, before replays changed them.
AS_DESIGNED = Policy(
    headroom=HeadroomModel.SHARED_MAX, new_workload_age=timedelta(hours=1), memory_limit_history=timedelta(0)
)

POLICIES: Mapping[str, Callable[[Recording, Terms], Sizing]] = MappingProxyType(
    {
        "as-requested": AsRequested,
        "vpa": Vpa,
        "cruisekube": CruiseKube,
        "autopilot": Autopilot,
        "cruise": lambda recording, terms: CruisePasses(recording, Policy(), "cruise"),
        "cruise-shared-max": lambda recording, terms: CruisePasses(recording, AS_DESIGNED, "cruise-shared-max"),
        "cruise-joint-peak": lambda recording, terms: CruisePasses(
            recording, Policy(headroom=HeadroomModel.JOINT_PEAK), "cruise-joint-peak"
        ),
        "cruise-risk": lambda recording, terms: CruisePasses(
            recording,
            Policy(
                headroom=HeadroomModel.RISK,
                headroom_risk=terms.risk,
                headroom_cpu_risk=None,
                headroom_start=HeadroomStart.SUM_OF_PEAKS,
            ),
            "cruise-risk",
        ),
        "oracle": Oracle,
    }
)
