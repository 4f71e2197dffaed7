"""Settings of decisions: mode, budgets, packing, sizing, and prices."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cruise.domain.backtest import ObjectivePrices
from cruise.domain.namespace_patterns import check_namespace_pattern
from cruise.domain.policy import (
    PROTECTED_NAMESPACES,
    AdmissionSize,
    BestEffortPolicy,
    ConsolidationMode,
    CpuLimitPolicy,
    EnabledRules,
    GuaranteedPolicy,
    HeapBoundPolicy,
    HpaPolicy,
    MemoryLimitPolicy,
    Mode,
    NodeAutoscalerSetting,
    OomReaction,
    Policy,
    StartupPolicy,
)
from cruise.domain.prices import DOLLAR
from cruise.domain.resources import quote_text
from cruise.domain.scheduling import LabelSelector
from cruise.domain.users import NotificationTopic
from cruise.errors import BadInputError
from cruise.kube_json.objects.scheduling import parse_selector
from cruise.settings.value_types import (
    ADMISSION_SIZE_CHOICE,
    BEST_EFFORT_CHOICE,
    CONSOLIDATION_CHOICE,
    CPU_LIMITS_CHOICE,
    CURRENCY,
    FLAG,
    GUARANTEED_CHOICE,
    HEADROOM_CHOICE,
    HEAP_BOUNDS_CHOICE,
    HPA_CHOICE,
    MEMORY_LIMITS_CHOICE,
    MODE_CHOICE,
    NODE_AUTOSCALER_CHOICE,
    NOTIFY_FORMAT_CHOICE,
    NOTIFY_TOPICS_CHOICE,
    OOM_REACTION_CHOICE,
    PATH,
    PRICES_BY_NAME,
    PUBLISH_VPAS_CHOICE,
    RULES_CHOICE,
    STARTUP_CHOICE,
    TEXT,
    InvalidValueError,
    NotifyFormat,
    ValueType,
    VpaPublishing,
    create_bounded_type,
    create_choice_type,
    create_count_type,
    create_duration_type,
    create_number_type,
    create_price_type,
    create_setting,
    parse_names,
)

_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)


def create_excluded_namespaces_type(protected: frozenset[str]) -> ValueType:
    """Names and patterns of namespaces, added to the `protected` ones; `!NAME` removes one of these."""

    def read(value: object) -> frozenset[str]:
        stated = parse_names(value)
        removed = {name[1:] for name in stated if name.startswith("!")}
        for name in sorted(removed - protected):
            raise InvalidValueError(
                f'"!{name}" removes nothing: only {", ".join(sorted(protected))} are excluded by default'
            )
        added = [name for name in stated if not name.startswith("!")]
        return (protected - removed) | _read_namespace_patterns(added)

    return ValueType("a list of namespaces or patterns of their names", "monitoring,openshift-*", read)


def _read_namespace_patterns(value: object) -> frozenset[str]:
    names = parse_names(value)
    for name in sorted(names):
        try:
            check_namespace_pattern(name)
        except ValueError as error:
            raise InvalidValueError(str(error)) from error
    return names


def _read_namespace_selector(value: object) -> LabelSelector:
    text = str(TEXT.read(value))
    try:
        selector = parse_selector(text)
    except BadInputError as error:
        raise InvalidValueError(str(error)) from error
    for one in selector.requirements:
        if not _LABEL_KEY.fullmatch(one.key) or not all(map(_LABEL_VALUE.fullmatch, one.values)):
            raise InvalidValueError(
                f"{quote_text(text)} matches no namespace: {quote_text(one.key)} can have no such label"
            )
    return selector


NAMESPACE_PATTERNS = ValueType(
    "a list of namespaces or patterns of their names", "payments,team-*", _read_namespace_patterns
)
NAMESPACE_SELECTOR = ValueType("a label selector of namespaces", "team=payments,tier!=test", _read_namespace_selector)


_POLICY = Policy()
_PRICES = ObjectivePrices()
_TIMEOUT = create_duration_type("1h", "30s")
_PASS = create_duration_type("1d")
_PAUSE = create_duration_type("366d", minimum=timedelta(0))
_NOTIFY_INTERVAL = create_duration_type("1d", "1m", minimum=timedelta(seconds=5))
_DAYS = create_duration_type("30d")
_WRITES = create_number_type("a number from 1 to 300", "6", lambda found: 1 <= found <= 300)
_LOG_FORMAT = create_choice_type("a log format", [(name, name) for name in ("auto", "json", "text")])
_LOG_LEVEL = create_choice_type("a log level", [(name, name) for name in ("debug", "info", "warning", "error")])


@dataclass(frozen=True)
class ActionOptions:
    """What cruise may do."""

    mode: Mode = create_setting(MODE_CHOICE, _POLICY.mode)
    """What cruise may do: `observe` writes nothing, `initial` sizes new pods, `resize` also running ones, `full` also
    evicts and taints. Annotations may lower it, never raise it."""
    excluded_namespaces: frozenset[str] = create_setting(
        create_excluded_namespaces_type(PROTECTED_NAMESPACES), _POLICY.excluded_namespaces
    )
    """Namespaces whose pods are skipped, by name or by a pattern such as `openshift-*`. They are added to the default
    and to cruise's own namespace; `!kube-system` removes one of the default."""
    included_namespaces: frozenset[str] = create_setting(NAMESPACE_PATTERNS, _POLICY.included_namespaces)
    """The only namespaces whose pods are sized, by name or pattern; unset: all. Excluded ones stay excluded. See
    [namespaces](../operating.md#which-namespaces)."""
    namespace_selector: LabelSelector | None = create_setting(NAMESPACE_SELECTOR, _POLICY.namespace_selector)
    """Only pods of namespaces with such labels are sized, as `kubectl get namespaces --selector` selects them; unset:
    all."""
    rules: EnabledRules = create_setting(RULES_CHOICE, _POLICY.rules)
    """`seeds` uses the rules of the first design, for comparison."""
    max_evictions_per_node: int = create_setting(create_count_type("1"), _POLICY.max_evictions_per_node)
    """Evictions per node in one pass, and in one packing plan; pods that were killed for lack of memory do not wait for
    others of their node, unless it is 0."""
    max_evictions_per_workload: int = create_setting(create_count_type("1"), _POLICY.max_evictions_per_workload)
    """Evictions per workload in one pass, and in one packing plan."""
    max_evictions_per_hour: int = create_setting(create_count_type("20"), _POLICY.max_evictions_per_hour)
    """Evictions in the whole cluster in any hour, counted across restarts."""
    oom_reaction: OomReaction = create_setting(OOM_REACTION_CHOICE, _POLICY.oom_reaction)
    """What follows an OOM kill: resize in place and evict if that is not possible, evict, or only record it."""
    oom_cooldown: timedelta = create_setting(create_duration_type("1d", minimum=timedelta(0)), _POLICY.oom_cooldown)
    """How long a pod is skipped after cruise reacted to an OOM kill."""
    allow_extended_resources: bool = create_setting(FLAG, _POLICY.allow_extended_resources)
    """Size CPU and memory of pods with GPUs and other extended resources; the devices do not change."""
    hpa: HpaPolicy = create_setting(HPA_CHOICE, _POLICY.hpa)
    """Requests on whose utilization an HPA acts: `within-target` changes them only as far as the HPA wants the same
    number of replicas, `hold` never."""
    guaranteed: GuaranteedPolicy = create_setting(GUARANTEED_CHOICE, _POLICY.guaranteed)
    """Pods of QoS class Guaranteed: `keep` does not change them; `resize` sizes them by the largest use of their
    history, with requests equal to limits. See [Guaranteed pods](../operating.md#guaranteed-pods)."""
    best_effort: BestEffortPolicy = create_setting(BEST_EFFORT_CHOICE, _POLICY.best_effort)
    """New pods without any requests (QoS class BestEffort): `keep` creates them unchanged; `adopt` gives them requests
    by their usage, and so QoS class Burstable. See [pods without requests](../operating.md#pods-without-requests)."""
    startup: StartupPolicy = create_setting(STARTUP_CHOICE, _POLICY.startup)
    """The CPU of new pods until they have been ready for 30 seconds: `learn` requests what earlier starts of the
    workload used, if it is more than their size; `off` their size. See [slow starts](../operating.md#slow-starts)."""
    publish_vpas: VpaPublishing = create_setting(PUBLISH_VPAS_CHOICE, VpaPublishing.NONE)
    """From mode `resize` on: publish targets as VerticalPodAutoscalers with this update mode; needs
    `rbac/publish.yaml`. With `initial`, VPA's admission controller would apply them if it runs."""
    notify_url: str | None = create_setting(
        ValueType("an address", "https://hooks.example.com/…", TEXT.read, secret=True), None
    )
    """Where notifications are posted, with https (http only on this machine); it may contain a secret."""
    notify_url_file: Path | None = create_setting(PATH, None)
    """A file with that address."""
    notify_secret_file: Path | None = create_setting(PATH, None)
    """A file with the secret that signs notifications, at least 16 characters."""
    notify_format: NotifyFormat = create_setting(NOTIFY_FORMAT_CHOICE, NotifyFormat.GENERIC)
    """The receiver of notifications: a program that reads cruise's own document, Slack or Teams."""
    notify_topics: frozenset[NotificationTopic] = create_setting(NOTIFY_TOPICS_CHOICE, frozenset(NotificationTopic))
    """The events that are notified."""
    notify_interval: timedelta = create_setting(_NOTIFY_INTERVAL, timedelta(minutes=1))
    """The least time between two notifications; events in between are grouped."""
    packing_enabled: bool = create_setting(FLAG, True)
    """Carry out plans for pods that stay pending; `false` only shows them."""
    packing_time_limit: timedelta = create_setting(_TIMEOUT, timedelta(seconds=10))
    """How long to search for such a plan; then the best one is used, with its distance from the proved bound."""
    consolidation: ConsolidationMode = create_setting(CONSOLIDATION_CHOICE, ConsolidationMode.ADVISE)
    """Whether to drain nodes that are not needed: `advise` only shows the plan, `act` also moves pods in mode `full`,
    `off` does not compute it."""
    consolidation_interval: timedelta = create_setting(_DAYS, timedelta(minutes=30))
    """How often consolidation is computed; at each node pass while pods are moved."""
    consolidation_cooldown: timedelta = create_setting(_PAUSE, timedelta(hours=4))
    """Consolidation moves no younger pod, so none twice in that time."""
    node_autoscaler: NodeAutoscalerSetting = create_setting(NODE_AUTOSCALER_CHOICE, _POLICY.node_autoscaler)
    """The program that adds and removes nodes; set it if cruise detects the wrong one."""
    overload_taint_threshold: float = create_setting(create_bounded_type(50, "1.0"), _POLICY.overload_taint_threshold)
    """Load average per core above which a node is tainted, in two consecutive samples."""
    overload_untaint_threshold: float = create_setting(
        create_bounded_type(50, "0.9"), _POLICY.overload_untaint_threshold
    )
    """Load average per core below which the taint is removed, in two consecutive samples."""


