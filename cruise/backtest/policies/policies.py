"""The policies that a backtest compares, by name, in the order of its table."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

from cruise.backtest.baselines.as_requested import AsRequestedBaseline, OracleBaseline
from cruise.backtest.baselines.autopilot import AutopilotBaseline
from cruise.backtest.baselines.clairvoyant import ClairvoyantBaseline
from cruise.backtest.baselines.cruisekube import CruiseKubeBaseline
from cruise.backtest.baselines.eks import EksBaseline
from cruise.backtest.baselines.vpa import VpaBaseline
from cruise.backtest.policies.cruise_policy import CruisePolicy
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ReplayOptions, ReplayPolicy
from cruise.domain.policy import SEED_RULES, Policy


def _as_designed(policy: Policy) -> Policy:
    """Return the rules as they were first designed, before replays changed them."""
    return replace(
        policy,
        rules=SEED_RULES,
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


def _cruise(
    name: str, rules: Callable[[ReplayOptions], Policy]
) -> Callable[[UsageRecording, ReplayOptions], ReplayPolicy]:
    return lambda recording, options: CruisePolicy(recording, rules(options), name, options.stored)


def _clairvoyant(name: str, hours: int) -> Callable[[UsageRecording, ReplayOptions], ReplayPolicy]:
    return lambda recording, options: ClairvoyantBaseline(recording, options, name, hours)


POLICIES: Mapping[str, Callable[[UsageRecording, ReplayOptions], ReplayPolicy]] = MappingProxyType(
    {
        "as-requested": AsRequestedBaseline,
        "vpa": VpaBaseline,
        "cruisekube": CruiseKubeBaseline,
        "autopilot": AutopilotBaseline,
        "eks": EksBaseline,
        "cruise": _cruise("cruise", lambda options: options.policy),
        "cruise-seeds": _cruise("cruise-seeds", lambda options: replace(options.policy, rules=SEED_RULES)),
        "cruise-shared-max": _cruise("cruise-shared-max", lambda options: _as_designed(options.policy)),
        "cruise-joint-peak": _cruise(
            "cruise-joint-peak", lambda options: replace(options.policy, headroom="joint-peak")
        ),
        "cruise-risk": _cruise("cruise-risk", lambda options: _keeping_to(options.risk, options.policy)),
        "clairvoyant-1h": _clairvoyant("clairvoyant-1h", 1),
        "clairvoyant": _clairvoyant("clairvoyant", 4),
        "clairvoyant-24h": _clairvoyant("clairvoyant-24h", 24),
        "oracle": OracleBaseline,
    }
)

# They decide pod by pod what baselines decide for each container: five to ten times the work.
SLOW_POLICIES = frozenset(name for name in POLICIES if name == "cruise" or name.startswith("cruise-"))
