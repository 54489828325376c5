"""Fixtures of the command-line tests."""

import pytest
from helpers.certificates import certificates

from langchain_rageval.cli.main import run

__all__ = ["certificates", "rageval"]


@pytest.fixture
def rageval(capsys, request):
    """Run a command in this process and return exit code, stdout and stderr; there is never a traceback.

    If the test fails, pytest shows what each command wrote to stderr.
    """

    def command(*words):
        try:
            code = run([str(word) for word in words])
        except SystemExit as error:  # raised by argparse
            code = error.code
        output = capsys.readouterr()
        title = f"stderr of {' '.join(map(str, words))}, exit code {code}"
        request.node.add_report_section("call", title, output.err)
        assert "Traceback" not in output.out + output.err
        return code, output.out, output.err

    return command
