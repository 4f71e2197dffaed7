"""Checks whether cruise can work in a cluster in a mode, and how much of it: facts in, items with fixes out."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from cruise.decisions.pod_policy.skip_reason_unlocks import UNLOCKS, EligibilityInputs
from cruise.decisions.preflight.objects import check_cluster_objects
from cruise.decisions.preflight.usage import check_kubelet_cross_check, check_kubelets, check_usage_sources
from cruise.decisions.scan.coverage import Coverage, CoverageGroup, estimate_coverage, sum_coverage
from cruise.decisions.scan.waste import list_pod_requests
from cruise.decisions.sizing.headroom_level import REPORTED_DAYS, ObservedRisk
from cruise.decisions.sizing.node_plans import SizingContext, decide_node_plans
from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Mode, Policy
from cruise.domain.preflight import (
    AccessFacts,
    CheckItem,
    CheckLevel,
    HelmRelease,
    PreflightFacts,
    RequiredAccess,
    ServerFacts,
    StoreFacts,
    WebhookFacts,
    format_install_command,
)
from cruise.domain.prices import ResourcePrices, format_money
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.rightsizing_policies import POLICY_GROUP
from cruise.domain.usage import StatisticsTable


def check_risks(risks: Mapping[ResourceName, ObservedRisk]) -> Iterator[CheckItem]:
    """Yield an item for each resource with a known observed risk."""
    for resource, risk in risks.items():
        if not risk.is_known:
            continue
        name = resource.display_name
        words = (
            f"demand for {name} exceeded the requests of a node's pods in {100 * risk.observed:.2g} % of "
            f"{risk.intervals:,} intervals of the last {REPORTED_DAYS} days, {100 * risk.stated_risk:.2g} % are allowed"
        )
        if risk.is_within_stated_risk:
            yield CheckItem("headroom", f"{name} risk", CheckLevel.OK, words)
        else:
            fix = "none needed now: headroom has increased; see docs/runbooks.md#cruiseheadroomriskexceeded"
            yield CheckItem("headroom", f"{name} risk", CheckLevel.WARN, words, fix)


_AREAS = ("cluster", "rights", "metrics", "database", "webhook", "headroom", "objects")
_EXPIRES_SOON = timedelta(days=3)
_MAX_NAMED = 4


def decide_preflight(
    found: PreflightFacts, mode: Mode, now: datetime, risks: Mapping[ResourceName, ObservedRisk] = MappingProxyType({})
) -> list[CheckItem]:
    """Check cluster and installation for a mode, and the observed `risks`; in the order in which to fix them."""
    items: list[CheckItem] = []
    if found.server is not None:
        items += _check_server(found.server, mode)
    items += _check_release(found.release)
    if found.access is not None:
        items.append(_check_access(found.access, mode, found.release))
        items += _check_policies(found.access, mode, found.release)
    if found.prometheus is not None:
        items += check_usage_sources(found.prometheus, found.snapshot, now, found.release)
    if found.kubelets is not None:
        items += check_kubelets(found.kubelets)
    if found.cross_check is not None:
        items.append(check_kubelet_cross_check(found.cross_check))
    if found.store is not None:
        items.append(_check_database(found.store, mode, found.release))
        items += _check_database_tls(found.store)
    if found.webhook is not None:
        items += _check_webhook(found.webhook, mode, now, found.release)
    items += check_risks(risks)
    if found.snapshot is not None:
        items += check_cluster_objects(found.snapshot, mode)
    if found.unreadable:
        fix = "fix them; until then they are ignored, and the pods that they refer to are skipped"
        words = f"{len(found.unreadable):,} cannot be read, such as {found.unreadable[0]}"
        items.append(CheckItem("objects", "readable", CheckLevel.WARN, words, fix))
    items += _list_problems(found)
    return sorted(items, key=lambda item: _AREAS.index(item.area))


def _check_server(facts: ServerFacts, mode: Mode) -> Iterator[CheckItem]:
    if facts.resizes_pods:
        yield CheckItem("cluster", "resize", CheckLevel.OK, f"{facts.version} resizes pods in place")
    else:
        level = CheckLevel.RED if mode >= Mode.RESIZE else CheckLevel.WARN
        fix = "upgrade to 1.33 or newer, or stay in mode initial: only new pods are sized"
        yield CheckItem("cluster", "resize", level, f"{facts.version} does not serve pods/resize", fix)
    if not facts.evicts_pods and mode >= Mode.FULL:
        fix = "stay in mode resize"
        yield CheckItem("cluster", "eviction", CheckLevel.RED, f"{facts.version} does not serve pods/eviction", fix)


def _check_release(release: HelmRelease | None) -> Iterator[CheckItem]:
    if release is not None:
        words = f"by Helm: release {release.name} in {release.namespace}"
        words += "; change a setting named in a fix by its value settings.NAME"
        yield CheckItem("cluster", "installed", CheckLevel.OK, words)


def _check_access(facts: AccessFacts, mode: Mode, release: HelmRelease | None) -> CheckItem:
    account = facts.account or "this account"
    if not facts.denied:
        return CheckItem(
            "rights", "RBAC", CheckLevel.OK, f"{account} may do all that `cruise serve` needs in mode {mode.label}"
        )
    denied = [str(need) for need in facts.denied]
    more = f" and {len(denied) - _MAX_NAMED} more" if len(denied) > _MAX_NAMED else ""
    words = f"{account} may not {', '.join(denied[:_MAX_NAMED])}{more}"
    files = [f"rbac/{one.label}.yaml" for one in Mode if Mode.OBSERVE <= one <= mode]
    command = format_install_command(release, files, f"mode={mode.label}", "rbac.create=true")
    fix = f"{command}; to check cruise's own account, run this command in its pod"
    return CheckItem("rights", "RBAC", CheckLevel.RED, words, fix)


def _check_policies(facts: AccessFacts, mode: Mode, release: HelmRelease | None) -> Iterator[CheckItem]:
    if facts.restricted_by_policy:
        yield CheckItem(
            "rights", "policies", CheckLevel.OK, "the API server limits cruise's accounts to their own writes"
        )
    elif facts.restricted_by_policy is False and mode <= Mode.OBSERVE:
        yield CheckItem(
            "rights", "policies", CheckLevel.OK, "no policy limits cruise's accounts, whose roles write nothing"
        )
    elif facts.restricted_by_policy is False:
        words = "no policy limits cruise's accounts: a stolen token may do everything that its roles grant"
        fix = format_install_command(release, ["policies.yaml"], "policies.enabled=true")
        yield CheckItem("rights", "policies", CheckLevel.WARN, words, fix)


def _check_database(facts: StoreFacts, mode: Mode, release: HelmRelease | None) -> CheckItem:
    if facts.problem:
        return CheckItem("database", "postgres", CheckLevel.RED, facts.problem, "set database_url to one that answers")
    if facts.is_embedded:
        words = f"{facts.location} {'exists' if facts.exists else 'is created at the first start'}"
        if mode <= Mode.OBSERVE:
            return CheckItem("database", "postgres", CheckLevel.OK, words)
        fix = "set database_url to one Postgres for `cruise serve` and `cruise webhook`; an embedded one is not shared"
        if release is not None:
            fix = "run this in the pod of serve: from mode initial on the chart installs Postgres, or uses database.url"
        return CheckItem("database", "postgres", CheckLevel.WARN, words, fix)
    if facts.revision is None:
        return CheckItem(
            "database", "postgres", CheckLevel.OK, f"{facts.location} answers; its tables are created at the start"
        )
    if facts.revision == facts.expected_revision:
        return CheckItem("database", "postgres", CheckLevel.OK, f"{facts.location} answers, schema {facts.revision}")
    words = f"{facts.location} answers; its schema has revision {facts.revision}"
    words += f", this version needs {facts.expected_revision}"
    fix = "nothing: the next start of serve migrates it, or run `cruise migrate` if another role owns the schema"
    return CheckItem("database", "postgres", CheckLevel.WARN, words, fix)


def _check_database_tls(facts: StoreFacts) -> Iterator[CheckItem]:
    if not facts.is_server_verified:
        words = f"the certificate of {facts.location} is not verified, and it receives the password"
        fix = "add ?sslmode=verify-full&sslrootcert=FILE to database_url"
        yield CheckItem("database", "TLS", CheckLevel.WARN, words, fix)


def _check_webhook(facts: WebhookFacts, mode: Mode, now: datetime, release: HelmRelease | None) -> Iterator[CheckItem]:
    wanted = mode >= Mode.INITIAL
    if not facts.present:
        if wanted:
            words = "no MutatingWebhookConfiguration: new pods are created unchanged"
            fix = format_install_command(
                release, ["webhook.yaml", "certificates.yaml", "rbac/initial.yaml"], f"mode={mode.label}"
            )
            yield CheckItem("webhook", "registration", CheckLevel.RED, words, fix)
        else:
            yield CheckItem("webhook", "registration", CheckLevel.OK, f"not registered; mode {mode.label} needs none")
        return
    yield CheckItem("webhook", "registration", CheckLevel.OK, "the MutatingWebhookConfiguration exists")
    if not facts.fails_open:
        fix = "set failurePolicy: Ignore; otherwise no pod is created while the webhook is down"
        yield CheckItem("webhook", "fails open", CheckLevel.RED, "failurePolicy is not Ignore", fix)
    yield _check_certificate(facts, now)
    words = "the webhook answers any client; with webhook_client_ca_file, only the API server"
    if facts.verifies_clients:
        words = "the webhook answers clients with a certificate of webhook_client_ca_file"
    yield CheckItem("webhook", "callers", CheckLevel.OK, words)


def _check_certificate(facts: WebhookFacts, now: datetime) -> CheckItem:
    restart = "see the log of `cruise certificates`, which creates the certificate and publishes its CA"
    if not facts.published:
        return CheckItem("webhook", "certificate", CheckLevel.RED, "no caBundle is published: all calls fail", restart)
    if facts.trusts_certificate is None:
        words = "a caBundle is published; the certificate itself cannot be read from here"
        return CheckItem("webhook", "certificate", CheckLevel.OK, words)
    if not facts.trusts_certificate:
        words = "the caBundle does not match the certificate in use: all calls fail"
        return CheckItem("webhook", "certificate", CheckLevel.RED, words, restart)
    if facts.expires_at is not None and facts.expires_at - now <= _EXPIRES_SOON:
        words = f"the certificate expires at {facts.expires_at:%Y-%m-%d %H:%M} UTC"
        level = CheckLevel.RED if facts.expires_at <= now else CheckLevel.WARN
        return CheckItem("webhook", "certificate", level, words, restart)
    return CheckItem("webhook", "certificate", CheckLevel.OK, "the caBundle matches the certificate in use")


def _list_problems(found: PreflightFacts) -> Iterator[CheckItem]:
    for area, name, problem in found.problems:
        # Without these nothing works; other areas only could not be checked.
        if area in ("cluster", "metrics", "database"):
            yield CheckItem(area, name, CheckLevel.RED, problem, "fix this first: what depends on it was not checked")
        else:
            fix = "run `cruise check` with an account that has access, such as your own"
            yield CheckItem(area, name, CheckLevel.WARN, f"not checked: {problem}", fix)


# The access that each mode needs: the rules of deploy/rbac, one by one.
READ_VERBS = ("get", "list", "watch")
LEASE_RULE = "cruise-serve"
POLICY_RULES = "cruise-accounts"
_POLICY_PLURALS = ("rightsizingpolicies", "clusterrightsizingpolicies")
_READ = (
    ("", "pods"),
    ("", "nodes"),
    ("", "namespaces"),
    ("", "limitranges"),
    ("", "resourcequotas"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "volumeattachments"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("apps", "replicasets"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("apps.kruise.io", "clonesets"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("autoscaling.k8s.io", "verticalpodautoscalers"),
    *((POLICY_GROUP, plural) for plural in _POLICY_PLURALS),
    ("policy", "poddisruptionbudgets"),
    ("karpenter.sh", "nodepools"),
    ("karpenter.sh", "nodeclaims"),
)
# The status of cluster-autoscaler.
_STATUS = RequiredAccess("get", "configmaps", "", "", "kube-system", "cluster-autoscaler-status")


def list_required_access(mode: Mode, namespace: str, *, reviews_callers: bool = False) -> tuple[RequiredAccess, ...]:
    """Return the access that `cruise serve` needs in a mode; `namespace` is its own.

    With `reviews_callers` it asks the API server to authenticate the clients of its API.
    """
    needs = [RequiredAccess(verb, resource, group) for group, resource in _READ for verb in READ_VERBS]
    needs.append(_STATUS)
    # An autoscaler's target may have any kind.
    needs.append(RequiredAccess("get", "*", "*", "scale"))
    if reviews_callers:
        needs.append(RequiredAccess("create", "tokenreviews", "authentication.k8s.io"))
        needs.append(RequiredAccess("create", "subjectaccessreviews", "authorization.k8s.io"))
    if mode >= Mode.RESIZE:
        lease = [
            RequiredAccess(verb, "leases", "coordination.k8s.io", "", namespace, LEASE_RULE)
            for verb in ("get", "update")
        ]
        needs += [RequiredAccess("patch", "pods", "", "resize"), RequiredAccess("create", "events"), *lease]
        needs.append(RequiredAccess("create", "leases", "coordination.k8s.io", "", namespace))
        needs += [RequiredAccess("patch", plural, POLICY_GROUP, "status") for plural in _POLICY_PLURALS]
    if mode >= Mode.FULL:
        needs += [RequiredAccess("create", "pods", "", "eviction"), RequiredAccess("patch", "nodes")]
    return tuple(needs)


_AREA = "coverage"
_MAX_REASONS = 6


def check_coverage(
    snapshot: ClusterSnapshot,
    policy: Policy,
    now: datetime,
    statistics: StatisticsTable | None = None,
    prices: ResourcePrices | None = None,
) -> Iterator[CheckItem]:
    """Yield the share of the requests that is sized, and the reasons with the largest shares of the others.

    With fresh statistics each has what is reclaimable, and its monthly cost if prices are known. Without them the first
    item is what can be sized once usage is known.
    """
    oldest = int((now - policy.max_age).timestamp())
    is_used = statistics is not None and bool((statistics.updated_at >= oldest).any())
    table = statistics if statistics is not None and is_used else StatisticsTable.from_rows(())
    policy = policy.planning_policy
    plans = decide_node_plans(snapshot, table, policy, now) if is_used else ()
    pods = list_pod_requests(snapshot, plans)
    if not pods:
        return
    inputs = EligibilityInputs(snapshot, {}, policy)
    found = sum_coverage(estimate_coverage(inputs, table, now, pods, SizingContext()).values())
    yield _describe_sized(found, prices) if is_used else _describe_sizable(found)
    hidden = () if is_used else (ReasonCode.NO_STATISTICS,)
    for reason in [one for one in found.skipped if one not in hidden][:_MAX_REASONS]:
        group = found.skipped[reason]
        pods_of_reason = f"{group.pods:,} pod{'' if group.pods == 1 else 's'}"
        finding = f"{pods_of_reason}: {_describe_amounts(group.requested)} are skipped"
        if any(group.is_known(one) and group.requested.get(one) for one in ResourceName) and is_used:
            finding += f"; without the reason, {_describe_reclaimable(group, prices)}"
        yield CheckItem(_AREA, reason.value, CheckLevel.OK, finding, UNLOCKS[reason].description)


def _describe_sized(found: Coverage, prices: ResourcePrices | None) -> CheckItem:
    words = f"{_describe_shares(found.sized, found)} are sized; {_describe_reclaimable(found.sized, prices)}"
    return CheckItem(_AREA, "requests", CheckLevel.OK, words, "cruise scan lists what is reclaimable by workload")


def _describe_sizable(found: Coverage) -> CheckItem:
    # Without statistics this is the only reason of the pods that can be sized.
    sizable = found.skipped.get(ReasonCode.NO_STATISTICS, CoverageGroup())
    words = f"{_describe_shares(sizable, found)} can be sized once usage is known"
    return CheckItem(_AREA, "requests", CheckLevel.OK, words, "cruise scan shows what each reason below costs")


def _describe_shares(group: CoverageGroup, found: Coverage) -> str:
    return " and ".join(
        f"{100 * group.requested.get(one) / max(1, found.requested.get(one)):.0f} % of the requested {name}"
        for one, name in ((ResourceName.CPU, "CPU"), (ResourceName.MEMORY, "memory"))
    )


def _describe_reclaimable(group: CoverageGroup, prices: ResourcePrices | None) -> str:
    amounts = group.reclaimable
    words = f"{_describe_amounts(amounts)} are reclaimable"
    if prices is None:
        return words
    return f"{words}, about {format_money(prices.compute_monthly_cost(amounts), prices.currency)} a month"


def _describe_amounts(amounts: Resources) -> str:
    return f"{amounts.cpu_millicores / 1000:,.2f} cores and {amounts.memory_bytes / (1 << 30):,.2f} GiB"
