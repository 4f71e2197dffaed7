"""Write every page of docs/reference."""

import sys

from scripts.reference.pages import PAGES, PLACE

if __name__ == "__main__":
    PLACE.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (PLACE / name).write_text(make(), encoding="utf-8")
    sys.stdout.write(f"{len(PAGES)} pages in docs/reference\n")
