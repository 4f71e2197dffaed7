"""`cruise plan`: node plans from files."""

from typing import TYPE_CHECKING, Annotated

from cruise.cli.options import (
    ConfigOption,
    FormatOption,
    ModeName,
    ModeOption,
    NowOption,
    OutputFormat,
    RulesOption,
    SnapshotOption,
    UsageOption,
    create_option_without_default,
    parse_time,
    resolve_policy,
)
from cruise.cli.terminal import create_table_console, print_report, show_spinner, write_json
from cruise.errors import BadInputError
from cruise.interfaces.text import suggest_similar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from cruise.decisions.sizing.node_plans import NodePlan
    from cruise.domain.cluster import ClusterSnapshot
    from cruise.domain.policy import Mode


def plan(
    snapshot: SnapshotOption,
    usage: UsageOption,
    now: NowOption = None,
    node: Annotated[
        list[str] | None,
        create_option_without_default("--node", "NAME", "Only this node, every container; repeatable."),
    ] = None,
    mode: ModeOption = ModeName.FULL,
    rules: RulesOption = None,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Plan every node from files: the target of each container, evictions, and skipped pods.

    Nothing is contacted and nothing is changed. A snapshot shows one moment; the plan assumes that a shortage in it has
    lasted for a pass, after which the controller evicts.

    The snapshot is the output of:

      kubectl get no,po,rs,deploy,sts,ds,job,cj,pdb,hpa,limits,quota,ns -Ao json

    Examples:
      cruise plan --snapshot cluster.json --usage usage.json

      cruise plan --snapshot cluster.json --usage usage.json --node worker-3

      cruise plan --snapshot cluster.json --usage usage.json --format json
    """
    from cruise.cli.inputs.sources import is_large_file, load_snapshot_with_node_autoscaler, load_usage_of_snapshot
    from cruise.decisions.admission.replacement_pods import predict_replacement_pods
    from cruise.decisions.sizing.node_plans import decide_node_plans
    from cruise.errors import pause_garbage_collection
    from cruise.interfaces.plan_document import render_plan_json

    policy, at = resolve_policy(config, mode, rules), parse_time(now)
    with pause_garbage_collection():
        cluster = load_snapshot_with_node_autoscaler(snapshot, policy.node_autoscaler)
        nodes = _select_nodes(node, cluster)
        statistics, at = load_usage_of_snapshot(usage, cluster, at, policy)
        with show_spinner(f"deciding {len(cluster.nodes):,} nodes", is_large_file(snapshot)):
            # All nodes, because an evicted pod may use capacity that another node's pod needs.
            plans = decide_node_plans(cluster, statistics, policy, at, replacements=predict_replacement_pods)
        if nodes is not None:
            plans = [one for one in plans if one.node in nodes]
        if format is OutputFormat.JSON:
            write_json(render_plan_json(plans))
        else:
            _print_table(plans, cluster, nodes is not None, at, policy.mode)


def _print_table(
    plans: "Sequence[NodePlan]", snapshot: "ClusterSnapshot", in_full: bool, at: "datetime", mode: "Mode"
) -> None:
    from cruise.decisions.usage.oom_records import find_relevant_oom_kills
    from cruise.interfaces.plan_table import render_node_plan, render_plan_table

    console = create_table_console()
    console.print(f"Decided for {at:%Y-%m-%d %H:%M:%S} UTC, mode {mode.label}; nothing was contacted.\n")
    pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
    print_report(render_plan_table(plans, pods, console, in_full), console)
    if in_full:
        killed = {(kill.namespace, kill.pod) for kill in find_relevant_oom_kills(snapshot, at)}
        for plan in plans:
            print_report(render_node_plan(plan, pods, killed), console)


def _select_nodes(names: list[str] | None, snapshot: "ClusterSnapshot") -> frozenset[str] | None:
    """Return the nodes to plan, None for all; BadInputError for an unknown one."""
    if not names:
        return None
    known = {node.name for node in snapshot.nodes}
    for name in names:
        if name not in known:
            raise BadInputError(f"--node: the snapshot has no node {name}{suggest_similar(name, sorted(known))}")
    return frozenset(names)
