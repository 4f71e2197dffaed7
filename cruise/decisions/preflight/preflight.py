"""Whether cruise can work here in its mode: facts in, a list of items with their fixes out."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from cruise.decisions.preflight.cross_check import cross_check_item, kubelet_items
from cruise.decisions.preflight.installing import apply
from cruise.decisions.preflight.items import CheckItem, Level
from cruise.decisions.preflight.objects import object_items
from cruise.decisions.preflight.risks import risk_items
from cruise.decisions.preflight.usage import usage_items
from cruise.decisions.sizing.headroom.risk_level import KeptRisk
from cruise.domain.policy import Mode
from cruise.domain.preflight import AccessFacts, HelmRelease, ServerFacts, StoreFacts, Surroundings, WebhookFacts
from cruise.domain.resources import ResourceName

_AREAS = ("cluster", "rights", "metrics", "database", "webhook", "headroom", "objects")
_SOON = timedelta(days=3)
_MOST_NAMED = 4


def decide_preflight(
    found: Surroundings, mode: Mode, now: datetime, risks: Mapping[ResourceName, KeptRisk] = MappingProxyType({})
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
        items += usage_items(found.prometheus, found.snapshot, now, found.release)
    if found.kubelets is not None:
        items += kubelet_items(found.kubelets)
    if found.cross_check is not None:
        items.append(cross_check_item(found.cross_check))
    if found.store is not None:
        items.append(_store(found.store, mode, found.release))
        items += _verified(found.store)
    if found.webhook is not None:
        items += _webhook(found.webhook, mode, now, found.release)
    items += risk_items(risks)
    if found.snapshot is not None:
        items += object_items(found.snapshot, mode)
    if found.unreadable:
        fix = "mend them: until then they are left aside, and what they are about is left alone"
        words = f"{len(found.unreadable):,} cannot be read, such as {found.unreadable[0]}"
        items.append(CheckItem("objects", "readable", Level.WARN, words, fix))
    items += _problems(found)
    return sorted(items, key=lambda item: _AREAS.index(item.area))


def _server(facts: ServerFacts, mode: Mode) -> Iterator[CheckItem]:
    if facts.resizes_pods:
        yield CheckItem("cluster", "resize", Level.OK, f"{facts.version} resizes pods in place")
    else:
        level = Level.RED if mode >= Mode.RESIZE else Level.WARN
        fix = "upgrade to 1.33 or newer, or stay in mode initial: only pods that are created are sized"
        yield CheckItem("cluster", "resize", level, f"{facts.version} does not serve pods/resize", fix)
    if not facts.evicts_pods and mode >= Mode.FULL:
        fix = "stay in mode resize"
        yield CheckItem("cluster", "eviction", Level.RED, f"{facts.version} does not serve pods/eviction", fix)


def _release(release: HelmRelease | None) -> Iterator[CheckItem]:
    if release is not None:
        words = f"by Helm: release {release.name} in {release.namespace}"
        words += "; a setting that a fix names is its value settings.NAME"
        yield CheckItem("cluster", "installed", Level.OK, words)


def _access(facts: AccessFacts, mode: Mode, release: HelmRelease | None) -> CheckItem:
    account = facts.account or "this account"
    if not facts.denied:
        return CheckItem(
            "rights", "RBAC", Level.OK, f"{account} may do all that `cruise serve` needs in mode {mode.label}"
        )
    denied = [str(need) for need in facts.denied]
    more = f" and {len(denied) - _MOST_NAMED} more" if len(denied) > _MOST_NAMED else ""
    words = f"{account} may not {', '.join(denied[:_MOST_NAMED])}{more}"
    files = [f"rbac/{one.label}.yaml" for one in Mode if Mode.OBSERVE <= one <= mode]
    command = apply(release, files, f"mode={mode.label}", "rbac.create=true")
    fix = f"{command}; to see what cruise's own account may, run this in its pod"
    return CheckItem("rights", "RBAC", Level.RED, words, fix)


def _held(facts: AccessFacts, mode: Mode, release: HelmRelease | None) -> Iterator[CheckItem]:
    if facts.held:
        yield CheckItem("rights", "policies", Level.OK, "the API server holds cruise's accounts to their own writes")
    elif facts.held is False and mode <= Mode.OBSERVE:
        yield CheckItem("rights", "policies", Level.OK, "no policy holds cruise's accounts, whose roles write nothing")
    elif facts.held is False:
        words = "no policy holds cruise's accounts: a stolen token may do all that roles grant"
        fix = apply(release, ["policies.yaml"], "policies.enabled=true")
        yield CheckItem("rights", "policies", Level.WARN, words, fix)


def _store(facts: StoreFacts, mode: Mode, release: HelmRelease | None) -> CheckItem:
    if facts.problem:
        return CheckItem("database", "postgres", Level.RED, facts.problem, "set database_url to one that answers")
    if facts.embedded:
        words = f"{facts.place} {'is there' if facts.exists else 'is made at the first start'}"
        if mode <= Mode.OBSERVE:
            return CheckItem("database", "postgres", Level.OK, words)
        fix = "set database_url to one Postgres for `cruise serve` and `cruise webhook`; an embedded one is not shared"
        if release is not None:
            fix = (
                "run this in the pod of serve: from mode initial on the chart brings a Postgres, or takes database.url"
            )
        return CheckItem("database", "postgres", Level.WARN, words, fix)
    if facts.revision is None:
        return CheckItem("database", "postgres", Level.OK, f"{facts.place} answers; its tables are made at the start")
    if facts.revision == facts.expected:
        return CheckItem("database", "postgres", Level.OK, f"{facts.place} answers, schema {facts.revision}")
    words = f"{facts.place} answers; its schema is {facts.revision}, this cruise's is {facts.expected}"
    fix = (
        "an older one is brought up to date at the next start, or by `cruise migrate` where another role owns it; "
        "a newer one is used as it is where it allows that"
    )
    return CheckItem("database", "postgres", Level.WARN, words, fix)


def _verified(facts: StoreFacts) -> Iterator[CheckItem]:
    if not facts.verified:
        words = f"{facts.place} may be any server: its certificate is not verified, and it gets the password"
        fix = "add ?sslmode=verify-full&sslrootcert=FILE to database_url"
        yield CheckItem("database", "TLS", Level.WARN, words, fix)


def _webhook(facts: WebhookFacts, mode: Mode, now: datetime, release: HelmRelease | None) -> Iterator[CheckItem]:
    wanted = mode >= Mode.INITIAL
    if not facts.present:
        if wanted:
            words = "no MutatingWebhookConfiguration: new pods are created as they are sent"
            fix = apply(release, ["webhook.yaml", "certificates.yaml", "rbac/initial.yaml"], f"mode={mode.label}")
            yield CheckItem("webhook", "registration", Level.RED, words, fix)
        else:
            yield CheckItem("webhook", "registration", Level.OK, f"not registered, as mode {mode.label} needs none")
        return
    yield CheckItem("webhook", "registration", Level.OK, "the MutatingWebhookConfiguration is there")
    if not facts.fails_open:
        fix = "set failurePolicy: Ignore; otherwise no pod is created while the webhook is away"
        yield CheckItem("webhook", "fails open", Level.RED, "failurePolicy is not Ignore", fix)
    yield _certificate(facts, now)
    words = "reviews are answered to whoever reaches the webhook; with webhook_client_ca_file, to the API server only"
    if facts.knows_callers:
        words = "reviews are answered to the client certificates of webhook_client_ca_file"
    yield CheckItem("webhook", "callers", Level.OK, words)


def _certificate(facts: WebhookFacts, now: datetime) -> CheckItem:
    restart = "see the log of `cruise certificates`, which publishes the CA of the certificate that it makes"
    if not facts.published:
        return CheckItem("webhook", "certificate", Level.RED, "no caBundle is published: no call gets through", restart)
    if facts.trusts is None:
        words = "a caBundle is published; the certificate itself cannot be looked at from here"
        return CheckItem("webhook", "certificate", Level.OK, words)
    if not facts.trusts:
        words = "the caBundle does not vouch for the certificate in use: no call gets through"
        return CheckItem("webhook", "certificate", Level.RED, words, restart)
    if facts.expires_at is not None and facts.expires_at - now <= _SOON:
        words = f"the certificate ends at {facts.expires_at:%Y-%m-%d %H:%M} UTC"
        level = Level.RED if facts.expires_at <= now else Level.WARN
        return CheckItem("webhook", "certificate", level, words, restart)
    return CheckItem("webhook", "certificate", Level.OK, "the caBundle vouches for the certificate in use")


def _problems(found: Surroundings) -> Iterator[CheckItem]:
    for area, name, problem in found.problems:
        # Without these nothing works; the rest could only not be looked at.
        if area in ("cluster", "metrics", "database"):
            yield CheckItem(area, name, Level.RED, problem, "mend this first: what depends on it was not looked at")
        else:
            fix = "run `cruise check` with an account that may look, such as your own"
            yield CheckItem(area, name, Level.WARN, f"not looked at: {problem}", fix)
