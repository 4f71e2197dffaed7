"""The chart as Helm renders it; `python -m tests.deploy.rendering` writes the files of deploy/ from it."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from tests.controlplane.api import Json
from tests.deploy.installing import CHART, DEPLOY, NAMESPACE
from tests.helm.binary import helm

HEADER = "# Rendered from deploy/chart by `make manifests`: edit the chart.\n\n"
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


if __name__ == "__main__":
    for file, text in manifests():
        Path(DEPLOY / file).write_text(text)
