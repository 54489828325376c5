"""What the tests of the command line share."""

import pytest

from langchain_rageval.cli.main import run


@pytest.fixture
def rageval(capsys):
    """Run a command in this process: exit code, stdout, stderr. No traceback, whatever happens."""

    def command(*words):
        try:
            code = run([str(word) for word in words])
        except SystemExit as ended:  # argparse ends by itself
            code = ended.code
        told = capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        return code, told.out, told.err

    return command
