"""Responses, rejections and timeouts of kubelets, and that no request is sent to an unverified one."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cruise.adapters.kube.client import KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kubelets.client import KubeletAccessMode, KubeletClient, KubeletMetricsPath, KubeletSettings
from cruise.domain.cluster import Node
from cruise.domain.resources import Resources
from cruise.errors import BadInputError, CruiseError, UnavailableError
from tests.adapters.kube.answering_server import (
    AnsweringServer,
    PreparedAnswer,
    ReceivedRequest,
    answer_in_order,
    build_status,
    create_client,
    kubeconfig,
    run_answering_server,
)
from tests.client_certificates import ClientAuthority

TEXT = b"# TYPE container_cpu_usage_seconds_total counter\n"
SAID = PreparedAnswer((TEXT,), headers={"Content-Type": "text/plain"})
USER = {"token": "secret"}


@dataclass(frozen=True)
class Scene:
    """A kubelet with TLS, and what it received."""

    server: AnsweringServer
    node: Node
    authority: Path

    @property
    def tokens(self) -> list[str]:
        """The credentials that it received."""
        return [asked.headers.get("authorization", "") for asked in self.server.asked]


@asynccontextmanager
async def kubelet(
    directory: Path, respond: Callable[[ReceivedRequest], PreparedAnswer], name: str = "kubelets"
) -> AsyncIterator[Scene]:
    authority = ClientAuthority(directory, name)
    files = authority.server("n1", "127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.certificate, files.key)
    async with run_answering_server(respond, tls=tls) as (server, url):
        node = Node("n1", Resources(1000, 2**30), address="127.0.0.1", kubelet_port=int(url.rpartition(":")[2]))
        yield Scene(server, node, authority.file)


async def read(directory: Path, node: Node, settings: KubeletSettings, user: dict[str, str] | None = None) -> bytes:
    config = kubeconfig(directory, "http://127.0.0.1:9", USER if user is None else user)
    async with (
        connect_to_kubernetes(KubernetesSettings(config)) as client,
        aclosing(KubeletClient(settings, client)) as kubelets,
    ):
        return await kubelets.read_metrics(node)


async def get_error(directory: Path, node: Node, settings: KubeletSettings, kind: type[CruiseError]) -> str:
    with pytest.raises(kind) as refused:
        await read(directory, node, settings)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)
    return str(refused.value)


async def test_sends_the_token_only_to_a_verified_kubelet(tmp_path):
    async with kubelet(tmp_path, answer_in_order(SAID)) as scene:
        assert await read(tmp_path, scene.node, KubeletSettings(ca_file=scene.authority)) == TEXT
        [asked] = scene.server.asked
        assert (asked.method, asked.path) == ("GET", "/metrics/cadvisor")
        assert scene.tokens == ["Bearer secret"]
        assert asked.headers["accept-encoding"] == "identity"
        resource = KubeletSettings(endpoint=KubeletMetricsPath.RESOURCE, ca_file=scene.authority)
        assert await read(tmp_path, scene.node, resource) == TEXT
        assert scene.server.asked[-1].path == "/metrics/resource"


async def test_nothing_is_sent_to_a_server_whose_certificate_is_not_accepted(tmp_path):
    other = ClientAuthority(tmp_path, "other").file
    async with kubelet(tmp_path, answer_in_order(SAID)) as scene:
        said = await get_error(tmp_path, scene.node, KubeletSettings(ca_file=other), BadInputError)
        assert "node n1 at 127.0.0.1:" in said
        assert "nothing was sent" in said
        assert "kubelet_ca_file" in said
        assert scene.server.asked == []
        # The system's authorities do not vouch for it either.
        await get_error(tmp_path, scene.node, KubeletSettings(), BadInputError)
        assert scene.server.asked == []
        assert await read(tmp_path, scene.node, KubeletSettings(insecure_tls=True)) == TEXT
        assert scene.tokens == ["Bearer secret"]


async def test_a_kubelet_at_another_address_than_its_certificate_says_gets_nothing(tmp_path):
    authority = ClientAuthority(tmp_path, "kubelets")
    files = authority.server("n2", "10.0.0.2")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.certificate, files.key)
    async with run_answering_server(answer_in_order(SAID), tls=tls) as (server, url):
        node = Node("n1", Resources(1000, 2**30), address="127.0.0.1", kubelet_port=int(url.rpartition(":")[2]))
        assert "127.0.0.1" in await get_error(tmp_path, node, KubeletSettings(ca_file=authority.file), BadInputError)
        assert server.asked == []


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (build_status(401), BadInputError, "authentication.webhook.enabled"),
        (build_status(403), BadInputError, "grant it get on nodes/metrics"),
        (build_status(404), BadInputError, "set kubelet_endpoint"),
        (build_status(500), UnavailableError, "status 500"),
        (build_status(302, headers={"Location": "http://elsewhere/"}), UnavailableError, "status 302"),
        (
            PreparedAnswer((b"x" * 70_000,) * 3, length=None),
            UnavailableError,
            "more than 100,000 bytes: raise kubelet_max_bytes",
        ),
        (PreparedAnswer((TEXT,), length=10_000), UnavailableError, "cannot be read"),
        (PreparedAnswer((TEXT, TEXT), length=None, end=False), UnavailableError, "cannot be read"),
        (PreparedAnswer(silent=True), UnavailableError, "cannot be read"),
    ],
)
async def test_rejects_other_answers_in_one_line(tmp_path, answer, kind, words):
    async with kubelet(tmp_path, answer_in_order(answer)) as scene:
        settings = KubeletSettings(ca_file=scene.authority, max_bytes=100_000)
        said = await get_error(tmp_path, scene.node, settings, kind)
        assert words in said
        assert "node n1" in said


async def test_a_slow_answer_is_not_waited_for(tmp_path):
    async with kubelet(tmp_path, answer_in_order(PreparedAnswer((TEXT, TEXT), pause_seconds=3))) as scene:
        settings = KubeletSettings(ca_file=scene.authority, timeout_seconds=0.3)
        said = await get_error(tmp_path, scene.node, settings, UnavailableError)
        assert "node n1" in said
        assert "did not answer completely within 0.3 s" in said


async def test_reads_refused_credentials_again_once(tmp_path):
    async with kubelet(tmp_path, answer_in_order(build_status(401), SAID)) as scene:
        assert await read(tmp_path, scene.node, KubeletSettings(ca_file=scene.authority)) == TEXT
        assert len(scene.server.asked) == 2


async def test_does_not_query_a_node_without_an_address(tmp_path):
    node = Node("n1", Resources(1000, 2**30))
    assert "no InternalIP" in await get_error(tmp_path, node, KubeletSettings(), UnavailableError)


async def test_works_without_listeners(tmp_path):
    node = Node("n1", Resources(1000, 2**30), address="127.0.0.1", kubelet_port=9)
    assert "cannot be read" in await get_error(tmp_path, node, KubeletSettings(), UnavailableError)


async def test_uses_the_api_server_only_if_configured(tmp_path):
    node = Node("n1", Resources(1000, 2**30), address="127.0.0.1", kubelet_port=9)
    settings = KubeletSettings(access=KubeletAccessMode.NODE_PROXY)
    async with create_client(tmp_path, answer_in_order(SAID, build_status(403)), USER) as (client, server):
        async with aclosing(KubeletClient(settings, client)) as kubelets:
            assert await kubelets.read_metrics(node) == TEXT
            assert [asked.path for asked in server.asked] == ["/api/v1/nodes/n1/proxy/metrics/cadvisor"]
            with pytest.raises(BadInputError, match=r"grant it get on nodes/proxy; the API server says: .+"):
                await kubelets.read_metrics(node)
