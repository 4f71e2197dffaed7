"""Write every page of docs/reference, the definitions of the policies, and the schema of the chart's settings."""

import sys

from scripts.reference.chart_schema import write_settings_schema
from scripts.reference.pages import PAGES, PLACE
from scripts.reference.policy_objects import write_definitions

if __name__ == "__main__":
    PLACE.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (PLACE / name).write_text(make(), encoding="utf-8")
    write_definitions()
    write_settings_schema()
    sys.stdout.write(f"{len(PAGES)} pages in docs/reference\n")
