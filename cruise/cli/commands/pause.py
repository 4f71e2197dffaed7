"""`cruise revert`: resize pods back to their original requests, without evictions."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import ConfigOption, FormatOption, OutputFormat, create_optional_option, resolve_settings
from cruise.cli.terminal import (
    create_table_console,
    print_error,
    print_report,
    print_result,
    redirect_logs,
    show_spinner,
    write_json,
)
from cruise.errors import BadInputError

# `cruise pause` and `cruise resume`: stop every write at once, and let writes go on.

if TYPE_CHECKING:
    from cruise.settings import Settings

ServerOption = Annotated[
    str | None, create_optional_option("--server", "URL", "The API of a cruise that runs elsewhere.")
]
TokenOption = Annotated[
    Path | None, create_optional_option("--token-file", "FILE", "Its token; api_token_file if not given.")
]


def pause(
    server: ServerOption = None,
    token_file: TokenOption = None,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Stop every write to the cluster at once; nothing is undone.

    The pause is kept in the store that the running cruise uses (database_url,
    or data_dir on its machine), and outlives restarts. From elsewhere, give
    --server and the token of its API.

    Examples:
      cruise pause

      cruise pause --server https://cruise.example.org --token-file token

      kubectl -n cruise exec deploy/cruise-serve -- cruise pause
    """
    _set_paused(True, server, token_file, format, config)


