"""The part of the schema of the chart's values that states which settings there are."""

import json
from pathlib import Path
from typing import Any

from cruise.settings.settings import SETTING_TYPES, Settings
from scripts.reference.settings import read_descriptions

VALUES_SCHEMA = Path(__file__).resolve().parents[2] / "deploy" / "chart" / "values.schema.json"
# Settings for which the chart has its own value, because more depends on it, and those that its containers fix.
NOT_IN_SETTINGS = {
    *(
        "mode",
        "prometheus_url",
        "database_url",
        "excluded_namespaces",
        "included_namespaces",
        "namespace_selector",
        "usage_source",
        "kubelet_access",
        "publish_vpas",
    ),
    *("namespace", "kubeconfig", "kube_context", "data_dir", "http_address", "webhook_address", "tls_dir"),
    *("api_authentication", "api_token_file", "webhook_service", "webhook_configuration"),
}


def settings_schema() -> dict[str, Any]:
    """The part of the values' schema for `settings`: every setting that is no secret and has no separate value."""
    descriptions = {name: text for group in Settings.__bases__ for name, text in read_descriptions(group).items()}
    names = sorted(name for name, form in SETTING_TYPES.items() if not form.secret and name not in NOT_IN_SETTINGS)
    types = ["string", "number", "boolean", "array"]
    properties = {name: {"description": descriptions[name], "type": types} for name in names}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def write_settings_schema() -> None:
    """Write the settings into the schema."""
    schema = json.loads(VALUES_SCHEMA.read_text())
    schema["properties"]["settings"] = settings_schema()
    VALUES_SCHEMA.write_text(json.dumps(schema, indent=2) + "\n")
