"""`cruise webhook` as a process: invalid settings, graceful shutdown, and an unstable database."""

import asyncio
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cruise.adapters.store.postgres import open_store
from cruise.adapters.webhook_tls.certificates import make_key_pair
from tests.adapters.webhook_tls.test_certificate_keeper import given as certificate_of_others
from tests.admission_reviews import decode_response, encode_review, get_patch, make_review
from tests.builders import make_pod_json, make_statistic, make_table
from tests.controlplane.api import wait_until
from tests.controlplane.manifests import pod_template, workload
from tests.e2e.live.programs import RunningProgram, environment, run, run_webhook
from tests.postgres_servers import emptied, free_port

NOW = datetime.now(UTC)  # noqa: TID251 - processes have the real time
UNVERIFIED = ssl._create_unverified_context()


@pytest.fixture
def settings(control_plane, admin, namespace, tmp_path):
    # The pods of the reviews: a pod whose owner was not seen gets no patch.
    admin.create(workload("Deployment", namespace, "web", pod_template("web"), 0))
    return {
        "kubeconfig": str(control_plane.kubeconfig()),
        "mode": "initial",
        "webhook_configuration": f"cruise-{namespace}",
        "data_dir": str(tmp_path / "data"),
        "new_workload_age": "0s",
        "memory_limit_history": "0s",
        "webhook_address": f"127.0.0.1:{free_port()}",
        "database_url": f"postgresql://nobody@127.0.0.1:{free_port()}/none",
    }


def complaint(settings, directory, code: int = 2) -> str:
    """The one line that a command complains in."""
    ended = run(["webhook"], settings, directory, seconds=60)
    lines = [line for line in ended.err.splitlines() if not line.startswith("{")]
    assert (ended.code, len(lines)) == (code, 1), ended.err
    assert "Traceback" not in ended.err
    return lines[0]


def write_certificate(directory: Path, now: datetime = NOW, lifetime=timedelta(days=1)) -> None:
    directory.mkdir()
    pair, _ = make_key_pair(["localhost"], now, lifetime)
    (directory / "tls.crt").write_bytes(pair.certificate)
    (directory / "tls.key").write_bytes(pair.key)


def test_a_taken_port(settings, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings["webhook_address"] = f"127.0.0.1:{taken.getsockname()[1]}"
        assert "another process listens there already" in complaint(settings, tmp_path)


def test_certificates_that_cannot_be_served(settings, tmp_path):
    directory = tmp_path / "tls"
    settings["tls_dir"] = str(directory)
    write_certificate(directory)
    other, _ = make_key_pair(["localhost"], NOW, timedelta(days=1))
    (directory / "tls.key").write_bytes(other.key)
    assert f"{directory}: tls.key is not the key of tls.crt" in complaint(settings, tmp_path)
    (directory / "tls.key").unlink()
    assert f"{directory}: tls.key is missing" in complaint(settings, tmp_path)
    (directory / "tls.crt").unlink()
    (directory / "tls.crt").mkdir()
    assert "tls.crt cannot be read: Is a directory" in complaint(settings, tmp_path)


def test_an_expired_certificate_of_another_issuer(settings, tmp_path):
    directory = tmp_path / "tls"
    directory.mkdir()
    settings["tls_dir"] = str(directory)
    for name, text in certificate_of_others(now=NOW - timedelta(days=2), lifetime=timedelta(days=1)).items():
        (directory / name).write_bytes(text)
    assert f"{directory}: tls.crt expired at" in complaint(settings, tmp_path)


def test_a_cluster_without_a_name(settings, tmp_path):
    settings["kubeconfig"] = str(tmp_path / "none")
    assert "does not exist" in complaint(settings, tmp_path)


@contextmanager
def connected(address: str) -> Iterator[http.client.HTTPSConnection]:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=UNVERIFIED)
    try:
        yield connection
    finally:
        connection.close()


def ask(address: str, namespace: str):
    pod = make_pod_json(name="", namespace=namespace, node=None)
    with connected(address) as connection:
        connection.request("POST", "/mutate?timeout=2s", encode_review(make_review(pod, namespace=namespace)))
        return decode_response(connection.getresponse().read())


