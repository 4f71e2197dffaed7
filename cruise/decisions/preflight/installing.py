"""How a shortcoming of the installation is mended: by the chart's values where that installed it, else by files."""

from collections.abc import Iterable

from cruise.domain.preflight import HelmRelease


def apply(release: HelmRelease | None, files: Iterable[str], *values: str) -> str:
    """Return the command that applies files of deploy/, or sets the values of which the chart renders the same."""
    if release is None:
        return "kubectl apply " + " ".join(f"-f deploy/{file}" for file in files)
    place = f"helm upgrade {release.name} deploy/chart --namespace {release.namespace} --reset-then-reuse-values"
    return " ".join((place, *(f"--set {value}" for value in values)))