def resume(
    server: ServerOption = None,
    token_file: TokenOption = None,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Let writes to the cluster go on after `cruise pause`, from the next pass on.

    What was decided meanwhile is not made up for: the next pass decides anew.

    Examples:
      cruise resume

      cruise resume --server https://cruise.example.org --token-file token
    """
    _set_paused(False, server, token_file, format, config)


@dataclass(frozen=True, slots=True)
class _StateBefore:
    """How it was before, and where it was changed, in words."""

    paused: bool
    location: str


def _set_paused(
    paused: bool, server: str | None, token_file: Path | None, format: OutputFormat, config: Path | None
) -> None:
    """Pause or resume, and say what that means. Raises BadInputError, Unavailable."""
    settings = resolve_settings(config)
    if server is not None:
        before = _through_api(paused, server, token_file or settings.api_token_file)
    elif token_file is not None:
        raise BadInputError("--token-file needs --server: the store needs no token")
    else:
        before = asyncio.run(_in_store(paused, settings))
    if format is OutputFormat.JSON:
        import msgspec

        document = {"paused": paused, "pausedBefore": before.paused, "place": before.location}
        write_json([msgspec.json.encode(document) + b"\n"])
        return
    from rich.text import Text

    print_report([Text(line) for line in _words(paused, before)], create_table_console())


def _words(paused: bool, before: _StateBefore) -> list[str]:
    if paused is before.paused:
        return [f"Nothing changed: {'paused already' if paused else 'it was not paused'}, in {before.location}."]
    if paused:
        return [
            f"Paused, in {before.location}.",
            "Every running cruise sees it within a second and begins nothing more; a request that the API server "
            "has already is not called back. Passes go on and show what they would do.",
            "`cruise resume` lets writes go on, `cruise revert` puts back the original requests.",
        ]
    return [f"Resumed, in {before.location}.", "Writes go on with the next pass."]


def _through_api(paused: bool, server: str, token_file: Path | None) -> _StateBefore:
    from cruise.adapters.api_client import ApiClient

    client = ApiClient(server, token_file)
    before = client.is_paused()
    client.set_paused(paused)
    return _StateBefore(before, client.address)


async def _in_store(paused: bool, settings: "Settings") -> _StateBefore:
    from cruise.app.process import get_current_time, get_local_caller
    from cruise.cli.inputs.store import describe_store, open_existing_store
    from cruise.domain.users import UserAction, UserActionKind

    async with open_existing_store(settings) as store:
        before = await store.paused()
        await store.record_user_action(
            UserAction(
                get_current_time(), get_local_caller(), UserActionKind.PAUSE if paused else UserActionKind.RESUME
            )
        )
        await store.set_paused(paused)
    return _StateBefore(before, describe_store(settings))


if TYPE_CHECKING:
    from cruise.app.revert import RevertResult
    from cruise.domain.cluster import WorkloadRef
    from cruise.settings import Settings


def revert(
    namespace: Annotated[
        str | None, create_optional_option("--namespace", "NAME", "Only pods of this namespace.", "-n")
    ] = None,
    workload: Annotated[
        str | None,
        create_optional_option(
            "--workload", "KIND/NAME", "Only pods of this workload, which is left in mode observe.", "-w"
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Pause cruise, and resize running pods back to the requests and limits that they had before it; no pod is evicted.

    Original sizes are in an annotation of pods that were sized when they were
    created, and in the store for pods that were resized since: it has to be
    the store that the running cruise uses. cruise stays paused afterwards.

    With --workload it goes on with the others: mode observe is stored for
    that workload, until the override is removed in the dashboard or the API.

    Examples:
      cruise revert

      cruise revert --namespace shop --yes --format json

      cruise revert --namespace shop --workload Deployment/web

      kubectl -n cruise exec deploy/cruise-serve -- cruise revert --yes
    """
    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise BadInputError("revert resizes running pods: give --yes where no terminal can confirm it")
    of = _workload(workload, namespace)
    settings = resolve_settings(config)
    with redirect_logs():
        if not yes and not _agreed(settings, namespace, of):
            print_error("nothing was changed")
            raise typer.Exit(1)
        done = _put_back(settings, namespace, of)
    _print(done, of, format)
    if any(outcome.result.value in ("failed", "refused") for outcome in done.outcomes):
        raise typer.Exit(1)


def _workload(text: str | None, namespace: str | None) -> "WorkloadRef | None":
    from cruise.domain.cluster import WorkloadRef

    if text is None:
        return None
    kind, _, name = text.partition("/")
    if not kind or not name:
        raise BadInputError(f'--workload: "{text}" is no KIND/NAME such as Deployment/web')
    if namespace is None:
        raise BadInputError("--workload needs --namespace: names of workloads are of one namespace")
    return WorkloadRef(kind, name)


def _agreed(settings: "Settings", namespace: str | None, workload: "WorkloadRef | None") -> bool:
    from cruise.app.revert import count_resized_pods
    from cruise.cli.inputs.store import open_existing_store

    with show_spinner("reading the cluster"):
        count = asyncio.run(
            count_resized_pods(
                settings.to_kubernetes_settings(), open_existing_store(settings, elsewhere=""), namespace, workload
            )
        )
    where = f"in namespace {namespace}" if namespace is not None else "in all namespaces"
    if workload is not None:
        question = f"{workload} gets mode observe, and up to {count:,} of its pods their original sizes back. Go on?"
    else:
        question = f"cruise is paused, and up to {count:,} pods {where} get back their original sizes. Go on?"
    return typer.confirm(question, err=True)


def _put_back(settings: "Settings", namespace: str | None, workload: "WorkloadRef | None") -> "RevertResult":
    from cruise.app.revert import revert_under_pause as put_back
    from cruise.app.serve.connections import get_policy
    from cruise.cli.inputs.store import open_existing_store

    with show_spinner("putting original sizes back"):
        return asyncio.run(
            put_back(
                settings.to_kubernetes_settings(),
                open_existing_store(settings, elsewhere=""),
                get_policy(settings),
                namespace,
                workload,
            )
        )


def _print(done: "RevertResult", workload: "WorkloadRef | None", format: OutputFormat) -> None:
    from cruise.interfaces.revert_report import render_revert_json, render_revert_table

    pods = {(pod.namespace, pod.name): pod for pod in done.before.pods}
    print_result(
        format is OutputFormat.JSON,
        lambda: [render_revert_json(done.at, done.was_paused, done.outcomes, pods, workload)],
        lambda console: render_revert_table(done.was_paused, done.outcomes, pods, console, workload),
    )
