"""Every link in the documentation resolves, on GitHub and on the site."""

import re

import pytest

from scripts.site import ROOT, STYLE, links_of, main, pages

PAGES = pages()


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub gives to a page's headings, doubles without their numbers."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.+?) *$", plain, re.MULTILINE)
    words = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one).lower() for one in headings)
    return {re.sub(r"[^\w\- ]", "", one).replace(" ", "-") for one in words}


@pytest.mark.parametrize("page", PAGES, ids=map(str, PAGES))
def test_links_lead_to_files_and_headings_that_exist(page):
    broken = []
    for target, anchor in links_of(page):
        place = ROOT / target
        if not place.exists() or (anchor and anchor[1:] not in anchors_of(place.read_text())):
            broken.append(f"{target}{anchor}")
    assert broken == []
    text = (ROOT / page).read_text()
    own = re.findall(r"\]\(#([^)]+)\)", text)
    assert [anchor for anchor in own if anchor not in anchors_of(text)] == []


def test_every_page_is_reached_from_the_navigation_or_from_a_page_in_it():
    navigation = re.findall(r"^ +-.*?([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    linked = {str(target) for page in PAGES for target, _ in links_of(page)}
    assert navigation
    assert [str(page) for page in PAGES if str(page) not in navigation and str(page) not in linked] == []


def test_the_site_has_every_page_and_loads_nothing_from_other_hosts(tmp_path):
    assert main(tmp_path) == 0
    built = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").rglob("index.html")}
    assert len(built) == len(PAGES)
    asked = re.compile(rb"""(?:src=|<link[^>]+href=|url\()["']?(?:https?:)?//[^"') >]+""")
    made = [path for path in (tmp_path / "site").rglob("*") if path.suffix in (".html", ".css")]
    assert [(path.name, found) for path in made for found in asked.findall(path.read_bytes())] == []


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path, capsys):
    for name in STYLE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "README.md").write_text("# Home\n\n[a heading](README.md#nothing)\n")
    (tmp_path / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text().partition("nav:")[0])
    assert main(tmp_path / "built", tmp_path) == 1
    assert "anchor does not exist" in capsys.readouterr().err
