"""Two replicas, 200 new pods a minute and a fault every 30 seconds: no write is lost, memory stays flat.

An hour in the tier long; CHURN_MINUTES states another time.
"""

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.controlplane.api import wait_until
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.namespaces import own_namespace
from tests.e2e.live.faults import ApiServerProxy, FaultAnswers, PrometheusProxy, SocketProxy, proxied_database
from tests.e2e.live.manifests import app
from tests.e2e.live.programs import RunningProgram
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import LiveStage, database_of
from tests.e2e.live.test_fault_killed import rows, rows_by_pod, writes_by_pod
from tests.e2e.live.usage import ContainerUse
from tests.e2e.serve_scene import started

MINUTES = float(os.environ.get("CHURN_MINUTES", "60"))
PODS, MEASURED, AT_ONCE, EVERY_SECONDS = 60, 10, 10, 3.0
INTERVAL, FAULT_EVERY, FAULT_LASTS = 2.0, 30.0, 12.0
# As long as the age of the last success may become before the lead is given up, and a turn more.
MOST_AGE = 3 * INTERVAL + 60 + 10


@dataclass
class Replica:
    """One `cruise serve` behind its own proxies."""

    name: str
    settings: dict[str, str]
    directory: Path
    api: ApiServerProxy
    database: SocketProxy
    stack: ExitStack
    running: RunningProgram | None = None

    def start(self) -> None:
        self.running = self.stack.enter_context(started(self.settings, self.directory))

    def metrics(self) -> str:
        """Its metrics, empty where it does not answer."""
        return "" if self.running is None else self.running.get("/metrics")[1]

    def figures(self, name: str) -> list[float]:
        """The values of a metric, none where it does not answer."""
        return figures_in(self.metrics(), name)

    @property
    def process(self) -> RunningProgram:
        assert self.running is not None
        return self.running