def test_at_its_end_what_is_in_flight_is_answered_and_probes_say_so(settings, tmp_path, namespace):
    address = settings["webhook_address"]
    body = encode_review(make_review(make_pod_json(name="", namespace=namespace, node=None), namespace=namespace))
    with run_webhook(settings, tmp_path, address) as webhook, connected(address) as connection:
        connection.putrequest("POST", "/mutate")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:100])
        webhook.process.send_signal(signal.SIGTERM)
        wait_until(lambda: webhook.get("/readyz") == (503, "stopping\n"), "the probe says that it is stopping")
        assert webhook.get("/healthz")[0] == 200
        connection.send(body[100:])
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Connection")) == (200, "close")
        assert decode_response(answer.read())["allowed"]
        assert webhook.process.wait(30) == 0
        assert "Traceback" not in webhook.log


def test_idle_connections_do_not_hold_up_the_end(settings, tmp_path, namespace):
    address = settings["webhook_address"]
    with run_webhook(settings, tmp_path, address) as webhook, connected(address) as connection:
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        webhook.process.send_signal(signal.SIGTERM)
        assert webhook.process.wait(30) == 0


def test_a_database_outage_costs_freshness_but_no_review(settings, tmp_path, namespace, debian_postgres):
    emptied(debian_postgres.url)
    settings["database_url"] = debian_postgres.url
    # Of this moment: the module may have been imported so long ago that statistics of then are stale.
    updated_at = int(datetime.now(UTC).timestamp()) + 60  # noqa: TID251 - processes have the real time
    statistic = make_statistic("", namespace, cpu_peak=300, memory_peak_mib=200, updated_at=updated_at)
    asyncio.run(_write(debian_postgres.url, make_table(statistic)))
    address = settings["webhook_address"]
    with run_webhook(settings, tmp_path, address) as webhook:
        wait_until(lambda: get_patch(ask(address, namespace)), "statistics are read")
        with debian_postgres.away():
            wait_until(lambda: "store not read" in webhook.log, "the loss is noticed")
            for _ in range(20):
                assert get_patch(ask(address, namespace))
            assert webhook.ready()
        wait_until(lambda: webhook.log.count("store read") > 1, "the database is read again")
        assert get_patch(ask(address, namespace))


async def _write(url: str, table) -> None:
    async with open_store(url, Path("/nowhere"), lambda line: None) as store:
        await store.write_statistics(table)


def test_it_starts_and_answers_without_a_database(settings, tmp_path, namespace):
    address = settings["webhook_address"]
    with run_webhook(settings, tmp_path, address) as webhook:
        assert webhook.ready()
        assert ask(address, namespace) == {"uid": ask(address, namespace)["uid"], "allowed": True}
        assert 'cruise_webhook_reviews_total{answer="left",reason="no-statistics"}' in webhook.get("/metrics")[1]


def test_without_an_api_server_it_waits_with_its_port_open_and_ends_on_a_signal(settings, tmp_path, control_plane):
    text = Path(settings["kubeconfig"]).read_text().replace(control_plane.address, f"https://127.0.0.1:{free_port()}")
    (tmp_path / "away.kubeconfig").write_text(text)
    settings["kubeconfig"] = str(tmp_path / "away.kubeconfig")
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "cruise", "webhook"], env=environment(settings, tmp_path), stdout=out, stderr=out
        )
    webhook = RunningProgram(process, f"https://{settings['webhook_address']}", log)
    try:
        status, reasons = wait_until(lambda: _answered(webhook), "it answers probes")
        assert status == 503
        assert "waiting for the cluster" in reasons or "cannot be reached" in reasons
        response = ask(settings["webhook_address"], "shop")
        assert response["warnings"] == ["cruise leaves the pod as it is: not ready yet"]
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == 0
        assert "Traceback" not in webhook.log
    finally:
        webhook.kill()


def _answered(webhook: RunningProgram):
    told = webhook.get("/readyz")
    return told if told[0] else None


def test_garbage_over_the_wire_is_answered_by_the_process(settings, tmp_path, namespace):
    address = settings["webhook_address"]
    with run_webhook(settings, tmp_path, address) as webhook:
        for body in (b"", b"\xff\x00", b"{", json.dumps([1]).encode(), b"[" * 100_000):
            with connected(address) as connection:
                connection.request("POST", "/mutate", body)
                answer = connection.getresponse()
                assert answer.status == 200
                assert decode_response(answer.read())["warnings"]
        with connected(address) as connection:
            connection.request("POST", "/mutate", b"x" * (9 << 20))
            answer = connection.getresponse()
            assert answer.status == 200
            assert "larger than 1024 KiB" in decode_response(answer.read())["warnings"][0]
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            plain.recv(100)
        assert webhook.get("/mutate")[0] == 405
        assert webhook.get("/other")[0] == 404
        assert webhook.ready()
        assert "Traceback" not in webhook.log
