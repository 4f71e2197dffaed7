"""Commands in the documentation exist; those that need no cluster are run and print what the page shows."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cruise.cli.program import app, main
from scripts.site import ROOT, pages
from tests.controlplane.binaries import NotAvailable
from tests.helm.binary import helm

BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PAGES = [page for page in pages() if page.parts[:2] not in (("docs", "adr"), ("docs", "reference"))]
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
PREFIX = r"(?:^|.*-- |.*\.venv/bin/)cruise "


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the language and the text of each code block, with continued lines joined."""
    return [(language, text.replace("\\\n", " ")) for language, text in BLOCK.findall((ROOT / page).read_text())]


def commands_of(page: Path) -> Iterator[list[str]]:
    """The arguments of every call of cruise on a page, in blocks and in running text."""
    lines = [line for language, text in blocks(page) if language in ("", "sh", "bash") for line in text.splitlines()]
    running = re.findall(r"`([^`\n]+)`", BLOCK.sub("", (ROOT / page).read_text()))
    for line in (*lines, *running):
        found = re.match(rf"\s*{PREFIX}([a-z].*)", line.partition(" #")[0])
        if found is not None:
            yield shlex.split(found[1].replace("…", ""))


@pytest.mark.parametrize("page", PAGES, ids=map(str, PAGES))
def test_every_command_and_option_exists(page):
    unknown = []
    for name, *arguments in commands_of(page):
        if name not in COMMANDS:
            unknown.append(name)
            continue
        options = {option for one in COMMANDS[name].params for option in (*one.opts, *one.secondary_opts)}
        given = {argument.partition("=")[0] for argument in arguments if re.match(r"--?[a-z]", argument)}
        unknown += [f"{name} {option}" for option in given - options - {"--help", "-h"}]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=map(str, PAGES))
def test_every_target_of_make_and_every_file_that_is_applied_exists(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = "\n".join(text for _, text in blocks(page))
    assert set(re.findall(r"^make ([a-z-]+)", code, re.MULTILINE)) <= targets
    named = re.findall(r"(?<![\w./])((?:deploy/(?!cruise-)|docs/)[\w./-]+)", code)
    made = ("docs/backtest-results.md",)
    assert [one for one in named if one not in made and not (ROOT / one).exists()] == []


def releases(page: Path) -> Iterator[list[str]]:
    """The values that a page's installations and upgrades of the chart set, as arguments of Helm."""
    for line in "\n".join(text for _, text in blocks(page)).splitlines():
        if re.match(r"\s*helm (install|upgrade) cruise ", line):
            words = shlex.split(line.replace("$DIGEST", f"sha256:{64 * '0'}"), comments=True)
            yield [word for place, word in enumerate(words) if word == "--set" or words[place - 1] == "--set"]


RELEASES = [(page, values) for page in PAGES for values in releases(page)]


@pytest.mark.parametrize(("page", "values"), RELEASES, ids=lambda one: str(one) if isinstance(one, Path) else "")
def test_the_chart_takes_the_values_that_a_page_sets(page, values):
    try:
        program = str(helm())
    except NotAvailable as missing:
        pytest.skip(str(missing))
    # On the page Helm has a cluster to look passwords up in.
    values = ["--set", "postgres.newPasswords=true", *values]
    command = [program, "template", "cruise", str(ROOT / "deploy" / "chart"), "--namespace", "cruise", *values]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if page == Path("docs/quickstart.md"):
        verbs = {
            (verb, resource)
            for one in yaml.safe_load_all(done.stdout)
            for rule in (one or {}).get("rules", ())
            for verb in rule.get("verbs", ())
            for resource in rule.get("resources", ())
        }
        assert {one for one in verbs if one[0] not in ("get", "list", "watch")} == {
            ("create", "tokenreviews"),
            ("create", "subjectaccessreviews"),
        }


def runnable(page: str) -> list[tuple[list[str], str]]:
    """The calls of a page that read files of the checkout alone, each with the output that follows it on the page."""
    found = blocks(Path(page))
    following = [*found[1:], ("", "")]
    return [
        (shlex.split(re.sub(rf"^{PREFIX}", "", line)), text if language == "text" else "")
        for (shell, lines), (language, text) in zip(found, following, strict=True)
        if shell == "sh"
        for line in lines.splitlines()
        if "docs/example/" in line
    ]


QUICK_START = runnable("docs/quickstart.md")
HOW = runnable("docs/how-it-decides.md")


@pytest.mark.parametrize(("arguments", "output"), [*QUICK_START, *HOW], ids=lambda one: " ".join(one)[:40])
def test_what_needs_no_cluster_is_run_and_prints_what_the_page_says(arguments, output, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    assert main(arguments) == 0
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in output.splitlines() if line.strip() and " ".join(line.split()) not in printed] == []


def test_the_quick_start_has_commands_to_run_with_their_output():
    assert len(QUICK_START) >= 3
    assert all(output for _, output in QUICK_START)
    assert len(HOW) >= 3
