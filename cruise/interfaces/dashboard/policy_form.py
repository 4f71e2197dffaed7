"""The form of a policy object: its fields, its YAML, and whether it writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import Request

from cruise.decisions.pod_policy.policy_objects import find_written_policy
from cruise.domain.annotations import OVERRIDES, PREFIX, Overrides, UnreadableAnnotations
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.overrides import format_settings, parse_overrides
from cruise.domain.written_policies import PolicyScope
from cruise.errors import CruiseError
from cruise.interfaces.dashboard.forms import SETTING_FIELD_PREFIX, RejectedForm, get_rejected_form
from cruise.interfaces.http.policies import explain_policy_writability, render_written_policy
from cruise.interfaces.http.view import ApiView, NamespaceVisibility

_EXAMPLES = {
    "headroom-factor": "1.5",
    "startup-cpu": "2x",
    "cpu-min": "100m",
    "cpu-max": "2",
    "memory-min": "128Mi",
    "memory-max": "4Gi",
}


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of the form: its stated value and the values that it accepts."""

    name: str
    setting: str
    value: str
    choices: Sequence[str]
    example: str


@dataclass(frozen=True, slots=True)
class PolicyForm:
    """The form of the policy of a scope; `path` follows `/policies` in its address, also in that of the API.

    `not_writable` says why the form only shows the `manifest`.
    """

    scope: PolicyScope
    path: str
    fields: Sequence[FormField]
    manifest: str
    not_writable: str
    is_stated: bool
    rejected: RejectedForm | None


async def build_policy_form(
    view: ApiView,
    request: Request,
    visibility: NamespaceVisibility,
    snapshot: ClusterSnapshot,
    scope: PolicyScope,
    previewed: Mapping[str, str] | None = None,
) -> PolicyForm:
    """Return the form with the rejected values, otherwise those of a preview, otherwise the stated ones."""
    own = find_written_policy(snapshot.rightsizing_policies, scope)
    stated = own.overrides if own is not None and isinstance(own.overrides, Overrides) else Overrides()
    settings = format_settings(stated)
    rejected = get_rejected_form(request)
    proposed = previewed if rejected is None else rejected.values
    containers = (
        get_container_overrides(stated) if rejected is None else select_container_overrides(rejected.values, stated)
    )
    return PolicyForm(
        scope,
        f"{scope.namespace}/{scope.workload}" if scope.workload else f"namespaces/{scope.namespace}".rstrip("/"),
        [
            *build_form_fields(settings, proposed),
            *(FormField(f"{SETTING_FIELD_PREFIX}{name}", name, value, (), "") for name, value in containers.items()),
        ],
        _render_manifest(scope, settings if proposed is None else proposed),
        await _explain_not_writable(view, visibility, scope),
        own is not None,
        rejected,
    )


def _render_manifest(scope: PolicyScope, settings: Mapping[str, str]) -> str:
    """Return the YAML of a scope's policy with the settings of the form; empty if there are none or one is wrong."""
    overrides = parse_overrides({f"{PREFIX}{name}": value for name, value in settings.items() if value})
    return "" if isinstance(overrides, UnreadableAnnotations) else render_written_policy(scope, overrides)


async def _explain_not_writable(view: ApiView, visibility: NamespaceVisibility, scope: PolicyScope) -> str:
    """Return why the form does not write, empty if it does. A page is useful without the API server's answer."""
    try:
        return (await explain_policy_writability(view, visibility, scope)).reason
    except CruiseError as error:
        return str(error)


def build_form_fields(stated: Mapping[str, str], proposed: Mapping[str, str] | None = None) -> Sequence[FormField]:
    """Return the fields for settings of all containers, with the proposed values, or the stated ones without them."""
    values = stated if proposed is None else proposed
    return [
        FormField(
            f"{SETTING_FIELD_PREFIX}{name}", name, values.get(name, ""), override.choices, _EXAMPLES.get(name, "")
        )
        for name, override in OVERRIDES.items()
    ]


def get_container_overrides(stated: Overrides) -> Mapping[str, str]:
    """Return the stated settings of single containers."""
    return {name: value for name, value in format_settings(stated).items() if name not in OVERRIDES}


def select_container_overrides(sent: Mapping[str, str], stated: Overrides) -> Mapping[str, str]:
    """Return the sent settings of single containers; a stated one that was not sent is empty."""
    return {name: sent.get(name, "") for name in {**get_container_overrides(stated), **sent} if name not in OVERRIDES}
