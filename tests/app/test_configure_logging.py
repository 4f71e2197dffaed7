"""Logging: one line per event as text or JSON, without secrets."""

import io
import json
import logging

import pytest
import structlog

from cruise.app.process import configure_logging


@pytest.fixture(autouse=True)
def logs_as_before():
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = before
    root.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(form: str, level: str = "info", stream: io.StringIO | None = None) -> io.StringIO:
    out = stream or io.StringIO()
    configure_logging(form, level, out)
    return out


def test_json_is_one_object_a_line_with_time_level_and_event_first():
    out = lines("json")
    structlog.get_logger().warning("job failed", job="statistics", error="two\nlines")
    [line] = out.getvalue().splitlines()
    said = json.loads(line)
    assert list(said) == ["timestamp", "level", "event", "job", "error"]
    assert (said["level"], said["event"], said["error"]) == ("warning", "job failed", "two\nlines")
    assert said["timestamp"].endswith("Z")


def test_auto_is_text_for_a_terminal_and_json_for_anything_else():
    for_people, for_machines = lines("auto", stream=Terminal()), io.StringIO()
    structlog.get_logger().info("listening", address="127.0.0.1:8080")
    assert "listening" in for_people.getvalue()
    assert not for_people.getvalue().startswith("{")
    lines("auto", stream=for_machines)
    structlog.get_logger().info("listening", address="127.0.0.1:8080")
    assert json.loads(for_machines.getvalue())["address"] == "127.0.0.1:8080"


def test_text_in_a_file_has_no_colours():
    out = lines("text")
    structlog.get_logger().info("node pass", nodes=3)
    assert "\x1b[" not in out.getvalue()
    assert "nodes=3" in out.getvalue()


def test_what_is_below_the_level_is_not_said():
    out = lines("json", "warning")
    structlog.get_logger().info("node pass")
    logging.getLogger("kubernetes").info("chatter")
    assert out.getvalue() == ""
    structlog.get_logger().error("broken")
    assert json.loads(out.getvalue())["event"] == "broken"


def test_libraries_log_in_the_same_format():
    out = lines("json")
    logging.getLogger("asyncpg").warning("connection %s lost", 7)
    said = json.loads(out.getvalue())
    assert (said["event"], said["level"], said["logger"]) == ("connection 7 lost", "warning", "asyncpg")


@pytest.mark.parametrize("chatterer", ["apscheduler.scheduler", "urllib3.connectionpool"])
def test_what_libraries_try_again_is_not_worth_a_line(chatterer: str):
    out = lines("json")
    logging.getLogger(chatterer).warning("once more")
    assert out.getvalue() == ""
    logging.getLogger(chatterer).error("broken")
    assert json.loads(out.getvalue())["event"] == "broken"


@pytest.mark.parametrize("form", ["json", "text"])
def test_user_and_password_of_an_address_are_left_out(form: str):
    out = lines(form)
    structlog.get_logger().warning("job failed", error="http://cruise:hunter2@prometheus:9090 did not answer")
    logging.getLogger("asyncpg").warning("retrying https://cruise:hunter2@prometheus/")
    assert "hunter2" not in out.getvalue()
    assert "http://prometheus:9090 did not answer" in out.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_exception_is_logged_whole(form: str):
    out = lines(form)
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError:
        structlog.get_logger().error("broken", exc_info=True)
    assert "ZeroDivisionError" in out.getvalue()
    assert "a bug" in out.getvalue()
    if form == "json":
        assert len(out.getvalue().splitlines()) == 1


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_traceback_shows_where_it_failed_and_no_variable(form: str):
    out = lines(form)
    token = "Bearer canary8c1d"
    try:
        raise RuntimeError(f"of {len(token)} characters")
    except RuntimeError:
        structlog.get_logger().error("failed", exc_info=True)
        logging.getLogger("library").error("failed", exc_info=True)
    assert out.getvalue().count("of 17 characters") >= 2
    assert "test_configure_logging.py" in out.getvalue()
    assert "canary8c1d" not in out.getvalue()


def test_what_users_wrote_is_shown_and_cut():
    hostile = "\x1b]0;owned\x07\x9b2J\u202e\nlevel=error forged"
    for form in ("text", "json"):
        out = lines(form)
        log = structlog.get_logger()
        log.warning("held", detail=hostile, multi_value_options=[hostile], annotation="y" * 100_000)
        logging.getLogger("library").warning("said: %s", hostile)
        try:
            raise ValueError(hostile)
        except ValueError:
            log.exception("broken")
        written = out.getvalue()
        assert not set(written) & set("\x1b\x07\x9b\u202e"), form
        assert len(written) < 12_000
        if form == "json":
            assert json.loads(written.splitlines()[0])["detail"] == hostile
        else:
            assert [line for line in written.splitlines()[:2] if line.startswith("level=")] == []
