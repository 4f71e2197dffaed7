"""The options of a replay: the same for every policy."""

from dataclasses import dataclass, field
from enum import StrEnum

from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Policy
from cruise.domain.resources import MEBIBYTE, Resources


class Arrivals(StrEnum):
    """When pods are created."""

    FIRST_SAMPLE = "first-sample"
    START = "start"


class Judgement(StrEnum):
    """By which sizes consolidation judges whether pods have room elsewhere."""

    ADMITTED = "admitted"
    REQUESTS = "requests"


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The size of every node, the interval of passes, what a violation may cost, and prices (None: no costs).

    Where samples are further apart than `pass_seconds`, there is one pass a sample. `risk` is the share of intervals in
    which a node may run short, for the policies that promise one; `policy` has the settings that cruise decides by.
    `stored` are the overrides of workloads that cruise knows. `both_judgements` is whether a second replay is made of
    each policy, whose consolidation judges by requests.
    """

    node: Resources = Resources(16000, 64 * 1024 * MEBIBYTE)
    node_pods: int = 110
    pass_seconds: int = 300
    arrivals: Arrivals = Arrivals.FIRST_SAMPLE
    seed: int = 0
    risk: float = 1e-3
    policy: Policy = Policy()
    both_judgements: bool = True
    price_core_hour: float | None = None
    price_gibibyte_hour: float | None = None
    stored: StoredOverrides = field(default_factory=dict)