def figures_in(metrics: str, name: str) -> list[float]:
    return [float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", metrics, re.MULTILINE)]


@pytest.fixture
def stage(embedded_postgres: Path, tmp_path: Path) -> Iterator[LiveStage]:
    """A stage on a separate control plane, whose audit log has no bodies."""
    with (
        ControlPlane(audit_level="Metadata") as plane,
        TestKubelet(plane.api(KUBELET.name)) as kubelet,
        own_namespace(plane.api()) as namespace,
        LiveStage(plane, kubelet, namespace, database_of(embedded_postgres), tmp_path) as stage,
    ):
        yield stage


@pytest.mark.long
@pytest.mark.timeout(60 * MINUTES + 3600)
def test_an_hour_of_churn_and_faults(stage: LiveStage, tmp_path: Path):
    node = stage.node(cpu="64", memory="128Gi", pods="250")
    stage.create(app("Deployment", stage.namespace, "web", "300m", "512Mi", replicas=PODS, node=node))
    measured = {pod["metadata"]["name"] for pod in stage.running(PODS)[:MEASURED]}
    stage.measure({"web": ContainerUse(cores=0.05, mebibytes=60)})
    stage.mark()
    over = Event()
    with ExitStack() as stack:
        prometheus = stack.enter_context(PrometheusProxy(stage.settings("resize")["prometheus_url"]))
        replicas = [replica(stage, tmp_path, stack, name, prometheus.address) for name in ("a", "b")]
        for one in replicas:
            one.start()
        wait_until(lambda: any(one.figures("cruise_leader") == [1] for one in replicas), "one leads")
        wait_until(lambda: sized(stage) >= PODS - 1, "all are sized")
        made = [0]
        churning = Thread(target=churn, args=(stage, measured, over, made), name="churn")
        churning.start()
        watched = Watch(replicas, over)
        watching = Thread(target=watched.watch, name="watch")
        watching.start()
        began = time.monotonic()
        faults = Counter[str]()
        moment = random.Random(32)
        try:
            while time.monotonic() - began < MINUTES * 60:
                fault_began = time.monotonic()
                name, fault = moment.choice(FAULTS)
                faults[name] += 1
                fault(stage, prometheus, moment.choice(replicas), replicas)
                time.sleep(max(0.0, FAULT_EVERY - (time.monotonic() - fault_began)))
        finally:
            over.set()
            churning.join()
            watching.join()
            watched.write_minutes(tmp_path / "memory.tsv")
        stage.running(PODS)
        calm = time.monotonic()
        wait_until(lambda: sized(stage) == PODS, "all are sized")
        settled = time.monotonic() - calm
        database = stage.settings("resize")["database_url"]
        wait_until(lambda: not rows(database, "SELECT 1 FROM intent"), "no write is without an outcome")
        given_up = sum(sum(one.figures("cruise_leadership_released_total")) for one in replicas)
        for one in replicas:
            one.process.process.send_signal(signal.SIGTERM)
        for one in replicas:
            assert one.process.process.wait(30) == 0, one.process.log[-3000:]
        logs = [file.read_text(errors="replace") for file in tmp_path.glob("started-*.log")]
    written, recorded, done = writes_by_pod(stage), rows_by_pod(database), rows_by_pod(database, "done")
    print(
        f"{MINUTES:g} minutes, {made[0]} pods replaced, {sum(faults.values())} faults {dict(faults)}, "
        f"{sum(written.values())} writes; settled {settled:.1f} s after the last fault; "
        f"oldest success {watched.oldest:.1f} s, leads given up {given_up:g}; "
        f"memory by quarter of the time, MiB: {watched.by_quarter(REPLICA)}, {watched.by_quarter(ROLE)}, "
        f"by minute in {tmp_path / 'memory.tsv'}"
    )
    assert written - recorded == Counter()
    assert done - written == Counter()
    assert watched.oldest < MOST_AGE
    assert not any("Traceback" in log for log in logs)
    for name, largest in watched.by_quarter(REPLICA).items():
        assert largest[-1] < 1.06 * largest[1], (name, largest)


def replica(stage: LiveStage, directory: Path, stack: ExitStack, name: str, prometheus: str) -> Replica:
    api = stack.enter_context(ApiServerProxy(stage.plane.address, stage.plane.ca_file))
    fast = {"pass_interval": f"{INTERVAL:g}s", "node_load_interval": "2s", "prometheus_url": prometheus}
    settings = stage.settings("resize", **fast)
    settings["kubeconfig"] = str(api.kubeconfig(Path(settings["kubeconfig"])))
    settings["database_url"], database = stack.enter_context(proxied_database(settings["database_url"]))
    return Replica(name, settings, directory, api, database, stack)


def sized(stage: LiveStage) -> int:
    return sum(requests(pod).cpu < 300 for pod in stage.pods("web"))


def churn(stage: LiveStage, measured: set[str], over: Event, made: list[int]) -> None:
    """Replace pods at a fixed pace; those whose use is measured stay, and speak for the others.

    What an outage of the API server held up is made up for by the next rounds.
    """
    api, drawn = stage.plane.api(), random.Random(7)
    due, owed = time.monotonic(), 0
    while not over.wait(max(0.0, due - time.monotonic())):
        due += EVERY_SECONDS
        owed += AT_ONCE
        # The API server may be away just now.
        try:
            names = [pod["metadata"]["name"] for pod in api.items("pods", stage.namespace, "app=web")]
            for name in drawn.sample(sorted(set(names) - measured), min(owed, len(names) - len(measured))):
                api.delete("pods", stage.namespace, name, grace=0)
                made[0] += 1
                owed -= 1
        except Exception as error:
            print(f"not replaced: {error!r}")
            api = stage.plane.api()


@dataclass(frozen=True, slots=True)
class MemorySample:
    """The memory of a replica at one time; its role is `unknown` where it does not answer."""

    minute: int
    replica: str
    role: str
    mebibytes: int


REPLICA, ROLE = attrgetter("replica"), attrgetter("role")


class Watch:
    """Looks at memory, at who leads and at the age of the last success once a second."""

    def __init__(self, replicas: list[Replica], over: Event) -> None:
        self._replicas = replicas
        self._over = over
        self._samples: list[MemorySample] = []
        self.oldest = 0.0

    def watch(self) -> None:
        began = time.monotonic()
        while not self._over.wait(1):
            for one in self._replicas:
                metrics = one.metrics()
                self.oldest = max([self.oldest, *figures_in(metrics, "cruise_last_success_age_seconds")])
                leads = figures_in(metrics, "cruise_leader")
                role = "unknown" if not leads else "leader" if leads == [1] else "follower"
                minute = int(time.monotonic() - began) // 60
                # None while it is being replaced.
                for memory in re.findall(r"VmRSS:\s+(\d+)", read_status(one.process.process.pid)):
                    self._samples.append(MemorySample(minute, one.name, role, int(memory) // 1024))

    def by_quarter(self, name: Callable[[MemorySample], str]) -> dict[str, list[int]]:
        """The largest memory in each quarter of the time, in MiB, of each replica or of each role."""
        memory: dict[str, list[int]] = {}
        for one in self._samples:
            memory.setdefault(name(one), []).append(one.mebibytes)
        return {each: [max(part) for part in quarters(found)] for each, found in memory.items() if len(found) >= 4}

    def write_minutes(self, file: Path) -> None:
        """Write the largest memory of each replica in each minute, in MiB, separately for each of its roles."""
        largest: dict[tuple[int, str, str], int] = {}
        for one in self._samples:
            key = (one.minute, one.replica, one.role)
            largest[key] = max(one.mebibytes, largest.get(key, 0))
        lines = ["minute\treplica\trole\tMiB", *("\t".join(map(str, (*key, most))) for key, most in largest.items())]
        file.write_text("\n".join(lines) + "\n")


def read_status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def quarters(memory: list[int]) -> list[list[int]]:
    length = max(1, len(memory) // 4)
    return [memory[first : first + length] for first in range(0, 4 * length, length)]


Fault = Callable[[LiveStage, PrometheusProxy, Replica, list[Replica]], None]


def killed(stage: LiveStage, prometheus: PrometheusProxy, victim: Replica, replicas: list[Replica]) -> None:
    """The first replica lives on, as its memory is watched."""
    replicas[1].process.kill()
    replicas[1].start()


def ended(stage: LiveStage, prometheus: PrometheusProxy, victim: Replica, replicas: list[Replica]) -> None:
    replicas[1].process.process.send_signal(signal.SIGTERM)
    replicas[1].process.process.wait(30)
    replicas[1].start()


def stopped(stage: LiveStage, prometheus: PrometheusProxy, victim: Replica, replicas: list[Replica]) -> None:
    victim.process.process.send_signal(signal.SIGSTOP)
    time.sleep(FAULT_LASTS)
    victim.process.process.send_signal(signal.SIGCONT)


def database_gone(stage: LiveStage, prometheus: PrometheusProxy, victim: Replica, replicas: list[Replica]) -> None:
    victim.database.gone = True
    time.sleep(FAULT_LASTS)
    victim.database.gone = False


def database_slow(stage: LiveStage, prometheus: PrometheusProxy, victim: Replica, replicas: list[Replica]) -> None:
    victim.database.delay_seconds = 0.25
    time.sleep(FAULT_LASTS)
    victim.database.delay_seconds = 0


def failed_over(stage: LiveStage, prometheus: PrometheusProxy, victim: Replica, replicas: list[Replica]) -> None:
    victim.database.fail_over()


def prometheus_gone(stage: LiveStage, prometheus: PrometheusProxy, victim: Replica, replicas: list[Replica]) -> None:
    prometheus.answers = FaultAnswers.NONE
    time.sleep(FAULT_LASTS)
    prometheus.answers = FaultAnswers.WHOLE


def prometheus_slow(stage: LiveStage, prometheus: PrometheusProxy, victim: Replica, replicas: list[Replica]) -> None:
    prometheus.delay_seconds = 5
    time.sleep(FAULT_LASTS)
    prometheus.delay_seconds = 0


def storm(stage: LiveStage, prometheus: PrometheusProxy, victim: Replica, replicas: list[Replica]) -> None:
    victim.api.storm = True
    time.sleep(FAULT_LASTS)
    victim.api.storm = False


def api_server_slow(stage: LiveStage, prometheus: PrometheusProxy, victim: Replica, replicas: list[Replica]) -> None:
    victim.api.delay_seconds = 4
    time.sleep(FAULT_LASTS)
    victim.api.delay_seconds = 0


def answers_lost(stage: LiveStage, prometheus: PrometheusProxy, victim: Replica, replicas: list[Replica]) -> None:
    victim.api.released.clear()
    victim.api.unanswered = "/resize"
    time.sleep(FAULT_LASTS)
    victim.api.unanswered = ""
    victim.api.released.set()


def api_server_killed(stage: LiveStage, prometheus: PrometheusProxy, victim: Replica, replicas: list[Replica]) -> None:
    stage.plane.kill_api_server()
    stage.plane.start_api_server()
    stage.plane.restart_controller_manager()


FAULTS: list[tuple[str, Fault]] = [
    (fault.__name__, fault)
    for fault in (
        killed,
        ended,
        stopped,
        database_gone,
        database_slow,
        failed_over,
        prometheus_gone,
        prometheus_slow,
        storm,
        api_server_slow,
        answers_lost,
        api_server_killed,
    )
]
