"""The webhook, called by a real API server over TLS."""

import ssl
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from cruise.app.certificates import CertificateRenewalTiming
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.original_resources import parse_original_resources
from cruise.domain.policy import Mode
from tests.builders import make_amounts, make_statistic
from tests.controlplane import manifests
from tests.controlplane.api import ApiError, Json, wait_until
from tests.controlplane.control_plane import API_SERVER
from tests.webhook_server import ca_bundle, configure_webhook, running, store_of, webhook_settings

WORKLOADS = {"Deployment": "deployments.apps", "StatefulSet": "statefulsets.apps", "Job": "jobs.batch"}


def now_seconds() -> int:
    return int(datetime.now(UTC).timestamp())  # noqa: TID251 - the real cluster has the real time


def peak_of(namespace: str, workload: str, container: str = "app", **values):
    sizes = {"cpu_peak": 300, "memory_peak_mib": 200, "memory_7d_max_mib": 250, **values}
    return make_statistic("", namespace, workload, container, updated_at=now_seconds(), **sizes)


def template(name: str, **more):
    app = manifests.container(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "2", "memory": "2Gi"})
    return manifests.pod_template(name, app, **more)


def deployment(namespace: str, name: str, replicas: int = 1, **more):
    return manifests.workload("Deployment", namespace, name, template(name, **more), replicas)


def fetched(settings, path: str, body: bytes | None = None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    address = f"https://{settings.webhook_address}{path}"
    with urllib.request.urlopen(address, body, context=context, timeout=20) as answer:
        return bytes(answer.read())


def ready(settings) -> bool:
    try:
        return bool(fetched(settings, "/readyz"))
    except OSError:
        return False


def metric(settings, name: str) -> dict[str, float]:
    lines = fetched(settings, "/metrics").decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line.startswith(name)]
    return {key: float(value) for key, value in pairs}


def left(settings, reason: str) -> float:
    return sum(metric(settings, f'cruise_webhook_reviews_total{{answer="left",reason="{reason}"}}').values())


def is_sized(pod) -> bool:
    return ORIGINAL_RESOURCES in pod["metadata"].get("annotations", {})


def pod_of(admin, namespace: str, app: str, is_decided: Callable[[Json], bool] = is_sized) -> Json:
    """A pod that was decided about; those of an owner or a namespace that was not seen yet are left, so deleted."""

    def decided():
        for pod in admin.items("pods", namespace, f"app={app}"):
            if is_decided(pod):
                return pod
            with suppress(ApiError):
                # Its owner may have been quicker.
                admin.delete("pods", namespace, pod["metadata"]["name"], grace=0)
        return None

    return wait_until(decided, f"a pod of {app} is decided about", longest_pause=1)


def container_of(pod, name: str = "app"):
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    return next(one["resources"] for one in containers if one["name"] == name)


SIZED = {"requests": {"cpu": "300m", "memory": "200Mi"}, "limits": {"memory": "500Mi"}}
AS_SENT = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job"])
def test_new_pods_ask_for_their_workloads_peak(control_plane, admin, namespace, tmp_path, kind):
    known = {"webhook_client_ca_file": control_plane.webhook_client_ca_file, "webhook_client_names": {API_SERVER}}
    settings = webhook_settings(control_plane, tmp_path, f"cruise-{namespace}", **known)
    store = store_of(peak_of(namespace, f"{kind}/web"))
    with (
        configure_webhook(admin, f"cruise-{namespace}", settings.webhook_address, namespace),
        running(settings, store),
    ):
        wait_until(lambda: ready(settings), "the webhook is ready")
        admin.create(manifests.workload(kind, namespace, "web", template("web")))
        pod = pod_of(admin, namespace, "web")
        assert container_of(pod) == SIZED
        original = parse_original_resources(pod["metadata"]["annotations"][ORIGINAL_RESOURCES])
        assert original == {"app": (make_amounts(1000, 1024), make_amounts(2000, 2048))}
        # Only the API server has a client certificate.
        with pytest.raises(urllib.error.HTTPError, match="403"):
            fetched(settings, "/mutate", b"{}")