@dataclass(frozen=True)
class SizingOptions:
    """How pods are sized."""

    pass_interval: timedelta = create_setting(_PASS, _POLICY.pass_interval)
    """How often nodes are sized."""
    node_load_interval: timedelta = create_setting(_PASS, _POLICY.node_load_interval)
    """How often the load average of nodes is read."""
    max_age: timedelta = create_setting(_PASS, _POLICY.max_age)
    """Older statistics change nothing."""
    max_decision_age: timedelta = create_setting(_PASS, _POLICY.max_decision_age)
    """A decision with an older snapshot is not written; the next pass decides again."""
    look_ahead: timedelta = create_setting(create_duration_type("1d", minimum=timedelta(0)), _POLICY.look_ahead)
    """A pod's peak is the largest of this hour of the day and of the hour that begins within this time, over seven
    days."""
    new_workload_age: timedelta = create_setting(_PAUSE, _POLICY.new_workload_age)
    """How long a new workload is skipped, and how long pods of a changed template get at least what it states."""
    memory_limits: MemoryLimitPolicy = create_setting(MEMORY_LIMITS_CHOICE, _POLICY.memory_limits)
    """Which memory limits are changed: `existing`, those that the pod states; `always`, also containers without one;
    `never`, none, unless the request must exceed it. See [memory limits](../operating.md#memory-limits)."""
    heap_bounds: HeapBoundPolicy = create_setting(HEAP_BOUNDS_CHOICE, _POLICY.heap_bounds)
    """What is not cut below the bound of a JVM, Go, Node.js or .NET heap and its overhead: `keep`, memory requests and
    limits; `limits`, only limits; `ignore`, nothing. See [heaps](../operating.md#heaps)."""
    cpu_limits: CpuLimitPolicy = create_setting(CPU_LIMITS_CHOICE, _POLICY.cpu_limits)
    """What happens to CPU limits: `keep`, none changes, and no request exceeds one; `raise`, a limit near the peak is
    increased; `remove-at-creation`, new pods have none, and those of running pods rise to the node's capacity. See
    [CPU limits](../operating.md#cpu-limits)."""
    memory_limit_history: timedelta = create_setting(_PAUSE, _POLICY.memory_limit_history)
    """No memory limit is decreased on a shorter history."""
    memory_limit_ceiling: float = create_setting(create_bounded_type(100, "2", minimum=1), _POLICY.memory_limit_ceiling)
    """The maximum of a memory limit, as a multiple of the pod template's."""
    deferred_resize_timeout: timedelta = create_setting(_PASS, _POLICY.deferred_resize_timeout)
    """How long a resize may stay Deferred before it is withdrawn."""
    admission_size: AdmissionSize | None = create_setting(ADMISSION_SIZE_CHOICE, _POLICY.admission_size)
    """What new pods request: their workload's peaks, or what a node pass would give them. Unset: `planned` if a node
    autoscaler runs, else `peak`."""
    headroom: str = create_setting(HEADROOM_CHOICE, _POLICY.headroom)
    """The model of the headroom that the pods of a node share: [models](../backtest.md#headroom-models)."""
    cpu_risk: float = create_setting(create_bounded_type(0.5, "0.05"), _POLICY.cpu_risk)
    """With model `risk`: the share of a node's intervals in which demand for CPU may exceed what its pods request."""
    memory_risk: float = create_setting(create_bounded_type(0.5, "0.01"), _POLICY.memory_risk)
    """The same for memory."""
    cpu_tolerance: float = create_setting(create_bounded_type(1, "0.15"), _POLICY.cpu_tolerance)
    """How far the CPU requests of a node's pods may exceed what they need together, as a share of it."""
    memory_tolerance: float = create_setting(create_bounded_type(1, "0.15"), _POLICY.memory_tolerance)
    """The same for memory."""
    over_requested_stabilization: timedelta = create_setting(_PAUSE, _POLICY.over_requested_stabilization)
    """How long a node must be above the tolerance before its most idle pods are shrunk. Pods that still request what
    their owners asked for are shrunk at once."""
    under_requested_stabilization: timedelta = create_setting(_PAUSE, _POLICY.under_requested_stabilization)
    """How long a container's base must be above its request before the request is increased for that alone."""
    resizes_per_container_day: float = create_setting(_WRITES, _POLICY.resizes_per_container_day)
    """The budget of writes: resizes per container and day, as an average of the cluster. While the cluster exceeds it,
    pods with more are not shrunk."""
    shrink_cooldown: timedelta | None = create_setting(_PAUSE, _POLICY.shrink_cooldown)
    """How long a request is not decreased after it was written; it is increased at any time. Unset: a day divided by
    twice `resizes_per_container_day`."""


