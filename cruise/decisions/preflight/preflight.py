"""Whether cruise can work here in its mode: facts in, a list of items with their fixes out."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from cruise.decisions.preflight.items import CheckItem, CheckLevel, format_install_command
from cruise.decisions.preflight.objects import check_objects
from cruise.decisions.preflight.usage import check_cross_check, check_kubelets, check_usage
from cruise.decisions.sizing.risk_level import REPORTED_DAYS, ObservedRisk
from cruise.domain.policy import Mode
from cruise.domain.preflight import (
    AccessFacts,
    HelmRelease,
    PreflightFacts,
    RequiredAccess,
    ServerFacts,
    StoreFacts,
    WebhookFacts,
)
from cruise.domain.resources import ResourceName

# Whether nodes' demand lately kept to the stated risks.

_NAMES = {ResourceName.CPU: "CPU", ResourceName.MEMORY: "memory"}


def check_risks(risks: Mapping[ResourceName, ObservedRisk]) -> Iterator[CheckItem]:
    """Yield an item for each resource of which something was seen."""
    for resource, risk in risks.items():
        if not risk.is_known:
            continue
        name = _NAMES[resource]
        words = (
            f"demand for {name} passed the requests of a node's pods in {100 * risk.observed:.2g} % of "
            f"{risk.intervals:,} intervals of the last {REPORTED_DAYS} days, {100 * risk.stated_risk:.2g} % are allowed"
        )
        if risk.is_within_stated_risk:
            yield CheckItem("headroom", f"{name} risk", CheckLevel.OK, words)
        else:
            fix = "none is needed at once: nodes keep more by now; see docs/runbooks.md#cruiseheadroomriskexceeded"
            yield CheckItem("headroom", f"{name} risk", CheckLevel.WARN, words, fix)


_AREAS = ("cluster", "rights", "metrics", "database", "webhook", "headroom", "objects")
_SOON = timedelta(days=3)
_MOST_NAMED = 4


def decide_preflight(
    found: PreflightFacts, mode: Mode, now: datetime, risks: Mapping[ResourceName, ObservedRisk] = MappingProxyType({})
) -> list[CheckItem]:
    """Judge the surroundings for a mode, and how `risks` of headroom were kept; in the order of mending."""
    items: list[CheckItem] = []
    if found.server is not None:
        items += _server(found.server, mode)
    items += _release(found.release)
    if found.access is not None:
        items.append(_access(found.access, mode, found.release))
        items += _held(found.access, mode, found.release)
    if found.prometheus is not None:
        items += check_usage(found.prometheus, found.snapshot, now, found.release)
    if found.kubelets is not None:
        items += check_kubelets(found.kubelets)
    if found.cross_check is not None:
        items.append(check_cross_check(found.cross_check))
    if found.store is not None:
        items.append(_store(found.store, mode, found.release))
        items += _verified(found.store)
    if found.webhook is not None:
        items += _webhook(found.webhook, mode, now, found.release)
    items += check_risks(risks)
    if found.snapshot is not None:
        items += check_objects(found.snapshot, mode)
    if found.unreadable:
        fix = "mend them: until then they are left aside, and what they are about is left alone"
        words = f"{len(found.unreadable):,} cannot be read, such as {found.unreadable[0]}"
        items.append(CheckItem("objects", "readable", CheckLevel.WARN, words, fix))
    items += _problems(found)
    return sorted(items, key=lambda item: _AREAS.index(item.area))


def _server(facts: ServerFacts, mode: Mode) -> Iterator[CheckItem]:
    if facts.resizes_pods:
        yield CheckItem("cluster", "resize", CheckLevel.OK, f"{facts.version} resizes pods in place")
    else:
        level = CheckLevel.RED if mode >= Mode.RESIZE else CheckLevel.WARN
        fix = "upgrade to 1.33 or newer, or stay in mode initial: only pods that are created are sized"
        yield CheckItem("cluster", "resize", level, f"{facts.version} does not serve pods/resize", fix)
    if not facts.evicts_pods and mode >= Mode.FULL:
        fix = "stay in mode resize"
        yield CheckItem("cluster", "eviction", CheckLevel.RED, f"{facts.version} does not serve pods/eviction", fix)


def _release(release: HelmRelease | None) -> Iterator[CheckItem]:
    if release is not None:
        words = f"by Helm: release {release.name} in {release.namespace}"
        words += "; a setting that a fix names is its value settings.NAME"
        yield CheckItem("cluster", "installed", CheckLevel.OK, words)


def _access(facts: AccessFacts, mode: Mode, release: HelmRelease | None) -> CheckItem:
    account = facts.account or "this account"
    if not facts.denied:
        return CheckItem(
            "rights", "RBAC", CheckLevel.OK, f"{account} may do all that `cruise serve` needs in mode {mode.label}"
        )
    denied = [str(need) for need in facts.denied]
    more = f" and {len(denied) - _MOST_NAMED} more" if len(denied) > _MOST_NAMED else ""
    words = f"{account} may not {', '.join(denied[:_MOST_NAMED])}{more}"
    files = [f"rbac/{one.label}.yaml" for one in Mode if Mode.OBSERVE <= one <= mode]
    command = format_install_command(release, files, f"mode={mode.label}", "rbac.create=true")
    fix = f"{command}; to see what cruise's own account may, run this in its pod"
    return CheckItem("rights", "RBAC", CheckLevel.RED, words, fix)


def _held(facts: AccessFacts, mode: Mode, release: HelmRelease | None) -> Iterator[CheckItem]:
    if facts.restricted_by_policy:
        yield CheckItem(
            "rights", "policies", CheckLevel.OK, "the API server holds cruise's accounts to their own writes"
        )
    elif facts.restricted_by_policy is False and mode <= Mode.OBSERVE:
        yield CheckItem(
            "rights", "policies", CheckLevel.OK, "no policy holds cruise's accounts, whose roles write nothing"
        )
    elif facts.restricted_by_policy is False:
        words = "no policy holds cruise's accounts: a stolen token may do all that roles grant"
        fix = format_install_command(release, ["policies.yaml"], "policies.enabled=true")
        yield CheckItem("rights", "policies", CheckLevel.WARN, words, fix)


def _store(facts: StoreFacts, mode: Mode, release: HelmRelease | None) -> CheckItem:
    if facts.problem:
        return CheckItem("database", "postgres", CheckLevel.RED, facts.problem, "set database_url to one that answers")
    if facts.embedded:
        words = f"{facts.place} {'is there' if facts.exists else 'is made at the first start'}"
        if mode <= Mode.OBSERVE:
            return CheckItem("database", "postgres", CheckLevel.OK, words)
        fix = "set database_url to one Postgres for `cruise serve` and `cruise webhook`; an embedded one is not shared"
        if release is not None:
            fix = (
                "run this in the pod of serve: from mode initial on the chart brings a Postgres, or takes database.url"
            )
        return CheckItem("database", "postgres", CheckLevel.WARN, words, fix)
    if facts.revision is None:
        return CheckItem(
            "database", "postgres", CheckLevel.OK, f"{facts.place} answers; its tables are made at the start"
        )
    if facts.revision == facts.expected:
        return CheckItem("database", "postgres", CheckLevel.OK, f"{facts.place} answers, schema {facts.revision}")
    words = f"{facts.place} answers; its schema has revision {facts.revision}, this version of cruise needs {facts.expected}"
    fix = "nothing: the next start of serve migrates it, or run `cruise migrate` if another role owns the schema"
    return CheckItem("database", "postgres", CheckLevel.WARN, words, fix)


def _verified(facts: StoreFacts) -> Iterator[CheckItem]:
    if not facts.verified:
        words = f"{facts.place} may be any server: its certificate is not verified, and it gets the password"
        fix = "add ?sslmode=verify-full&sslrootcert=FILE to database_url"
        yield CheckItem("database", "TLS", CheckLevel.WARN, words, fix)


def _webhook(facts: WebhookFacts, mode: Mode, now: datetime, release: HelmRelease | None) -> Iterator[CheckItem]:
    wanted = mode >= Mode.INITIAL
    if not facts.present:
        if wanted:
            words = "no MutatingWebhookConfiguration: new pods are created as they are sent"
            fix = format_install_command(
                release, ["webhook.yaml", "certificates.yaml", "rbac/initial.yaml"], f"mode={mode.label}"
            )
            yield CheckItem("webhook", "registration", CheckLevel.RED, words, fix)
        else:
            yield CheckItem(
                "webhook", "registration", CheckLevel.OK, f"not registered, as mode {mode.label} needs none"
            )
        return
    yield CheckItem("webhook", "registration", CheckLevel.OK, "the MutatingWebhookConfiguration is there")
    if not facts.fails_open:
        fix = "set failurePolicy: Ignore; otherwise no pod is created while the webhook is away"
        yield CheckItem("webhook", "fails open", CheckLevel.RED, "failurePolicy is not Ignore", fix)
    yield _certificate(facts, now)
    words = "reviews are answered to whoever reaches the webhook; with webhook_client_ca_file, to the API server only"
    if facts.verifies_clients:
        words = "reviews are answered to the client certificates of webhook_client_ca_file"
    yield CheckItem("webhook", "callers", CheckLevel.OK, words)


def _certificate(facts: WebhookFacts, now: datetime) -> CheckItem:
    restart = "see the log of `cruise certificates`, which publishes the CA of the certificate that it makes"
    if not facts.published:
        return CheckItem(
            "webhook", "certificate", CheckLevel.RED, "no caBundle is published: no call gets through", restart
        )
    if facts.trusts_certificate is None:
        words = "a caBundle is published; the certificate itself cannot be looked at from here"
        return CheckItem("webhook", "certificate", CheckLevel.OK, words)
    if not facts.trusts_certificate:
        words = "the caBundle does not vouch for the certificate in use: no call gets through"
        return CheckItem("webhook", "certificate", CheckLevel.RED, words, restart)
    if facts.expires_at is not None and facts.expires_at - now <= _SOON:
        words = f"the certificate ends at {facts.expires_at:%Y-%m-%d %H:%M} UTC"
        level = CheckLevel.RED if facts.expires_at <= now else CheckLevel.WARN
        return CheckItem("webhook", "certificate", level, words, restart)
    return CheckItem("webhook", "certificate", CheckLevel.OK, "the caBundle vouches for the certificate in use")


def _problems(found: PreflightFacts) -> Iterator[CheckItem]:
    for area, name, problem in found.problems:
        # Without these nothing works; the rest could only not be looked at.
        if area in ("cluster", "metrics", "database"):
            yield CheckItem(
                area, name, CheckLevel.RED, problem, "mend this first: what depends on it was not looked at"
            )
        else:
            fix = "run `cruise check` with an account that may look, such as your own"
            yield CheckItem(area, name, CheckLevel.WARN, f"not looked at: {problem}", fix)


# Which rights each mode needs: the rules of deploy/rbac, one by one.

READ_VERBS = ("get", "list", "watch")
LEASE_RULE = "cruise-serve"
POLICY_RULES = "cruise-accounts"
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
    ("policy", "poddisruptionbudgets"),
    ("karpenter.sh", "nodepools"),
    ("karpenter.sh", "nodeclaims"),
)
# What cluster-autoscaler says of itself.
_STATUS = RequiredAccess("get", "configmaps", "", "", "kube-system", "cluster-autoscaler-status")


def list_required_access(mode: Mode, namespace: str, *, reviews_callers: bool = False) -> tuple[RequiredAccess, ...]:
    """Return what `cruise serve` needs in a mode; `namespace` is its own.

    With `reviews_callers` it asks the API server who calls its API.
    """
    needs = [RequiredAccess(verb, resource, group) for group, resource in _READ for verb in READ_VERBS]
    needs.append(_STATUS)
    # Of whatever kind an autoscaler's target is.
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
    if mode >= Mode.FULL:
        needs += [RequiredAccess("create", "pods", "", "eviction"), RequiredAccess("patch", "nodes")]
    return tuple(needs)
