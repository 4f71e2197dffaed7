"""A webhook in a thread of the test, and its configuration on the test control plane."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import uvloop

from cruise.app.certificates import CertificateRenewalTiming
from cruise.app.webhook import run_webhook
from cruise.domain.policy import Mode
from cruise.domain.usage import Statistic, StatisticsTable
from cruise.runtime.ports import StorePort
from cruise.settings import Settings
from cruise.simulation.store import InMemoryStore
from tests.controlplane.api import Api, Json
from tests.controlplane.control_plane import ControlPlane
from tests.postgres_servers import free_port


class RunningWebhook:
    """One `serve_webhook`, stopped as by a signal."""

    def __init__(self, settings: Settings, store: StorePort, times: CertificateRenewalTiming | None = None) -> None:
        self.settings = settings
        self.failure: BaseException | None = None
        self._store = store
        self._times = times
        self._loop = uvloop.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        self._thread.join(30)
        assert not self._thread.is_alive(), "the webhook does not end"

    def _run(self) -> None:
        @asynccontextmanager
        async def stored():
            yield self._store

        self._task = self._loop.create_task(run_webhook(self.settings, self._times, stored))
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        except BaseException as failure:
            self.failure = failure
        finally:
            self._loop.close()


def webhook_settings(control_plane: ControlPlane, directory: Path, configuration: str, **more: object) -> Settings:
    """Settings of a webhook in mode initial on loopback, to which no workload is too young."""
    fields: dict[str, object] = {
        "kubeconfig": control_plane.kubeconfig(),
        "mode": Mode.INITIAL,
        "webhook_address": f"127.0.0.1:{free_port()}",
        "webhook_configuration": configuration,
        "data_dir": directory,
        "new_workload_age": timedelta(0),
        "memory_limit_history": timedelta(0),
    }
    return Settings(**{**fields, **more})  # type: ignore[arg-type]


@contextmanager
def running(
    settings: Settings, store: StorePort, times: CertificateRenewalTiming | None = None
) -> Iterator[RunningWebhook]:
    """A webhook for as long as this lasts."""
    server = RunningWebhook(settings, store, times)
    server.start()
    try:
        yield server
    finally:
        server.stop()
    assert server.failure is None, repr(server.failure)


def store_of(*statistics: Statistic) -> InMemoryStore:
    """A store with these statistics."""
    store = InMemoryStore()
    asyncio.run(store.write_statistics(StatisticsTable.from_rows(statistics)))
    return store


@contextmanager
def configure_webhook(
    api: Api, name: str, address: str, namespace: str, policy: str = "Fail", **more: object
) -> Iterator[str]:
    """A MutatingWebhookConfiguration for the pods of one namespace, with the webhook at `address`."""
    api.create(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": "pods.cruise.io",
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {"url": f"https://{address}/mutate"},
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["pods"],
                            "scope": "Namespaced",
                        }
                    ],
                    "failurePolicy": policy,
                    "timeoutSeconds": 5,
                    "sideEffects": "None",
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    **more,
                }
            ],
        }
    )
    try:
        yield name
    finally:
        api.delete("mutatingwebhookconfigurations.admissionregistration.k8s.io", None, name)


def ca_bundle(api: Api, name: str) -> str | None:
    """What the configuration trusts, in base64."""
    found: Json = api.read("mutatingwebhookconfigurations.admissionregistration.k8s.io", None, name)
    bundle: str | None = found["webhooks"][0]["clientConfig"].get("caBundle")
    return bundle
