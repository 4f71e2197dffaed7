"""House rules that no linter checks."""

import ast
import os
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(path.relative_to(ROOT) for path in (ROOT / "cruise").rglob("*.py"))
REQUIREMENTS = [
    "requirements.txt",
    "requirements-cloud.txt",
    "requirements-dask.txt",
    "requirements-dev.txt",
    "requirements-build.txt",
]
TOOLS = ["requirements-lock.txt", "requirements-supply.txt"]
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


def words_judged(module: Path) -> list[str]:
    """Where a module looks for words in a text: `"some words" in text`, or whether one starts or ends with them."""
    found = []
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        literals: list[ast.expr] = []
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            literals = [node.left]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            literals = node.args if node.func.attr in ("startswith", "endswith") else []
        texts = [one.value for one in literals if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        found += [ast.unparse(node) for text in texts if re.search(r"\w \w|[a-z][A-Z]", text)]
    return found


def test_every_script_that_make_calls_can_be_run():
    found = [*(ROOT / "scripts").glob("*.sh"), *(ROOT / "tests/setup").glob("*.sh")]
    assert found and [path.name for path in found if not os.access(path, os.X_OK)] == []


def test_reasons_are_values_and_only_the_edges_read_words():
    inside = [path for path in MODULES if path.parts[1] not in ("adapters", "kube_json", "settings")]
    assert {str(path): found for path in inside if (found := words_judged(path))} == {}


def test_every_module_is_named_for_its_concept():
    assert [str(path) for path in MODULES if path.stem in LEFTOVERS] == []


@pytest.mark.parametrize("file", [*REQUIREMENTS, *TOOLS])
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
        "requirements-cloud.txt": [
            *project["project"]["dependencies"],
            *(one for name in ("aws", "google", "azure") for one in project["project"]["optional-dependencies"][name]),
        ],
        "requirements-dask.txt": [
            *project["project"]["dependencies"],
            *project["project"]["optional-dependencies"]["dask"],
        ],
        "requirements-dev.txt": [*project["project"]["dependencies"], *groups["dev"]],
        "requirements-build.txt": groups["build"],
        "requirements-lock.txt": groups["lock"],
        "requirements-supply.txt": groups["supply"],
    }
    for file, requirements in declared.items():
        names = {re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower() for requirement in requirements}
        assert names - {pin.split("==")[0] for pin in pins(file)} == set(), file


def test_all_locks_agree_on_a_shared_version():
    runtime, cloud, cluster, development, build = (set(pins(file)) for file in REQUIREMENTS)
    assert runtime <= cloud
    assert runtime <= cluster
    assert cloud | cluster <= development
    shared = {pin.split("==")[0] for pin in development} & {pin.split("==")[0] for pin in build}
    assert {pin for pin in build if pin.split("==")[0] in shared} <= development
