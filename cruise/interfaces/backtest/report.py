"""A backtest as JSON, whose keys are a contract, YAML and CSV."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cruise.decisions.policy_costs import (
    PolicyCost,
    SlackReduction,
    compute_policy_cost,
    compute_slack_reduction_from_vpa,
    find_dominated_policies,
    find_rank_changes_at_varied_prices,
    rank_by_cost,
)
from cruise.domain.backtest import AutoscalingScore, BacktestResult, ContainerScore, ObjectivePrices, PolicyScore
from cruise.domain.policy import DEFAULT_RULES
from cruise.domain.prices import DOLLAR
from cruise.interfaces.text import (
    JsonValue,
    convert_to_camel_case,
    convert_to_json,
    render_csv,
)

COST_NOTE = "an estimate: the nodes' time at the configured prices"
_SIGNIFICANT_DIGITS = 6
_DAYS_PER_MONTH = 730 / 24


@dataclass(frozen=True, slots=True)
class HourlyResourcePrices:
    """The price of an hour of each resource."""

    core_hour: float
    gibibyte_hour: float


@dataclass(frozen=True, slots=True)
class ReplayParameters:
    """The parameters of a replay; `half` is tune, report or None for every series.

    `rules` names cruise's rule set. `prices` are those of nodes, `objective_prices` those of slack and harm.
    Both are in `currency`. `hpa` is the option --hpa: a target of utilization, or snapshot.
    """

    pass_seconds: int
    pod_creation: str
    seed: int
    risk: float
    half: str | None = None
    prices: HourlyResourcePrices | None = None
    rules: str = DEFAULT_RULES.name
    objective_prices: ObjectivePrices = ObjectivePrices()
    hpa: str | None = None
    currency: str = DOLLAR


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """The results of one or several recordings under the same terms."""

    results: Sequence[BacktestResult]
    parameters: ReplayParameters

    @property
    def has_costs(self) -> bool:
        """Whether the cost of any policy is known."""
        return any(score.cost is not None for result in self.results for score in result.policies.values())


def compute_monthly_cost(score: PolicyScore, result: BacktestResult) -> float | None:
    """Return the cost of a month of 730 hours, None if prices are unknown."""
    return score.cost / result.days * _DAYS_PER_MONTH if score.cost is not None and result.days > 0 else None


def render_backtest_csv(report: BacktestReport) -> bytes:
    """Return one line for each policy of each recording; unknown values are empty."""
    lines: list[Mapping[str, JsonValue]] = [
        {"trace": result.trace, "policy": name, **_flatten(figures)}
        for result in report.results
        for name, figures in _policies(result, report.parameters).items()
    ]
    return render_csv(lines[0] if lines else ("trace", "policy"), lines)


def _flatten(figures: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the values for a line of CSV: nested keys joined by a dot, without lists."""
    flat: dict[str, JsonValue] = {}
    for key, value in figures.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": item for inner, item in _flatten(value).items()}
        elif not isinstance(value, list):
            flat[key] = value
    return flat


def build_backtest_document(report: BacktestReport) -> JsonValue:
    """Return the report for JSON and YAML: that of the recording, or `traces` with one for each of several."""
    documents: list[JsonValue] = [build_recording_document(result, report.parameters) for result in report.results]
    return documents[0] if len(documents) == 1 else {"traces": documents}


def build_recording_document(result: BacktestResult, terms: ReplayParameters) -> dict[str, JsonValue]:
    """Return one recording's document."""
    return {
        "trace": result.trace,
        "containers": result.containers,
        "cappedContainers": result.capped_containers,
        "days": round_figure(result.days),
        "stepSeconds": result.step_seconds,
        "node": {"cpuMillicores": result.node.cpu_millicores, "memoryBytes": result.node.memory_bytes},
        "terms": convert_to_json(terms),
        "policies": dict(_policies(result, terms)),
        "objective": _objective(result, terms.objective_prices),
    }


def _policies(result: BacktestResult, terms: ReplayParameters) -> Mapping[str, dict[str, JsonValue]]:
    dominated, reductions = find_dominated_policies(result.policies), compute_slack_reduction_from_vpa(result.policies)
    return {
        name: _policy(
            score, result, dominated.get(name), reductions.get(name), compute_policy_cost(score, terms.objective_prices)
        )
        for name, score in result.policies.items()
    }


