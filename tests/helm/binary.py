"""Helm, built once from its Go module and cached."""

from pathlib import Path

from tests.controlplane.binaries import NotAvailable
from tests.go_tool import GoTool

HELM = GoTool("helm", Path(__file__).parent, "helm.sh/helm/v4/cmd/helm", 3)


def helm() -> Path:
    """Find the built program. Raises NotAvailable."""
    try:
        return HELM.place()
    except NotAvailable as missing:
        raise NotAvailable(f"{missing}: tests/setup/40-helm.sh builds it") from missing


if __name__ == "__main__":
    try:
        HELM.build()
    except NotAvailable as missing:
        print(f"helm: not available, its tests are left out: {missing}")