def test_a_cron_jobs_pods_are_sized_by_what_the_cron_job_used(control_plane, admin, namespace, tmp_path):
    settings = webhook_settings(control_plane, tmp_path, f"cruise-{namespace}")
    store = store_of(peak_of(namespace, "CronJob/nightly"))
    with (
        configure_webhook(admin, f"cruise-{namespace}", settings.webhook_address, namespace),
        running(settings, store),
    ):
        wait_until(lambda: ready(settings), "the webhook is ready")
        job_template = {"spec": {"template": template("nightly")}}
        job_template["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        cron_job = admin.create(
            {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "metadata": {"namespace": namespace, "name": "nightly"},
                "spec": {"schedule": "0 3 * * *", "jobTemplate": job_template},
            }
        )
        owner = {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "name": "nightly",
            "uid": cron_job["metadata"]["uid"],
            "controller": True,
        }
        job = manifests.workload("Job", namespace, "nightly-1", template("nightly"))
        job["metadata"]["ownerReferences"] = [owner]
        admin.create(job)
        pod = pod_of(admin, namespace, "nightly")
        assert container_of(pod) == SIZED


def test_sidecars_missing_resources_and_reinvocation(control_plane, admin, namespace, tmp_path):
    settings = webhook_settings(control_plane, tmp_path, f"cruise-{namespace}")
    store = store_of(
        peak_of(namespace, "Deployment/web"),
        peak_of(namespace, "Deployment/web", "proxy", cpu_peak=40, memory_peak_mib=30, memory_7d_max_mib=30),
        peak_of(namespace, "Deployment/web", "bare", cpu_peak=20, memory_peak_mib=20, memory_7d_max_mib=20),
    )
    with (
        configure_webhook(
            admin, f"cruise-{namespace}", settings.webhook_address, namespace, reinvocationPolicy="IfNeeded"
        ),
        running(settings, store),
    ):
        wait_until(lambda: ready(settings), "the webhook is ready")
        sidecar = manifests.container("proxy", restartPolicy="Always")
        bare = {"name": "bare", "image": "example.com/bare:1"}
        whole = deployment(namespace, "web")
        whole["spec"]["template"]["spec"]["containers"].append(bare)
        whole["spec"]["template"]["spec"]["initContainers"] = [manifests.container("setup"), sidecar]
        admin.create(whole)
        pod = pod_of(admin, namespace, "web")
        assert container_of(pod) == SIZED
        # Containers without a memory limit get none.
        assert container_of(pod, "proxy") == {"requests": {"cpu": "40m", "memory": "30Mi"}}
        assert container_of(pod, "bare") == {"requests": {"cpu": "20m", "memory": "20Mi"}}
        assert container_of(pod, "setup") == {}


def test_in_a_namespace_with_quotas_no_pod_is_refused_because_of_cruise(control_plane, admin, namespace, tmp_path):
    """Where CPU limits are counted the API server refuses containers without one; and peaks may be too much."""
    settings = webhook_settings(control_plane, tmp_path, f"cruise-{namespace}")
    store = store_of(
        peak_of(namespace, "Deployment/web"), peak_of(namespace, "Deployment/big", cpu_peak=3000, memory_peak_mib=200)
    )
    hard = {"limits.cpu": "10", "requests.cpu": "2", "requests.memory": "10Gi", "limits.memory": "20Gi"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"namespace": namespace, "name": "all"}}
    admin.create({**quota, "spec": {"hard": hard}})
    wait_until(lambda: admin.read("resourcequotas", namespace, "all").get("status", {}).get("used"), "the quota counts")
    with (
        configure_webhook(admin, f"cruise-{namespace}", settings.webhook_address, namespace),
        running(settings, store),
    ):
        wait_until(lambda: ready(settings), "the webhook is ready")
        admin.create(deployment(namespace, "web"))
        pod = pod_of(admin, namespace, "web")
        assert container_of(pod) == {**SIZED, "limits": {"cpu": "2", "memory": "500Mi"}}
        # Its peak of 3 CPUs is more than the quota has, and what was sent is not.
        admin.create(deployment(namespace, "big"))
        pod = pod_of(admin, namespace, "big", lambda pod: left(settings, "quota-exceeded") >= 1)
        assert container_of(pod) == AS_SENT


