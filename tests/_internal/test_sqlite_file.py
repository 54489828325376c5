"""An SQLite file is shared by threads, processes and forks."""

import os
import subprocess
import sys
import textwrap

import pytest
from helpers.waiting import PATIENCE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_fork_during_a_transaction_leaves_the_child_a_file_that_it_can_write(tmp_path):
    program = """
        import os, sys, threading, time, warnings
        from pathlib import Path
        from langchain_rageval._internal.files import SqliteFile

        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # Python 3.12 on warns where threads run

        def prepare(connection):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE IF NOT EXISTS names (name)")

        def write(name, wait=0.0):
            with file.open() as connection:
                connection.execute("BEGIN IMMEDIATE")
                begun.set()
                time.sleep(wait)
                connection.execute("INSERT INTO names VALUES (?)", (name,))
                connection.execute("COMMIT")

        file, begun = SqliteFile(Path(sys.argv[1]), prepare), threading.Event()
        thread = threading.Thread(target=write, args=("parent", 0.5))
        thread.start()
        begun.wait()
        if os.fork() == 0:
            write("child")
            os._exit(0)
        thread.join()
        assert os.wait()[1] == 0
        write("parent again")
        with file.open() as connection:
            print(*(name for name, in connection.execute("SELECT name FROM names ORDER BY name")), sep=", ")
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "names.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "child, parent, parent again\n"
