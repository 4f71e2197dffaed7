"""The chart as Helm renders it; `python -m tests.deploy.rendering` writes the files of deploy/ from it."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from cruise.settings.settings import SETTING_TYPES, Settings
from scripts.reference.settings import read_descriptions
from tests.controlplane.api import Json
from tests.deploy.installing import CHART, DEPLOY, NAMESPACE
from tests.helm.binary import helm

HEADER = "# Rendered from deploy/chart by `make manifests`: edit the chart.\n\n"
SCHEMA = CHART / "values.schema.json"
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
# Each file shows one template, in the mode with the most content.
FULL = {"mode": "full", "database.existingSecret": "cruise-database"}
OBSERVE = {"mode": "observe"}
VALUES: Mapping[str, Mapping[str, str]] = {
    "namespace.yaml": OBSERVE,
    "settings.yaml": OBSERVE,
    "serve.yaml": OBSERVE,
    "migrate.yaml": FULL,
    "webhook.yaml": FULL,
    "certificates.yaml": FULL,
    "policies.yaml": FULL,
    "crds/definitions.yaml": {**OBSERVE, "crds.keep": "false"},
    "flowcontrol.yaml": FULL,
    "network.yaml": FULL,
    "rbac/kubelets.yaml": {"kubelets.enabled": "true"},
    "rbac/publish.yaml": {**FULL, "publishVpas": "off"},
    "rbac/policies.yaml": {**FULL, "rbac.writePolicies": "true"},
    **{f"rbac/{name}.yaml": FULL for name in ("api", "observe", "initial", "resize", "full")},
}


class Refused(Exception):
    """Helm rejected the values; the message is its output."""


def rendered(values: Mapping[str, str], *more: str, namespace: str = NAMESPACE) -> str:
    """What `helm template` prints for some values without hooks, in the order of installation. Raises Refused."""
    # There is no cluster to look passwords up in.
    values = {"postgres.newPasswords": "true", **values}
    stated = [argument for name, value in values.items() for argument in ("--set", f"{name}={value}")]
    command = [str(helm()), "template", "cruise", str(CHART), "--namespace", namespace, "--no-hooks", *stated, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


def objects(values: Mapping[str, str], *more: str, namespace: str = NAMESPACE) -> list[Json]:
    """The objects that the chart has for some values. Raises Refused."""
    return [one for one in yaml.load_all(rendered(values, *more, namespace=namespace), yaml.CSafeLoader) if one]


def manifests() -> Iterator[tuple[str, str]]:
    """Every file of deploy/ that is rendered from the chart, with its text."""
    plain = {"forKubectl": "true", "image.tag": "latest"}
    for file, values in VALUES.items():
        text = rendered({**plain, **values}, "--show-only", f"templates/{file}")
        # What is left of templates' own lines.
        lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("# Source: ")]
        yield file, HEADER + re.sub(r"\A(---\n)+", "", "\n".join(lines) + "\n").replace("---\n---\n", "---\n")
    yield "database.sql", (CHART / "files" / "database.sql").read_text()


def settings_schema() -> Json:
    """The part of the values' schema for `settings`: every setting that is no secret and has no separate value."""
    descriptions = {name: text for group in Settings.__bases__ for name, text in read_descriptions(group).items()}
    names = sorted(name for name, form in SETTING_TYPES.items() if not form.secret and name not in NOT_IN_SETTINGS)
    types = ["string", "number", "boolean", "array"]
    properties = {name: {"description": descriptions[name], "type": types} for name in names}
    return {"type": "object", "additionalProperties": False, "properties": properties}


if __name__ == "__main__":
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["settings"] = settings_schema()
    SCHEMA.write_text(json.dumps(schema, indent=2) + "\n")
    for file, text in manifests():
        Path(DEPLOY / file).write_text(text)
