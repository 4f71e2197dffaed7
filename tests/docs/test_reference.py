"""The pages of docs/reference match the code and are complete."""

import json
import re

import pytest

from cruise.interfaces.http import metrics
from scripts.reference.chart_schema import VALUES_SCHEMA, settings_schema
from scripts.reference.markdown import table
from scripts.reference.pages import PAGES, PLACE
from scripts.reference.policy_objects import DEFINITIONS, build_definitions, format_definitions


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_gives_now(name):
    assert (PLACE / name).read_text() == PAGES[name](), "run make docs-reference"


def test_every_metric_that_is_made_is_on_the_page():
    with open(metrics.__file__) as source:
        made = set(re.findall(r'"(cruise_\w+)"', source.read()))
    assert len(made) > 20
    page = PAGES["metrics.md"]()
    assert [name for name in made if name not in page] == []


def test_an_entry_without_a_description_fails():
    with pytest.raises(ValueError, match="colour has no description"):
        table(("setting", "meaning"), [("colour", " ")])


def test_the_chart_has_the_definitions_of_policies_that_the_code_makes():
    assert {one.name: one.read_text() for one in DEFINITIONS.iterdir()} == format_definitions()


def test_every_setting_in_the_charts_schema_is_one_that_cruise_has_and_none_is_missing():
    stated = json.loads(VALUES_SCHEMA.read_text())["properties"]["settings"]
    assert stated == settings_schema(), "run make docs-reference"


def test_the_columns_of_policies_show_fields_that_they_have():
    for definition in build_definitions():
        [version] = definition["spec"]["versions"]
        fields = version["schema"]["openAPIV3Schema"]["properties"]
        for column in version["additionalPrinterColumns"]:
            part, *names = column["jsonPath"].removeprefix(".").split(".")
            field = fields[part]
            for name in names if part != "metadata" else ():
                field = field["properties"][name]
            assert part == "metadata" or field["type"] == column["type"], column
