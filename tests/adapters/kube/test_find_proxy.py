import pytest

from cruise.adapters.kube.credentials import find_proxy

PROXY = {"HTTPS_PROXY": "http://proxy.example.com:3128", "HTTP_PROXY": "http://other.example.com:3128"}


@pytest.mark.parametrize(
    ("server", "environment", "proxy"),
    [
        ("https://k8s.example.com", {}, None),
        ("https://k8s.example.com", PROXY, "http://proxy.example.com:3128"),
        ("http://k8s.example.com", PROXY, "http://other.example.com:3128"),
        ("https://k8s.example.com", {"https_proxy": "http://p:1"}, "http://p:1"),
        ("https://k8s.example.com", {"HTTPS_PROXY": "http://a:1", "https_proxy": "http://b:1"}, "http://a:1"),
        ("https://k8s.example.com", {"HTTPS_PROXY": "p:1"}, "http://p:1"),
        ("https://k8s.example.com", {"HTTPS_PROXY": ""}, None),
        ("https://k8s.example.com", {"HTTP_PROXY": "http://p:1"}, None),
        ("https://localhost:6443", PROXY, None),
        ("https://127.0.0.1:6443", PROXY, None),
        ("https://[::1]:6443", PROXY, None),
        ("not an address", PROXY, None),
    ],
)
def test_the_environment_names_a_proxy(server: str, environment: dict[str, str], proxy: str | None):
    assert find_proxy(server, environment) == proxy


@pytest.mark.parametrize(
    ("server", "listed", "direct"),
    [
        ("https://k8s.example.com", "*", True),
        ("https://k8s.example.com", "example.com", True),
        ("https://k8s.example.com", ".example.com", True),
        ("https://k8s.example.com", "*.example.com", True),
        ("https://example.com", "example.com", True),
        ("https://example.com", ".example.com", False),
        ("https://notexample.com", "example.com", False),
        ("https://K8S.Example.com.", "k8s.example.COM", True),
        ("https://k8s.example.com:6443", "k8s.example.com:6443", True),
        ("https://k8s.example.com:6443", "k8s.example.com:443", False),
        ("https://k8s.example.com", "k8s.example.com:443", True),
        ("https://10.96.0.1:443", "10.96.0.0/12", True),
        ("https://10.112.0.1:443", "10.96.0.0/12", False),
        ("https://10.96.0.1", "10.96.0.1", True),
        ("https://10.96.0.1", "10.96.0.1:6443", False),
        ("https://[fd00::1]:443", "fd00::/8", True),
        ("https://[fd00::1]:443", "[fd00::1]:443", True),
        ("https://[fd00::1]:443", "fd00::1", True),
        ("https://[fd00::1]:443", "[fd00::1]:80", False),
        ("https://10.96.0.1", "example.com, 10.96.0.1 ,", True),
        ("https://10.96.0.1", "10.96.0.0/99,nonsense/12,:,[", False),
        ("https://k8s.example.com", "", False),
    ],
)
def test_queries_some_servers_without_a_proxy(server: str, listed: str, direct: bool):
    for name in ("NO_PROXY", "no_proxy"):
        assert (find_proxy(server, {**PROXY, name: listed}) is None) == direct
