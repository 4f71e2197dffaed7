"""Every kind of error response, each reported as one clear line."""

import base64
import gzip
import json
import shutil
import subprocess
import time
from typing import Any

import certifi
import pytest

from cruise.adapters.prometheus.client import PrometheusClient, QueryTooLargeError
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.errors import BadInputError, CruiseError, ThrottledError, UnavailableError
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering
from tests.prometheus_server import free_port

SUCCESS = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'


def ask(url: str, **settings: Any) -> bytes:
    client = PrometheusClient(PrometheusSettings(url, **{"timeout_seconds": 5.0, **settings}))
    try:
        return client.query_range("up", 60, 300, 60)
    finally:
        client.close()


def refused(answer: HttpAnswer, **settings: Any) -> CruiseError:
    with answering(lambda request: answer) as url, pytest.raises(CruiseError) as caught:
        ask(url, **settings)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    return caught.value


def seen(**settings: Any) -> ReceivedHttpRequest:
    requests: list[ReceivedHttpRequest] = []

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        requests.append(request)
        return HttpAnswer(body=SUCCESS)

    with answering(respond) as url:
        assert ask(url, **settings) == SUCCESS
    return requests[0]


def test_a_query_is_posted_as_a_form():
    request = seen()
    assert request.path == "/api/v1/query_range"
    assert {name: request.form[name] for name in ("query", "start", "end", "step")} == {
        "query": "up",
        "start": "60",
        "end": "300",
        "step": "60",
    }


def test_an_address_may_have_a_path_and_end_in_a_slash():
    requests: list[ReceivedHttpRequest] = []

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        requests.append(request)
        return HttpAnswer(body=SUCCESS)

    with answering(respond) as url:
        ask(f"{url}/prometheus/")
    assert requests[0].path == "/prometheus/api/v1/query_range"


def test_headers_are_sent_with_every_request():
    assert seen(headers={"X-Scope-OrgID": "team-a"}).headers["X-Scope-OrgID"] == "team-a"


def test_a_user_and_password_are_sent():
    credentials = seen(user="cruise", password="secret").headers["Authorization"]
    assert base64.b64decode(credentials.removeprefix("Basic ")) == b"cruise:secret"


def test_a_token_is_read_again_when_its_file_changes(tmp_path):
    token = tmp_path / "token"
    token.write_text("first\n")
    sent: list[str] = []

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        sent.append(request.headers["Authorization"])
        return HttpAnswer(body=SUCCESS)

    with answering(respond) as url:
        client = PrometheusClient(PrometheusSettings(url, token_file=token))
        client.query_range("up", 60, 60, 60)
        fresh = tmp_path / "fresh"
        fresh.write_text("second\n")
        fresh.rename(token)
        client.query("up", 60)
        client.close()
    assert sent == ["Bearer first", "Bearer second"]


def test_does_not_use_credentials_of_a_netrc_file(tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert "Authorization" not in seen().headers


def test_a_missing_token_file_is_named(tmp_path):
    with pytest.raises(BadInputError, match=r"prometheus_token_file .*nowhere cannot be read"):
        ask(f"http://127.0.0.1:{free_port()}", token_file=tmp_path / "nowhere")


@pytest.mark.parametrize("status", [401, 403])
def test_rejected_credentials_name_the_setting(status, tmp_path):
    token = tmp_path / "token"
    token.write_text("wrong")
    error = refused(HttpAnswer(status), token_file=token)
    assert isinstance(error, BadInputError)
    assert "rejected the credentials" in str(error)
    assert "prometheus_token_file" in str(error)


def test_missing_credentials_name_the_setting():
    error = refused(HttpAnswer(401, b"Unauthorized"))
    assert isinstance(error, BadInputError)
    assert "requires credentials (401): set prometheus_token_file" in str(error)


def test_a_rejected_query_has_the_servers_reason_shortened():
    body = b'{"status":"error","errorType":"bad_data","error":"invalid parameter \\"query\\":\\nparse error %s"}'
    error = refused(HttpAnswer(400, body % (b"x" * 1000)))
    assert isinstance(error, BadInputError)
    assert 'rejected the query (400): invalid parameter "query": parse error xxx' in str(error)
    assert str(error).endswith("…")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (422, "query processing would load too many samples into memory in query execution"),
        (400, "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution"),
        (
            422,
            "the query time range exceeds the limit (query length: 26h0m0s, limit: 24h0m0s) (err-mimir-max-query-len)",
        ),
        (422, "expanding series: the query exceeded the maximum number of chunks (limit: 2000000 chunks)"),
        (422, "the query hit the max number of series limit (limit: 100000 series)"),
        (422, "the query exceeded the aggregated chunks size limit (limit: 1 bytes) (err-mimir-max-chunks-bytes-per)"),
        (422, f"error when executing query={'x' * 400}: too many points for the given step=60000, start=1 and end=2"),
        (422, "cannot select more than -search.maxSamplesPerQuery=1000000000 samples"),
        (503, "the number of matching timeseries exceeds 300000; either narrow down the search or increase"),
        (500, "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (5 vs. 4)"),
        (422, "rpc error: code = Aborted desc = limit 5 violated (got 6)"),
        (413, ""),
    ],
)
def test_distinguishes_a_too_large_query_from_an_invalid_one(status, said):
    error = refused(HttpAnswer(status, json.dumps({"status": "error", "error": said}).encode()))
    assert isinstance(error, QueryTooLargeError)
    assert "lower prometheus_max_samples_per_query or prometheus_max_series_per_query" in str(error)


