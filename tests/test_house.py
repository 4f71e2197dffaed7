"""The house rules that no linter states."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(path.relative_to(ROOT) for path in (ROOT / "cruise").rglob("*.py"))
REQUIREMENTS = ["requirements.txt", "requirements-dev.txt", "requirements-build.txt"]
LEFTOVERS = {
    "base",
    "common",
    "data",
    "helper",
    "helpers",
    "info",
    "manager",
    "misc",
    "processor",
    "service",
    "task",
    "util",
    "utils",
}


def pins(file: str) -> dict[str, list[str]]:
    """Pinned line (`name==version ; marker`) to its hashes."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / file).read_text().splitlines():
        text = line.rstrip(" \\")
        if text.startswith("    --hash="):
            found[next(reversed(found))].append(text.strip())
        else:
            found[text] = []
    return found


def test_no_module_outgrows_one_concept():
    assert MODULES
    lengths = {str(path): len((ROOT / path).read_text().splitlines()) for path in MODULES}
    assert {path: length for path, length in lengths.items() if length > 400} == {}


def test_every_module_is_named_for_its_concept():
    assert [str(path) for path in MODULES if path.stem in LEFTOVERS] == []


@pytest.mark.parametrize("file", REQUIREMENTS)
def test_every_requirement_is_one_version_with_hashes_and_no_address(file: str):
    found = pins(file)
    assert found
    assert [pin for pin in found if not re.fullmatch(r"[a-z0-9.-]+==[^ ]+( ; .+)?", pin)] == []
    assert [pin for pin, hashes in found.items() if not hashes] == []


def test_the_lock_covers_what_the_project_declares():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    declared = {
        "requirements.txt": project["project"]["dependencies"],
        "requirements-dev.txt": [*project["project"]["dependencies"], *groups["dev"]],
        "requirements-build.txt": groups["build"],
    }
    for file, requirements in declared.items():
        names = {re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower() for requirement in requirements}
        assert names - {pin.split("==")[0] for pin in pins(file)} == set(), file


def test_all_three_locks_agree_on_a_shared_version():
    runtime, development, build = (set(pins(file)) for file in REQUIREMENTS)
    assert runtime <= development
    shared = {pin.split("==")[0] for pin in development} & {pin.split("==")[0] for pin in build}
    assert {pin for pin in build if pin.split("==")[0] in shared} <= development
