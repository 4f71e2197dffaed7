"""The policies that a backtest compares, by name, in the order of its table."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

from cruise.backtest.baselines.as_requested import AsRequested
from cruise.backtest.baselines.autopilot.autopilot import Autopilot
from cruise.backtest.baselines.clairvoyant import Clairvoyant
from cruise.backtest.baselines.cruisekube.cruisekube import CruiseKube
from cruise.backtest.baselines.eks.eks import Eks
from cruise.backtest.baselines.oracle import Oracle
from cruise.backtest.baselines.vpa.vpa import Vpa
from cruise.backtest.policies.node_passes import CruisePasses
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.options import ReplayOptions
from cruise.backtest.replay.policy import ReplayPolicy
from cruise.domain.policy import Policy
from cruise.domain.rules import SEEDS


def _as_designed(policy: Policy) -> Policy:
    """Return the rules as they were first designed, before replays changed them."""
    return replace(
        policy,
        rules=SEEDS,
        headroom="shared-max",
        new_workload_age=timedelta(hours=1),
        memory_limit_history=timedelta(0),
    )


def _keeping_to(risk: float, policy: Policy) -> Policy:
    """Return the rules with a stated risk for both resources, kept to from the first pass on."""
    return replace(
        policy,
        headroom="risk",
        cpu_risk=risk,
        memory_risk=risk,
    )


def _cruise(name: str, rules: Callable[[ReplayOptions], Policy]) -> Callable[[Recording, ReplayOptions], ReplayPolicy]:
    return lambda recording, options: CruisePasses(recording, rules(options), name, options.stored)


def _clairvoyant(name: str, hours: int) -> Callable[[Recording, ReplayOptions], ReplayPolicy]:
    return lambda recording, options: Clairvoyant(recording, options, name, hours)


POLICIES: Mapping[str, Callable[[Recording, ReplayOptions], ReplayPolicy]] = MappingProxyType(
    {
        "as-requested": AsRequested,
        "vpa": Vpa,
        "cruisekube": CruiseKube,
        "autopilot": Autopilot,
        "eks": Eks,
        "cruise": _cruise("cruise", lambda options: options.policy),
        "cruise-seeds": _cruise("cruise-seeds", lambda options: replace(options.policy, rules=SEEDS)),
        "cruise-shared-max": _cruise("cruise-shared-max", lambda options: _as_designed(options.policy)),
        "cruise-joint-peak": _cruise(
            "cruise-joint-peak", lambda options: replace(options.policy, headroom="joint-peak")
        ),
        "cruise-risk": _cruise("cruise-risk", lambda options: _keeping_to(options.risk, options.policy)),
        "clairvoyant-1h": _clairvoyant("clairvoyant-1h", 1),
        "clairvoyant": _clairvoyant("clairvoyant", 4),
        "clairvoyant-24h": _clairvoyant("clairvoyant-24h", 24),
        "oracle": Oracle,
    }
)

# They decide pod by pod what baselines decide for each container: five to ten times the work.
SLOW = frozenset(name for name in POLICIES if name == "cruise" or name.startswith("cruise-"))