def test_a_failed_store_of_thanos_is_unavailable():
    # Thanos where partial responses are declined.
    said = "expanding series: proxy Series(): rpc error: code = Aborted desc = No StoreAPIs matched for this query"
    error = refused(HttpAnswer(422, json.dumps({"status": "error", "errorType": "execution", "error": said}).encode()))
    assert isinstance(error, UnavailableError)
    assert "cannot answer at present (422): expanding series" in str(error)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"1" * 5000])
def test_a_reason_that_cannot_be_read_is_none(body):
    error = refused(HttpAnswer(400, body))
    assert isinstance(error, BadInputError)
    assert "rejected the query (400)" in str(error)


@pytest.mark.parametrize("status", [202, 204, 206])
def test_a_success_without_a_result_is_unavailable(status):
    error = refused(HttpAnswer(status))
    assert isinstance(error, UnavailableError)
    assert f"answered without the result of the query ({status})" in str(error)


def test_uses_the_retry_after_of_a_full_query_frontend():
    body = b'{"status":"error","error":"too many outstanding requests"}'
    for status in (429, 503):
        error = refused(HttpAnswer(status, body, {"Retry-After": "7"}))
        assert isinstance(error, ThrottledError)
        assert error.retry_after_seconds == 7


def test_an_answer_may_be_packed_although_that_was_not_asked_for():
    with answering(
        lambda request: HttpAnswer(body=gzip.compress(SUCCESS), headers={"Content-Encoding": "gzip"})
    ) as url:
        assert ask(url) == SUCCESS


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "Fri, 01 Jan 2100 00:00:20 GMT", "Date": "Fri, 01 Jan 2100 00:00:00 GMT"}, 20.0),
        ({"Retry-After": "soon"}, None),
        ({}, None),
    ],
)
def test_too_many_requests_have_a_retry_after(headers, seconds):
    with answering(lambda request: HttpAnswer(429, headers=headers)) as url, pytest.raises(ThrottledError) as caught:
        ask(url)
    assert caught.value.retry_after_seconds == seconds


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_that_cannot_answer_is_unavailable(status):
    error = refused(HttpAnswer(status, b'{"status":"error","error":"query timed out in expression evaluation"}'))
    assert isinstance(error, UnavailableError)
    assert f"cannot answer at present ({status}): query timed out" in str(error)


def test_does_not_repeat_a_query_that_was_received():
    requests: list[ReceivedHttpRequest] = []

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        requests.append(request)
        return HttpAnswer(503)

    with answering(respond) as url, pytest.raises(UnavailableError):
        ask(url)
    assert len(requests) == 1


def test_a_redirect_names_its_target():
    error = refused(HttpAnswer(302, headers={"Location": "https://login.example/"}))
    assert isinstance(error, BadInputError)
    assert "redirects to https://login.example/ (302): set prometheus_url" in str(error)


def test_an_address_without_the_api_is_named():
    error = refused(HttpAnswer(404, b"404 page not found"))
    assert isinstance(error, BadInputError)
    assert "set prometheus_url to the address before /api/v1" in str(error)


def test_an_incomplete_answer_is_unavailable():
    error = refused(HttpAnswer(200, SUCCESS[:20], length=len(SUCCESS)))
    assert isinstance(error, UnavailableError)
    assert "the answer was incomplete" in str(error)


def test_a_connection_that_is_hung_up_is_unavailable():
    error = refused(HttpAnswer(length=None))
    assert isinstance(error, UnavailableError)
    assert "cannot be reached: Remote end closed connection" in str(error)


def test_a_server_that_does_not_listen_is_unavailable():
    with pytest.raises(UnavailableError, match="cannot be reached: Connection refused"):
        ask(f"http://127.0.0.1:{free_port()}")


def test_an_answer_that_takes_too_long_is_unavailable():
    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        time.sleep(0.5)
        return HttpAnswer(body=SUCCESS)

    with answering(respond) as url, pytest.raises(UnavailableError, match=r"did not answer within 0\.1 s"):
        ask(url, timeout_seconds=0.1)


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://prometheus", "http://", ""])
def test_an_invalid_address_is_named(url):
    with pytest.raises(BadInputError, match="prometheus_url is "):
        ask(url)


def test_a_server_without_tls_is_no_https_server():
    with answering(lambda request: HttpAnswer()) as url, pytest.raises(BadInputError, match="TLS failed"):
        ask(url.replace("http://", "https://"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine to make a certificate with")
    directory = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=prometheus -keyout key -out crt".split()
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    both = directory / "both.pem"
    both.write_text((directory / "crt").read_text() + (directory / "key").read_text())
    return both


def test_tls_is_verified_by_the_ca_file_and_only_left_out_on_demand(certificate, monkeypatch):
    with answering(lambda request: HttpAnswer(body=SUCCESS), certificate) as url:
        with pytest.raises(BadInputError, match="TLS failed"):
            ask(url)
        assert ask(url, ca_file=certificate) == SUCCESS
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
        assert ask(url, ca_file=certificate) == SUCCESS
        assert ask(url, insecure_tls=True) == SUCCESS


def test_reports_a_missing_ca_file(tmp_path):
    with pytest.raises(BadInputError, match=r"CA file .*nowhere\.crt does not exist"):
        ask("https://127.0.0.1:1", ca_file=tmp_path / "nowhere.crt")
