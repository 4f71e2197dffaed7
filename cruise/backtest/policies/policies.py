"""The policies of a backtest, by name, in the order of its table."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

from cruise.backtest.baselines.autopilot import AutopilotBaseline
from cruise.backtest.baselines.bounds import AsRequestedBaseline, ClairvoyantBaseline, OracleBaseline
from cruise.backtest.baselines.cruisekube import CruiseKubeBaseline
from cruise.backtest.baselines.eks import EksBaseline
from cruise.backtest.baselines.vpa import VpaBaseline
from cruise.backtest.policies.cruise_policy import CruisePolicy
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ReplayOptions, ReplayPolicy
from cruise.domain.policy import SEED_RULES, Policy


def _use_first_design(policy: Policy) -> Policy:
    """Return the policy with the rules of the first design."""
    return replace(
        policy,
        rules=SEED_RULES,
        headroom="shared-max",
        new_workload_age=timedelta(hours=1),
        memory_limit_history=timedelta(0),
    )


def _set_stated_risk(risk: float, policy: Policy) -> Policy:
    """Return the policy with the headroom model of a stated risk, the same for both resources."""
    return replace(
        policy,
        headroom="risk",
        cpu_risk=risk,
        memory_risk=risk,
    )


def _cruise(
    name: str, get_policy: Callable[[ReplayOptions], Policy]
) -> Callable[[UsageRecording, ReplayOptions], ReplayPolicy]:
    return lambda recording, options: CruisePolicy(recording, get_policy(options), name, options.policy_objects)


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
        "cruise-shared-max": _cruise("cruise-shared-max", lambda options: _use_first_design(options.policy)),
        "cruise-joint-peak": _cruise(
            "cruise-joint-peak", lambda options: replace(options.policy, headroom="joint-peak")
        ),
        "cruise-risk": _cruise("cruise-risk", lambda options: _set_stated_risk(options.risk, options.policy)),
        "clairvoyant-1h": _clairvoyant("clairvoyant-1h", 1),
        "clairvoyant": _clairvoyant("clairvoyant", 4),
        "clairvoyant-24h": _clairvoyant("clairvoyant-24h", 24),
        "oracle": OracleBaseline,
    }
)

# They decide pod by pod, which takes five to ten times as long as a baseline.
SLOW_POLICIES = frozenset(name for name in POLICIES if name == "cruise" or name.startswith("cruise-"))
