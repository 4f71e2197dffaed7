"""ARCHITECTURE.md names existing modules, and its recipes name the files that hold each rule."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
SOURCES = {str(path.relative_to(ROOT / "cruise")): path.read_text() for path in (ROOT / "cruise").rglob("*.py")}
ROOMS = {path.stem for path in (ROOT / "cruise").iterdir() if path.suffix in ("", ".py") and path.stem[0] != "_"}
RECIPES = re.findall(r"^\| (to [^|]+) \| ([^|]+) \| `(.+)` \|$", TEXT, re.MULTILINE)


def exists(place: str) -> bool:
    """Whether a dotted name is a module, a package, or what a module holds."""
    path = ROOT / "cruise" / place.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    module, _, name = place.rpartition(".")
    source = SOURCES.get(f"{module.replace('.', '/')}.py", "")
    return bool(name and re.search(rf"\b{name}\b", source))


def test_every_module_that_is_named_exists():
    named = {
        name for name in re.findall(r"`([a-z_]+(?:\.[A-Za-z_]+)+)(?:\([^`]*\))?`", TEXT) if name.split(".")[0] in ROOMS
    }
    assert len(named) > 30
    assert sorted(name for name in named if not exists(name)) == []


def test_every_file_that_is_named_exists():
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+(?:/|\.py))`", TEXT))
    assert len(named) > 20
    assert sorted(name for name in named if not ((ROOT / name).exists() or (ROOT / "cruise" / name).exists())) == []


@pytest.mark.parametrize(("change", "files", "example"), RECIPES, ids=[change for change, _, _ in RECIPES])
def test_a_recipe_names_the_files_that_hold_an_example_of_its_kind(change: str, files: str, example: str):
    holding = {name for name, source in SOURCES.items() if re.search(example.replace(r"\|", "|"), source, re.MULTILINE)}
    assert holding == set(re.findall(r"`([a-z_/]+\.py)`", files)), change


def test_there_are_recipes():
    assert len(RECIPES) >= 12
