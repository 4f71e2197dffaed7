"""docs/security.md names every right that the manifests grant."""

from tests.deploy.installing import DEPLOY
from tests.deploy.rights_table import rights_table


def test_the_table_of_rights_is_that_of_the_manifests():
    text = (DEPLOY.parent / "docs" / "security.md").read_text()
    assert rights_table() in text, "put in what `python -m tests.deploy.rights_table` prints"
