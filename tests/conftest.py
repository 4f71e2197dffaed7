"""Settings that every test shares."""

import os

from hypothesis import settings

# Shared machines stall at random, so no example has a deadline. CI replays the same examples on every run,
# which keeps its verdict about the change; runs elsewhere go on searching.
settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
