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
    """Create a namespace, and delete it afterwards with everything in it, without grace periods."""
    chosen = name or f"test-{secrets.token_hex(4)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chosen}})
    try:
        yield chosen
    finally:
        # Controllers are deleted first, otherwise the grace periods of new pods would delay the namespace.
        for resource in CONTROLLERS:
            api.delete_all(resource, chosen)
        api.delete_all("pods", chosen, grace=0)
        api.delete("namespaces", None, chosen)
