"""Write every page of docs/reference."""

import sys

from scripts.reference.pages import PAGES, PLACE
from scripts.reference.policy_objects import write_definitions

if __name__ == "__main__":
    PLACE.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (PLACE / name).write_text(make(), encoding="utf-8")
    write_definitions()
    sys.stdout.write(f"{len(PAGES)} pages in docs/reference\n")