def _objective(result: BacktestResult, prices: ObjectivePrices) -> JsonValue:
    """Return the order of the policies by cost, and how other prices change it."""
    return {
        "order": list(rank_by_cost(result.policies, prices)),
        "orderChanges": [
            {
                "price": f"price_{change.price}",
                "factor": round_figure(change.factor),
                "swaps": [{"cheaper": cheaper, "dearer": dearer} for cheaper, dearer in change.swaps],
            }
            for change in find_rank_changes_at_varied_prices(result.policies, prices)
        ],
    }


def _policy(
    score: PolicyScore,
    result: BacktestResult,
    dominated_by: str | None,
    reduction: SlackReduction | None,
    objective: PolicyCost,
) -> dict[str, JsonValue]:
    """Return a policy's figures; those of memory are null if memory was not recorded."""
    memory = score.memory
    kills = score.oom_per_1000_container_days if memory is not None else None
    return {
        "cpu": {
            "relativeSlack": round_figure(score.cpu.relative_slack),
            "starvedShare": round_figure(score.cpu.starved_share),
            "shortShare": round_figure(score.cpu.short_share),
            "meanSlackMillicores": round_figure(score.cpu.mean_slack),
        },
        "memory": {
            "relativeSlack": round_figure(memory.relative_slack if memory is not None else None),
            "shortShare": round_figure(memory.short_share if memory is not None else None),
            "oomPer1000ContainerDays": round_figure(kills),
            "meanSlackBytes": round_figure(memory.mean_slack if memory is not None else None),
        },
        "slackReduction": {
            "cpu": round_figure(reduction.cpu if reduction is not None else None),
            "memory": round_figure(reduction.memory if reduction is not None else None),
        },
        "costPer1000ContainerDays": round_figure(objective.total),
        "costByCause": {convert_to_camel_case(cause): round_figure(part) for cause, part in objective.by_cause.items()},
        "resizesPerContainerDay": round_figure(score.resizes_per_container_day),
        "resizeReversalShare": round_figure(score.resize_reversal_share),
        "reversedShare": round_figure(score.resize_reversal_share),
        "evictionsPer1000PodDays": round_figure(score.evictions_per_1000_pod_days),
        "ownEvictionsPer1000PodDays": round_figure(score.own_evictions_per_1000_pod_days),
        "consolidationMovesPer1000PodDays": round_figure(score.moves_per_1000_pod_days),
        "consolidationMovesPer1000PodDaysByRequests": round_figure(score.moves_by_requests),
        "nodesMean": round_figure(score.nodes_mean),
        "nodesMeanByRequests": round_figure(score.nodes_mean_by_requests),
        "nodesPeak": score.nodes_peak,
        "pendingPodMinutes": round_figure(score.pending_pod_minutes),
        "containerDays": round_figure(score.container_days),
        "estimatedCost": round_figure(score.cost),
        "estimatedCostPerMonth": round_figure(compute_monthly_cost(score, result)),
        **({} if score.autoscaling is None else {"autoscaling": _autoscaling(score.autoscaling)}),
        "dominatedBy": dominated_by,
        "worst": [_container(one) for one in score.worst_containers],
    }


def _autoscaling(score: AutoscalingScore) -> JsonValue:
    figures = {convert_to_camel_case(name): round_figure(value) for name, value in dataclasses.asdict(score).items()}
    return {**figures, "reclaimedShareAtMinimum": round_figure(score.reclaimed_share_at_minimum)}


def _container(score: ContainerScore) -> dict[str, JsonValue]:
    fields = ((entry.name, getattr(score, entry.name)) for entry in dataclasses.fields(score))
    return {
        convert_to_camel_case(name): round_figure(value) if isinstance(value, float) else value
        for name, value in fields
    }


def round_figure(value: float | None) -> float | None:
    """Return a number to six significant digits; further digits depend on the order of summation."""
    return float(f"{float(value):.{_SIGNIFICANT_DIGITS}g}") if value is not None and math.isfinite(value) else None
