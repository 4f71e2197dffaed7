"""The command line: one module a command; `program` joins them, `terminal` writes output.

Imports that only one command needs are inside it, so that `cruise --help` is fast.
"""

from cruise.cli.program import main

__all__ = ["main"]
