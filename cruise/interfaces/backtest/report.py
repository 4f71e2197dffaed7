"""A backtest with its terms, as documents for programs: JSON, whose keys are a contract, YAML and CSV."""

import csv
import dataclasses
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import yaml

from cruise.decisions.policy_costs import (
    PolicyCost,
    SlackReduction,
    compute_policy_cost,
    compute_slack_reduction,
    find_dominated_policies,
    find_rank_changes,
    rank_by_cost,
)
from cruise.domain.backtest import BacktestResult, ContainerScore, ObjectivePrices, PolicyScore
from cruise.domain.policy import DEFAULT_RULES
from cruise.interfaces.text import JsonValue, convert_to_camel_case, convert_to_json

COST_NOTE = "an estimate: the nodes' time at the prices that are set"
_DIGITS = 6
_DAYS_A_MONTH = 730 / 24


@dataclass(frozen=True, slots=True)
class ReplayPrices:
    """What an hour of a resource costs, in whatever currency."""

    core_hour: float
    gibibyte_hour: float


@dataclass(frozen=True, slots=True)
class ReplayTerms:
    """What a replay was run under, besides its nodes; `half` is tune, report or None for every series.

    `rules` is the name of those that cruise decides by. `prices` are those of nodes where they are set,
    `objective_prices` those that every policy's slack and harm are summed up at.
    """

    pass_seconds: int
    arrivals: str
    seed: int
    risk: float
    half: str | None = None
    prices: ReplayPrices | None = None
    rules: str = DEFAULT_RULES.name
    objective_prices: ObjectivePrices = ObjectivePrices()


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """What was found about one or several recordings under the same terms."""

    results: Sequence[BacktestResult]
    terms: ReplayTerms

    @property
    def has_costs(self) -> bool:
        """Whether any policy's cost is known."""
        return any(score.cost is not None for result in self.results for score in result.policies.values())


def compute_monthly_cost(score: PolicyScore, result: BacktestResult) -> float | None:
    """Return what a month of 730 hours costs at this rate, None where prices are not known."""
    return score.cost / result.days * _DAYS_A_MONTH if score.cost is not None and result.days > 0 else None


def render_backtest_json(report: BacktestReport) -> bytes:
    """Return the report as one JSON document: that of the recording, or `traces` with one for each of several."""
    return msgspec.json.encode(_document(report)) + b"\n"


def render_backtest_yaml(report: BacktestReport) -> bytes:
    """Return the report as one YAML document."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(_document(report), Dumper=dumper, sort_keys=False, allow_unicode=True, width=160)).encode()


def render_backtest_csv(report: BacktestReport) -> bytes:
    """Return one line for each policy of each recording; what is not known stays empty."""
    text = io.StringIO()
    lines: list[dict[str, JsonValue]] = []
    for result in report.results:
        for name, figures in _policies(result, report.terms).items():
            lines.append({"trace": result.trace, "policy": name, **_flat(figures)})
    writer = csv.DictWriter(text, list(lines[0]) if lines else ["trace", "policy"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().encode()


def _flat(figures: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return what a line of CSV has: nested keys joined by a point, lists left out."""
    found: dict[str, JsonValue] = {}
    for key, value in figures.items():
        if isinstance(value, dict):
            found |= {f"{key}.{inner}": item for inner, item in _flat(value).items()}
        elif not isinstance(value, list):
            found[key] = value
    return found


def _document(report: BacktestReport) -> JsonValue:
    documents: list[JsonValue] = [build_result_document(result, report.terms) for result in report.results]
    return documents[0] if len(documents) == 1 else {"traces": documents}


def build_result_document(result: BacktestResult, terms: ReplayTerms) -> dict[str, JsonValue]:
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


def _policies(result: BacktestResult, terms: ReplayTerms) -> Mapping[str, dict[str, JsonValue]]:
    dominated, progress = find_dominated_policies(result.policies), compute_slack_reduction(result.policies)
    return {
        name: _policy(
            score, result, dominated.get(name), progress.get(name), compute_policy_cost(score, terms.objective_prices)
        )
        for name, score in result.policies.items()
    }


def _objective(result: BacktestResult, prices: ObjectivePrices) -> JsonValue:
    """Return the policies by cost, and what other prices change in their order."""
    return {
        "order": list(rank_by_cost(result.policies, prices)),
        "orderChanges": [
            {
                "price": f"price_{change.price}",
                "factor": round_figure(change.factor),
                "swaps": [{"cheaper": cheaper, "dearer": dearer} for cheaper, dearer in change.swaps],
            }
            for change in find_rank_changes(result.policies, prices)
        ],
    }


def _policy(
    score: PolicyScore,
    result: BacktestResult,
    dominated_by: str | None,
    progress: SlackReduction | None,
    objective: PolicyCost,
) -> dict[str, JsonValue]:
    """Return a policy's figures; those of memory are null where memory was not recorded."""
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
        "fromVpaToClairvoyant": {
            "cpu": round_figure(progress.cpu if progress is not None else None),
            "memory": round_figure(progress.memory if progress is not None else None),
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
        "dominatedBy": dominated_by,
        "worst": [_figures(one) for one in score.worst_containers],
    }


def _figures(value: ContainerScore) -> dict[str, JsonValue]:
    """Return a value's fields in their order, by their names in camel case."""
    fields = ((entry.name, getattr(value, entry.name)) for entry in dataclasses.fields(value))
    return {
        convert_to_camel_case(name): round_figure(field) if isinstance(field, float) else field
        for name, field in fields
    }


def round_figure(value: float | None) -> float | None:
    """Return a number to six significant digits: more would be the rounding of sums, which no one can compare."""
    return float(f"{float(value):.{_DIGITS}g}") if value is not None and math.isfinite(value) else None
