# SPDX-License-Identifier: Apache-2.0
"""Plugin of pytest that prints TAP, for make check: pytest -p no:terminal -p tap."""
import sys

import pytest

_n = 0


def _line(ok: bool, name: str, remark: str = "") -> None:
    global _n
    _n += 1
    print(f"{'ok' if ok else 'not ok'} {_n} - {name}{remark}")


def _notes(text: str) -> None:
    for line in text.splitlines():
        print(f"# {line}")


def pytest_addoption(parser: pytest.Parser) -> None:
    # An option of the terminal plugin, which pytest reads when it explains a failed assertion.
    parser.addoption("--verbose", action="count", default=0, dest="verbose")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = report.nodeid.replace("#", " ")
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        _line(True, name, f" # SKIP {reason.removeprefix('Skipped: ')}")
    elif report.failed:
        _notes(f"{report.longreprtext}\n{report.capstdout}\n{report.capstderr}")
        _line(False, f"{name} ({report.when})" if report.when != "call" else name)
    elif report.when == "call":
        _line(True, name)
    sys.stdout.flush()


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _notes(report.longreprtext)
        _line(False, f"{report.nodeid} (import)")
    elif report.skipped and isinstance(report.longrepr, tuple):
        _line(True, report.nodeid, f" # SKIP {report.longrepr[2].removeprefix('Skipped: ')}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    print(f"1..{_n}")
    # A file that was skipped as a whole is a result, but pytest counts no test.
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and _n > 0:
        session.exitstatus = pytest.ExitCode.OK