def test_mode_observe_counts_and_patches_nothing(control_plane, admin, namespace, tmp_path):
    settings = webhook_settings(control_plane, tmp_path, f"cruise-{namespace}", mode=Mode.OBSERVE)
    store = store_of(peak_of(namespace, "Deployment/web"))
    with (
        configure_webhook(admin, f"cruise-{namespace}", settings.webhook_address, namespace),
        running(settings, store),
    ):
        wait_until(lambda: ready(settings), "the webhook is ready")
        admin.create(deployment(namespace, "web"))
        pod = pod_of(admin, namespace, "web", lambda pod: left(settings, "mode-observe") >= 1)
        assert container_of(pod) == AS_SENT
        counted = metric(settings, "cruise_webhook_reviews_total")
        assert sum(counted.values()) == left(settings, "mode-observe") + left(settings, "lookup-pending")


def test_without_the_webhook_pods_are_created_as_they_were_sent(control_plane, admin, namespace, tmp_path):
    settings = webhook_settings(control_plane, tmp_path, f"cruise-{namespace}")
    store = store_of(peak_of(namespace, "Deployment/web"))
    with configure_webhook(admin, f"cruise-{namespace}", settings.webhook_address, namespace, "Ignore"):
        with running(settings, store):
            wait_until(lambda: ready(settings), "the webhook is ready")
            admin.create(deployment(namespace, "web"))
            assert container_of(pod_of(admin, namespace, "web")) == SIZED
        admin.create(deployment(namespace, "later"))
        assert container_of(pod_of(admin, namespace, "later", lambda pod: True)) == AS_SENT


def test_the_certificate_is_renewed_twice_under_load_without_one_failed_call(control_plane, admin, namespace, tmp_path):
    settings = webhook_settings(control_plane, tmp_path, f"cruise-{namespace}")
    store = store_of(peak_of(namespace, "Deployment/web"))
    # Two thirds of nine seconds, two to learn of the next authority, and a look every fifth of a second.
    times = CertificateRenewalTiming(timedelta(seconds=9), timedelta(seconds=2), timedelta(seconds=0.2))
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "none", "controller": True}
    seen: Counter[str] = Counter()
    bundles: list[str | None] = []
    stop = threading.Event()

    def create(worker: int) -> None:
        api = control_plane.api()
        count = 0
        while not stop.is_set():
            count += 1
            pod = manifests.pod(namespace, f"p-{worker}-{count}", *template("web")["spec"]["containers"])
            pod["metadata"]["ownerReferences"] = [owner]
            # With failurePolicy Fail a call that fails is a pod that is not created.
            try:
                created = api.request("POST", api.path("pods", namespace) + "?dryRun=All", pod)
                seen["sized" if container_of(created) == SIZED else "as sent"] += 1
            except Exception as error:
                seen[f"failed: {error}"] += 1
            # Load enough, and the machine has other things to do.
            stop.wait(0.02)

    with (
        configure_webhook(admin, f"cruise-{namespace}", settings.webhook_address, namespace, "Fail"),
        running(settings, store, times),
    ):
        wait_until(lambda: ready(settings), "the webhook is ready")
        expiries: set[float] = set()
        workers = [threading.Thread(target=create, args=(worker,)) for worker in range(3)]
        for worker in workers:
            worker.start()
        deadline = time.monotonic() + 120
        try:
            # However slow the machine is: until both were renewed twice and over a hundred pods created meanwhile.
            while min(len(expiries), len(bundles)) < 3 or seen["sized"] <= 100:
                assert time.monotonic() < deadline, (expiries, bundles, seen)
                expiries |= set(metric(settings, "cruise_webhook_certificate_expiry").values())
                bundle = ca_bundle(admin, f"cruise-{namespace}")
                if not bundles or bundles[-1] != bundle:
                    bundles.append(bundle)
                time.sleep(0.1)
        finally:
            stop.set()
            for worker in workers:
                worker.join()
    assert set(seen) == {"sized"}
