"""The installed command as users run it: on a terminal, and with shell completion."""

import os
import pty
import subprocess
import sys
from collections.abc import Sequence


def completions(words: str) -> list[str]:
    """What bash is offered behind some words."""
    environment = {
        **os.environ,
        "_CRUISE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run(
        ["cruise"],
        executable=f"{os.path.dirname(sys.executable)}/cruise",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()


def run_on_terminal(command: Sequence[str]) -> tuple[bytes, bytes]:
    """What a command that succeeds writes to standard output, and to a terminal as standard error."""
    screen, terminal = pty.openpty()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, env=os.environ | {"TERM": "xterm"})
    os.close(terminal)
    seen = b""
    try:
        while piece := os.read(screen, 4096):
            seen += piece
    except OSError:
        # A pseudo-terminal ends so when its last writer has closed it.
        assert process.stdout is not None
        output = process.stdout.read()
        assert process.wait() == 0
    os.close(screen)
    return output, seen