@dataclass(frozen=True)
class LogAndPriceOptions:
    """Logs and prices."""

    log_level: str = create_setting(_LOG_LEVEL, "info")
    """The lowest level that is logged."""
    log_format: str = create_setting(_LOG_FORMAT, "auto")
    """`auto`: text on a terminal, JSON elsewhere."""
    price_core_hour: float | None = create_setting(create_price_type("0.0145"), None)
    """The price of a core-hour. With `price_gibibyte_hour`, the dashboard and the API show what is saved and
    reclaimable in money, `cruise scan` uses it, and `cruise backtest` adds the cost of nodes. Unset: the dashboard
    shows cores and GiB, scans and backtests use 0.0145. See [money](../operating.md#money)."""
    price_gibibyte_hour: float | None = create_setting(create_price_type("0.00724"), None)
    """The same for a GiB-hour of memory. Unset: 0.00724."""
    node_prices: Mapping[str, float] | None = create_setting(PRICES_BY_NAME, None)
    """The price of an hour of a node, by its label `node.kubernetes.io/instance-type`, with
    `/spot` after it for spot nodes (without such a price they have that of the type). Money is then
    computed with the average price of the nodes' core-hours and GiB-hours. See [money](../operating.md#money)."""
    currency: str = create_setting(CURRENCY, DOLLAR)
    """The currency of all prices, written before amounts: a sign such as `€`, or letters such as `EUR`. Nothing is
    converted: state the prices in it, also those of the cost of a policy, whose defaults are in dollars."""
    price_starved_minute: float = create_setting(create_price_type("0.01"), _PRICES.starved_minute)
    """The price of a minute in which a container gets less CPU than it requests, in `cruise backtest`."""
    price_oom_kill: float = create_setting(create_price_type("1"), _PRICES.oom_kill)
    """The price of an OOM kill, in `cruise backtest`."""
    price_eviction: float = create_setting(create_price_type("0.05"), _PRICES.eviction)
    """The price of an eviction by the policy, in `cruise backtest`."""
    price_resize: float = create_setting(create_price_type("0.0002"), _PRICES.resize)
    """The price of a resize, in `cruise backtest`."""
