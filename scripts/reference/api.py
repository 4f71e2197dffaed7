"""The reference page of the API, from its OpenAPI document."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from cruise.interfaces.http.api import API_PREFIX, create_api
from cruise.interfaces.http.view import ApiView
from scripts.reference.markdown import code, page, section, table

_INTRODUCTION = f"""Call the API of `cruise serve` at `http_address`; `GET {API_PREFIX}/openapi.json` is its OpenAPI
document. [operating.md](../operating.md#who-may-use-the-api) describes the required rights. Errors
are `{{"error": "…"}}` in one line. Every call may return 401 (no token), 403 (no right), 421
(unknown host) or 429 (too many requests)."""
_METHODS = ("get", "put", "post", "delete", "patch")


def api_page() -> str:
    """Return the page."""
    # Routes are described without calls, so no view is needed.
    document = create_api(cast(ApiView, None)).openapi()
    calls = list(_list_calls(document))
    listed = table(
        ("call", "does"), ((code(f"{method.upper()} {path}"), _summarize(call)) for method, path, call in calls)
    )
    parts = [_render_call(method, path, call) for method, path, call in calls]
    probes = table(
        ("call", "does"),
        [
            ("`GET /healthz`", "200 while the process runs."),
            ("`GET /readyz`", "200, or 503 with the reasons why it is not ready, one a line."),
            ("`GET /metrics`", "[Metrics](metrics.md)."),
        ],
    )
    return page("API", _INTRODUCTION, listed, section("Probes, of both programs", probes), *parts)


def _list_calls(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, calls in document["paths"].items():
        for method in _METHODS:
            if method in calls:
                yield method, path, calls[method]


def _summarize(call: Mapping[str, Any]) -> str:
    return " ".join(call.get("description", "").split("\n\n")[0].split())


def _render_call(method: str, path: str, call: Mapping[str, Any]) -> str:
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
