"""A namespace for one test."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from tests.controlplane.api import Api

CONTROLLERS = (
    "cronjobs.batch",
    "jobs.batch",
    "deployments.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "replicasets.apps",
)


@contextmanager
def own_namespace(api: Api, name: str | None = None) -> Iterator[str]:
    """A new namespace, deleted afterwards with all that is in it; pods go at once."""
    chosen = name or f"test-{secrets.token_hex(4)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chosen}})
    try:
        yield chosen
    finally:
        # Whoever makes pods goes first, or a pod's grace would hold the namespace for long.
        for resource in CONTROLLERS:
            api.delete_all(resource, chosen)
        api.delete_all("pods", chosen, grace=0)
        api.delete("namespaces", None, chosen)
