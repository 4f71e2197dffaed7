"""`cruise pack`: plan places for pending pods, from files."""

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import (
    ConfigOption,
    FormatOption,
    ModeName,
    NowOption,
    OutputFormat,
    SnapshotOption,
    create_option_without_default,
    load_process_settings,
    parse_time,
    resolve_policy,
)
from cruise.cli.terminal import create_table_console, print_error, print_report, write_json
from cruise.errors import BadInputError

if TYPE_CHECKING:
    from cruise.domain.cluster import ClusterSnapshot
    from cruise.domain.packing_plan import PackingProposal


class PackingSizesName(StrEnum):
    """Whether pods keep their requests."""

    FIXED = "fixed"
    RIGHTSIZED = "rightsized"


def pack(
    snapshot: SnapshotOption,
    usage: Annotated[
        str | None,
        create_option_without_default(
            "--usage", "FILE", "A UsageStatistics file, for sizing pods; also .gz, - for standard input."
        ),
    ] = None,
    sizes: Annotated[
        PackingSizesName | None,
        create_option_without_default(
            "--sizes",
            None,
            "Keep every size, or resize pods to their targets if needed; default: rightsized with --usage, else fixed.",
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        create_option_without_default(
            "--time-limit",
            "S",
            "Seconds to search, 0 for the quick method only; default: packing_time_limit, 10 s.",
        ),
    ] = None,
    work: Annotated[
        float | None,
        create_option_without_default(
            "--work",
            "UNITS",
            "Search for an amount of work instead of a time, about 1e9 a second; results are reproducible.",
            min=1,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, max=2**31 - 1, help="Seed of random numbers.")] = 1,
    consolidate: Annotated[
        bool, typer.Option("--consolidate", help="Then drain nodes, for the fewest or cheapest in use.")
    ] = False,
    max_evictions: Annotated[
        int | None,
        create_option_without_default("--max-evictions", "N", "With --consolidate: move at most N pods.", min=0),
    ] = None,
    node_types: Annotated[
        str | None,
        create_option_without_default(
            "--node-types", "FILE", "With --consolidate: what nodes cost, and which could be added."
        ),
    ] = None,
    within_budgets: Annotated[
        bool,
        typer.Option(
            "--within-budgets", help="Plan only evictions that serve may do in one round, and show further rounds."
        ),
    ] = False,
    now: NowOption = None,
    full: Annotated[bool, typer.Option("--full", help="Show all pods, steps and nodes.")] = False,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    r"""Plan places for pending pods: as many as possible, the highest priority first.

    Then as few evictions as possible. Nothing is contacted and nothing is
    changed; decides for mode full. The status says what is proved: optimal
    and already-optimal are; feasible and no-improvement have the distance
    from the bound. The snapshot is the output of:

      kubectl get -A -o json \
      no,po,rs,deploy,sts,ds,job,cj,pdb,hpa,limits,quota,pv,pvc,sc,pc,ns,\
      csinodes,csidrivers,csistoragecapacities,volumeattachments

    Examples:
      cruise pack --snapshot cluster.json

      cruise pack --snapshot cluster.json --usage usage.json

      cruise pack --snapshot cluster.json --time-limit 60 --format json

      cruise pack --snapshot cluster.json --work 1e9 --seed 7

      cruise pack --snapshot cluster.json --within-budgets --config cruise.toml

      cruise pack --snapshot cluster.json --consolidate --max-evictions 40

    --within-budgets plans under max_evictions_per_node, _per_workload and
    _per_hour, as serve does: pods that are not ready count as evicted.

    With --consolidate the plan drains as many nodes as possible, one after
    the other, and never evicts more pods of a PodDisruptionBudget at a time
    than it allows. If pods are pending it says which nodes to add for them.
    A node is in use while it runs a pod that does not belong to a DaemonSet.
    The snapshot may have Karpenter's nodepools and nodeclaims: nodes of known
    machines are then added within their limits. --node-types FILE has prices:

      {"apiVersion":"cruise.io/v1","kind":"NodeTypes","items":[
       {"name":"m6.large","allocatable":{"cpu":"1930m","memory":"7Gi","pods":29},"price":0.096,"limit":10}]}
    """
    from cruise.adapters.files import load_node_types
    from cruise.cli.inputs.sources import load_snapshot_with_node_autoscaler, load_usage_of_snapshot
    from cruise.cli.work.packing import PackingRequest, SearchSettings, plan_in_new_process
    from cruise.decisions.packing.node_types import add_candidate_nodes
    from cruise.decisions.packing.problem import NO_USAGE, UsageInputs
    from cruise.domain.packing_plan import EvictionAllowance, PackingSizes
    from cruise.errors import pause_garbage_collection
    from cruise.runtime.packing.planning import PlanningInputs

    if sizes is PackingSizesName.RIGHTSIZED and usage is None:
        raise BadInputError("--sizes rightsized needs --usage FILE")
    if not consolidate and (max_evictions is not None or node_types is not None):
        given = "--max-evictions" if max_evictions is not None else "--node-types"
        raise BadInputError(f"{given} needs --consolidate")
    if consolidate and within_budgets:
        raise BadInputError("--within-budgets is not for --consolidate, which takes hours; use --max-evictions N")
    if time_limit is not None and work is not None:
        raise BadInputError("--time-limit and --work both end the search; write one of them")
    search = SearchSettings(
        _get_search_seconds(time_limit, config) if work is None else math.inf, work or math.inf, seed
    )
    policy, at = resolve_policy(config, ModeName.FULL), parse_time(now)
    if at is not None and usage is None:
        raise BadInputError("--now needs --usage FILE: it is the time of evaluation of the statistics")
    with pause_garbage_collection():
        cluster = load_snapshot_with_node_autoscaler(snapshot, policy.node_autoscaler)
        known = UsageInputs(*load_usage_of_snapshot(usage, cluster, at, policy)) if usage is not None else NO_USAGE
        candidate_nodes = None
        if consolidate:
            candidate_nodes = add_candidate_nodes(cluster, None if node_types is None else load_node_types(node_types))
            cluster = candidate_nodes.snapshot
        allowance = EvictionAllowance(total=max_evictions)
        sizes_name = sizes or (PackingSizesName.FIXED if usage is None else PackingSizesName.RIGHTSIZED)
        inputs = PlanningInputs(cluster, policy, known, allowance, PackingSizes(sizes_name.value), candidate_nodes)
        plan, seconds = plan_in_new_process(PackingRequest(inputs, search, within_budgets))
        shown = cluster if candidate_nodes is None else candidate_nodes.with_added_nodes(plan)
        _print(plan, seconds, shown, format, full, within_budgets)


def _get_search_seconds(time_limit: float | None, config: Path | None) -> float:
    """Return how long to search; BadInputError."""
    if time_limit is None:
        return load_process_settings(config).packing_time_limit.total_seconds()
    if not time_limit >= 0:
        raise BadInputError(
            f"--time-limit: {time_limit:g} is not a number of seconds; write e.g. 10, or 0 for the quick method"
        )
    return time_limit


def _print(
    proposal: "PackingProposal",
    seconds: float,
    snapshot: "ClusterSnapshot",
    format: OutputFormat,
    in_full: bool,
    within_budgets: bool,
) -> None:
    from cruise.interfaces.packing.descriptions import describe_note
    from cruise.interfaces.packing.document import render_pack_json
    from cruise.interfaces.packing.table import render_pack_table

    pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
    if format is OutputFormat.JSON:
        write_json(render_pack_json(proposal, pods, seconds, within_budgets=within_budgets))
        for note in proposal.notes:
            print_error(f"note: {describe_note(note)}")
        return
    console = create_table_console()
    console.print("Decided for mode full; nothing was contacted.\n")
    print_report(render_pack_table(proposal, snapshot, pods, seconds, console, in_full), console)
