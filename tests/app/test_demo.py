import io
import logging

from rich.console import Console

from cruise.app.demo import print_logs_on_console


def test_passes_that_are_skipped_are_no_lines_and_other_warnings_of_libraries_are():
    out = io.StringIO()
    console = Console(file=out)
    with print_logs_on_console(console):
        logging.getLogger("apscheduler.scheduler").warning("Execution of job skipped")
        logging.getLogger("asyncpg").warning("connection lost")
    assert out.getvalue() == "connection lost\n"
