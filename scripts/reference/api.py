"""The page of the API, from its OpenAPI document."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from cruise.interfaces.http.api import API_PREFIX, create_api
from cruise.interfaces.http.view import ApiView
from scripts.reference.markdown import code, page, section, table

_INTRODUCTION = f"""`cruise serve` answers at `http_address`; `GET {API_PREFIX}/openapi.json` describes the same to
programs. Who may call what is in [operating.md](../operating.md#who-may-use-the-api). Errors
are `{{"error": "…"}}` in one line. 401, 403, 421 and 429 may come of every call: no token, no
right, an unknown host, too many at a time."""
_METHODS = ("get", "put", "post", "delete", "patch")


def api_page() -> str:
    """Return the page."""
    # Nothing is asked of it: routes are described without being called.
    document = create_api(cast(ApiView, None)).openapi()
    calls = list(_calls(document))
    listed = table(("call", "does"), ((code(f"{method.upper()} {path}"), _first(call)) for method, path, call in calls))
    parts = [_call(method, path, call) for method, path, call in calls]
    probes = table(
        ("call", "does"),
        [
            ("`GET /healthz`", "Whether the process answers."),
            ("`GET /readyz`", "200, or 503 with the reasons why it cannot do its work, one a line."),
            ("`GET /metrics`", "[Metrics](metrics.md)."),
        ],
    )
    return page("API", _INTRODUCTION, listed, section("Probes, of both programs", probes), *parts)


def _calls(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, calls in document["paths"].items():
        for method in _METHODS:
            if method in calls:
                yield method, path, calls[method]


def _first(call: Mapping[str, Any]) -> str:
    return " ".join(call.get("description", "").split("\n\n")[0].split())


def _call(method: str, path: str, call: Mapping[str, Any]) -> str:
    parts = [" ".join(paragraph.split()) for paragraph in call.get("description", "").split("\n\n")]
    rows = [
        (code(one["name"]), one["in"], "yes" if one.get("required") else "", one.get("description", ""))
        for one in call.get("parameters", ())
    ]
    if rows:
        parts.append(table(("parameter", "in", "required", "meaning"), rows))
    body = call.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if body.get("description"):
        parts.append(f"Body: {body['description']}")
    codes = ", ".join(f"{status} {one['description']}" for status, one in sorted(call["responses"].items()))
    parts.append(f"Answers: {codes.replace('Successful Response', 'done')}.")
    return section(f"{method.upper()} {path}", *parts)
