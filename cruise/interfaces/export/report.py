"""Changes to templates with what they rest on, as one JSON document."""

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from cruise.decisions.exporting.templates import ContainerSizes, LeftTemplate, TemplateChanges, TemplateSizes, Unpatched
from cruise.decisions.scan.waste import Prices
from cruise.domain.original_resources import amounts_json
from cruise.domain.resources import Resources
from cruise.interfaces.export.patches import patch_of
from cruise.interfaces.reasons import in_words
from cruise.interfaces.shapes import Shape, shape

TEMPLATES = (
    "Sizes of pod templates, as the webhook gives them to new pods: by default their peaks (admission_size). "
    "The target of a running pod (cruise scan, plan, explain) may be less, since the pods of a node share headroom."
)
_WORDS = {
    Unpatched.NO_TEMPLATE: "its template is not in what was read",
    Unpatched.IMMUTABLE: "the template of this kind cannot be changed",
    Unpatched.GENERATED: "its template is made by {}: change it there",
    Unpatched.CUSTOM_RESOURCE: "{} is a custom resource, whose list of containers a patch would replace: set the sizes "
    "in its manifest",
    Unpatched.ODD_NAME: "its name is not one that an API server takes",
}


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The changes, where the statistics come from in words, and prices."""

    changes: TemplateChanges
    rests_on: str
    prices: Prices


def why_left(left: LeftTemplate) -> str:
    """Say why a template is left as it is."""
    if isinstance(left.reason, Unpatched):
        return _WORDS[left.reason].format(left.detail)
    return in_words(left.reason, left.detail)


def export_json(report: ExportReport) -> bytes:
    """Return the report as one JSON document."""
    changes = report.changes
    document: Shape = {
        "at": shape(changes.at),
        "restsOn": report.rests_on,
        "workloads": [_workload(one, report.prices) for one in changes.changed],
        "leftAlone": [
            {
                "namespace": one.namespace,
                "workload": one.workload,
                "pods": one.pods,
                "reason": one.reason.value,
                "why": why_left(one),
            }
            for one in changes.left
        ],
        "freed": _amounts(changes.freed),
        "estimatedMonthlySaving": round(report.prices.month(changes.freed), 2),
    }
    return msgspec.json.encode(document) + b"\n"


def _workload(sizes: TemplateSizes, prices: Prices) -> Shape:
    return {
        "namespace": sizes.namespace,
        "workload": str(sizes.workload),
        "pods": sizes.pods,
        "containers": [_container(one) for one in sizes.containers],
        "injected": list(sizes.injected),
        "freed": _amounts(sizes.freed),
        "estimatedMonthlySaving": round(prices.month(sizes.freed), 2),
        "patch": patch_of(sizes),
    }


def _container(sizes: ContainerSizes) -> Shape:
    evidence = sizes.evidence
    figures = {
        name: value for name, value in _mapping(shape(evidence)).items() if name not in ("historySince", "updatedAt")
    }
    return {
        "container": sizes.name,
        "role": sizes.role.value,
        "before": {"requests": {**amounts_json(sizes.requests)}, "limits": {**amounts_json(sizes.limits)}},
        "after": {"requests": {**amounts_json(sizes.new_requests)}, "limits": {**amounts_json(sizes.new_limits)}},
        "evidence": {
            **figures,
            "historySince": shape(time_of(evidence.history_since)),
            "updatedAt": shape(time_of(evidence.updated_at)),
        },
    }


def time_of(seconds: int) -> datetime | None:
    """Return a time of the evidence, None for one that is not known."""
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _amounts(amounts: Resources) -> Shape:
    return {"cpuMillicores": amounts.cpu_millicores, "memoryBytes": amounts.memory_bytes}


def _mapping(value: Shape) -> dict[str, Shape]:
    assert isinstance(value, dict)
    return value
