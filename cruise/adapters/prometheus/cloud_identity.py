"""Credentials of cloud providers for a managed Prometheus: AWS signatures, and access tokens of Google and Azure.

The providers' own libraries find the credentials as all their tools do: environment, files, the pod's service account
(IRSA, Pod Identity, Workload Identity), the machine. They are optional, and are imported when they are used.
"""

import re
import threading
from collections.abc import Callable
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase

from cruise.adapters.prometheus.settings import CloudProvider
from cruise.errors import BadInputError, UnavailableError

_AWS_HOST = re.compile(r"aps-workspaces(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws|api)\.")
_AWS_SERVICE = "aps"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/monitoring.read"
_AZURE_SCOPE = "https://prometheus.monitor.azure.com/.default"
_TIMEOUT_SECONDS = 10.0
_MESSAGE_LENGTH = 200


def create_cloud_auth(identity: CloudProvider, url: str, region: str | None) -> AuthBase:
    """Return the credentials for requests to `url`; `region` is that of an AWS workspace, None to read it from `url`.

    Raises BadInputError if the provider's library is missing or the region is unknown.
    """
    try:
        if identity is CloudProvider.AWS:
            return _AwsSignature(region or _read_region(url))
        return _GoogleToken() if identity is CloudProvider.GOOGLE else _AzureToken()
    except ImportError as error:
        raise BadInputError(
            f"prometheus_identity {identity} needs a package that is not installed: pip install 'cruise[{identity}]'"
        ) from error


def _read_region(url: str) -> str:
    found = _AWS_HOST.match(urlsplit(url).hostname or "")
    if found is None:
        raise BadInputError("prometheus_aws_region is not set, and prometheus_url is no address of a workspace of AWS")
    return found.group(1)


class _AwsSignature(AuthBase):
    """Signs each request by Signature Version 4, with credentials that the library renews."""

    def __init__(self, region: str) -> None:
        from awscrt import auth, exceptions, http, io

        self._auth, self._http, self._io = auth, http, io
        self._errors = (exceptions.AwsCrtError, TimeoutError)
        provider = auth.AwsCredentialsProvider.new_default_chain()
        self._create_config: Callable[[], Any] = lambda: auth.AwsSigningConfig(
            algorithm=auth.AwsSigningAlgorithm.V4,
            signature_type=auth.AwsSignatureType.HTTP_REQUEST_HEADERS,
            credentials_provider=provider,
            region=region,
            service=_AWS_SERVICE,
        )

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        body = request.body if isinstance(request.body, bytes) else (request.body or "").encode()
        # A space written as + is one to some verifiers only.
        request.url = (request.url or "").replace("+", "%20")
        parts = urlsplit(request.url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        # Only what the signature covers: proxies may change other headers.
        headers = [("Host", parts.netloc)]
        if "Content-Type" in request.headers:
            headers.append(("Content-Type", request.headers["Content-Type"]))
        unsigned = self._http.HttpRequest(
            request.method, path, self._http.HttpHeaders(headers), self._io.InputStream(BytesIO(body))
        )
        try:
            signed = self._auth.aws_sign_request(unsigned, self._create_config()).result(_TIMEOUT_SECONDS)
        except self._errors as error:
            raise UnavailableError(f"AWS gave no credentials for Prometheus: {error}") from error
        request.headers.update(dict(signed.headers))
        return request


class _GoogleToken(AuthBase):
    """An access token, renewed before it expires."""

    def __init__(self) -> None:
        import google.auth
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        self._find_default = google.auth.default
        self._errors = (GoogleAuthError, ValueError)
        self._transport = Request(requests.Session())
        self._credentials: Any = None
        self._lock = threading.Lock()

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            with self._lock:
                if self._credentials is None:
                    self._credentials, _ = self._find_default(scopes=[_GOOGLE_SCOPE])
                if not self._credentials.valid:
                    self._credentials.refresh(self._transport)
        except self._errors as error:
            raise UnavailableError(f"Google gave no token for Prometheus: {_shorten(error)}") from error
        request.headers["Authorization"] = f"Bearer {self._credentials.token}"
        return request


class _AzureToken(AuthBase):
    """An access token, which the library keeps and renews."""

    def __init__(self) -> None:
        from azure.core.exceptions import AzureError
        from azure.identity import DefaultAzureCredential

        self._errors = (AzureError, ValueError)
        self._credential = DefaultAzureCredential()

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            token = self._credential.get_token(_AZURE_SCOPE).token
        except self._errors as error:
            raise UnavailableError(f"Azure gave no token for Prometheus: {_shorten(error)}") from error
        request.headers["Authorization"] = f"Bearer {token}"
        return request


def _shorten(error: Exception) -> str:
    """Return the first part of a message, which lists every place where credentials were looked for."""
    return " ".join(str(error).split())[:_MESSAGE_LENGTH]
