"""Every alert has a runbook, and every runbook has an alert."""

import re

import yaml

from scripts.site import ROOT
from tests.docs.test_links import anchors_of

RULES = yaml.safe_load((ROOT / "deploy" / "chart" / "files" / "rules.yaml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()


def test_every_runbook_url_leads_to_a_section():
    leading = [alert["annotations"]["runbook_url"].rpartition("docs/")[2].partition("#") for alert in ALERTS]
    assert leading
    anchors = anchors_of(RUNBOOKS)
    assert [anchor for page, _, anchor in leading if page != "runbooks.md" or anchor not in anchors] == []


def test_every_section_is_of_an_alert():
    assert set(re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE)) == {alert["alert"] for alert in ALERTS}
