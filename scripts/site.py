"""Builds the documentation as a site, offline: `python scripts/site.py DIRECTORY`.

Paths in the site are those of the checkout, so that links work as on GitHub. README.md is the home page; other linked
files are copied.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The places of pages; those of tests and of recorded data are for readers of the sources.
PLACES = ("*.md", "docs/**/*.md", "deploy/**/*.md")
# Files that the configuration names.
STYLE = (Path("cruise/interfaces/dashboard/static/icon.svg"), Path("docs/site.css"))
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def pages(root: Path = ROOT) -> list[Path]:
    """Return every page of the documentation, relative to the checkout."""
    return sorted({path.relative_to(root) for place in PLACES for path in root.glob(place)})


def links_of(page: Path, root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Yield the links of a page to files of the checkout: the path in it, and the anchor or an empty string."""
    for target, anchor in _LINK.findall((root / page).read_text(encoding="utf-8")):
        yield Path((root / page).parent / target).resolve().relative_to(root), anchor


def lay_out(stage: Path, root: Path = ROOT) -> None:
    """Copy the pages and the files that they link to. Raises FileNotFoundError for a broken link."""
    shutil.rmtree(stage, ignore_errors=True)
    listed = pages(root)
    linked = {target for page in listed for target, _ in links_of(page, root) if not (root / target).is_dir()}
    for one in {*listed, *linked, *STYLE}:
        place = stage / "pages" / one
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / one, place)
    shutil.copyfile(root / "mkdocs.yml", stage / "mkdocs.yml")


def main(directory: Path, root: Path = ROOT) -> int:
    """Build the site in a directory; return 0, or 1 if a link is broken."""
    lay_out(directory, root)
    program = Path(sys.executable).with_name("zensical")
    command = [str(program), "build", "--strict", "--clean"]
    built = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        # Warnings, then a traceback without information.
        print(built.stdout + built.stderr.partition("Traceback")[0], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
