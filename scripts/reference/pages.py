"""The generated pages, and the function that renders each."""

from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.reference.annotations import annotations_page
from scripts.reference.api import api_page
from scripts.reference.commands import commands_page
from scripts.reference.metrics import metrics_page
from scripts.reference.policy_page import policies_page
from scripts.reference.reasons import reasons_page
from scripts.reference.settings import settings_page

PLACE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "annotations.md": annotations_page,
    "policies.md": policies_page,
    "metrics.md": metrics_page,
    "reasons.md": reasons_page,
    "commands.md": commands_page,
    "api.md": api_page,
}
