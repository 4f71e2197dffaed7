"""Free memory goes back to the operating system, also where kept objects lie above it."""

import subprocess
import sys

import pytest

PROGRAM = """
from cruise.app.process import return_free_memory

def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20

# Blocks that are too large for Python's own allocator, and too small for pages of their own.
blocks = [bytes(20_000) for _ in range(5_000)]
kept = blocks[-1]
del blocks
before = resident_mib()
returned = return_free_memory()
print(returned, before - resident_mib())
"""


def test_memory_below_what_is_kept_is_returned() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    returned, mebibytes = ended.stdout.split()
    if returned == "False":
        pytest.skip("this machine's C library returns no memory")
    assert int(mebibytes) > 60
