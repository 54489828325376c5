"""An SQLite file is shared by threads, processes and forks."""

import threading
import time

from helpers.waiting import PATIENCE, holds_in_a_fork, needs_fork

from langchain_rageval._internal.files import SqliteFile


@needs_fork
def test_a_fork_during_a_transaction_leaves_the_child_a_file_that_it_can_write(tmp_path):
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
        return True

    file, begun = SqliteFile(tmp_path / "names.db", prepare), threading.Event()
    thread = threading.Thread(target=write, args=("parent", 0.5))
    thread.start()
    assert begun.wait(PATIENCE)
    assert holds_in_a_fork(lambda: write("child"))
    thread.join(PATIENCE)
    write("parent again")
    with file.open() as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM names ORDER BY name")]
    file.close()
    assert names == ["child", "parent", "parent again"]
