"""The command line: one module a command, `program` joins them, `terminal` is where output goes.

What only one command needs is imported inside it, so that `cruise --help` answers at once.
"""

from cruise.cli.program import main

__all__ = ["main"]
