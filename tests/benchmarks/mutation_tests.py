"""Copies of the repository in which mutants.py runs tests, and the map of the lines that each quick test executes."""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage, CoverageData
from coverage.numbits import nums_to_numbits, register_sqlite_functions
from mutation_sites import ROOT, Site, function_lines, sources

SIGNATURES = "tests/test_signatures.py::%"  # read the defaults of all public functions
MEMORY = 12 << 30  # bytes of address space: a loop without end may append to a list


class Recorder:
    """Pytest plugin: runs one part of the test files; records lines and seconds of each test, and whether it passed."""

    def __init__(self, coverage: Coverage, part: int, parts: int) -> None:
        self.coverage, self.part, self.parts = coverage, part, parts
        self.seconds: dict[str, float] = {}
        self.unusable: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        files = list(dict.fromkeys(item.path for item in items))[self.part :: self.parts]
        items[:] = [item for item in items if item.path in files]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        start = time.perf_counter()
        result = yield
        self.seconds[item.nodeid] = time.perf_counter() - start
        self.coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not report.passed:
            self.unusable.add(report.nodeid)

    def rows(self) -> list[tuple[str, float]]:
        """Return the tests that passed with their seconds."""
        return [(test, spent) for test, spent in self.seconds.items() if test not in self.unusable]


def copies(place: Path, count: int) -> list[Path]:
    """Copy the files of the repository, without those that git ignores, and compile them."""
    first, *others = [place / str(number) for number in range(count)]
    listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, stdout=-1, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (first / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, first / name)
    compileall.compile_dir(first / "langchain_rageval", quiet=2)
    compileall.compile_dir(first / "tests", quiet=2)
    for folder in others:
        shutil.copytree(first, folder)
    return [first, *others]


def forked(folder: Path, work: Callable[[], int]) -> int:
    """Do work in a new process, in its own group and in a copy of the repository; return the process id."""
    if pid := os.fork():
        return pid
    code = 99
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(f"{folder}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder)
        sys.path[:] = [str(folder), *(path for path in sys.path if not Path(path).is_relative_to(ROOT))]
        code = work()
        package = sys.modules.get("langchain_rageval")
        if package and not Path(str(package.__file__)).is_relative_to(folder):
            code = 98
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_pytest(folder: Path, arguments: list[str], plugin: Any) -> int:
    """Run pytest in this process. Assertions stay plain: to rewrite them takes time and warns of imported libraries."""
    options = ["-c", "pyproject.toml", "--rootdir=.", "-q", "-p", "no:cacheprovider", "--assert=plain", "--tb=short"]
    return int(pytest.main([*options, f"--basetemp={folder}.tmp", *arguments], plugins=[plugin]))


def record(folders: list[Path], tests: list[str], target: Path, state: str) -> None:
    """Run the quick tests once and write the map: coverage's database, and a table of the tests that passed."""

    def part(number: int, folder: Path) -> int:
        package = [str(folder / "langchain_rageval")]
        coverage = Coverage(data_file=f"{folder}.coverage", source=package, config_file=False, branch=False)
        coverage.set_option("run:relative_files", True)
        recorder = Recorder(coverage, number, len(folders))
        coverage.start()
        code = run_pytest(folder, tests, recorder)
        coverage.stop()
        coverage.save()
        Path(f"{folder}.json").write_text(json.dumps(recorder.rows()), encoding="utf-8")
        print(f"{len(recorder.unusable)} tests fail or are skipped, and are not used:", *sorted(recorder.unusable))
        return code

    parts = [forked(folder, partial(part, number, folder)) for number, folder in enumerate(folders)]
    codes = {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in parts}
    if not codes <= {0, 1, 5}:  # all passed, some failed, no file was left for this job
        raise SystemExit("\n".join(Path(f"{folder}.log").read_text(encoding="utf-8") for folder in folders))
    target.unlink(missing_ok=True)
    whole = CoverageData(str(target))
    for folder in folders:
        recorded = CoverageData(f"{folder}.coverage")
        recorded.read()
        whole.update(recorded)
        print(Path(f"{folder}.log").read_text(encoding="utf-8").splitlines()[-1])
    whole.close()
    with sqlite3.connect(target) as database:
        database.execute("create table test (name text primary key, seconds real)")
        for folder in folders:
            database.executemany(
                "insert into test values (?, ?)", json.loads(Path(f"{folder}.json").read_text("utf-8"))
            )
        database.execute("create table state (name text)")
        database.execute("insert into state values (?)", (state,))


class Map:
    """Which tests execute which lines, and how long they take."""

    def __init__(self, file: Path) -> None:
        self.database = sqlite3.connect(file)
        register_sqlite_functions(self.database)

    def state(self) -> str:
        """Return the state of the repository that was recorded; empty if nothing was."""
        try:
            return str(self.database.execute("select name from state").fetchone()[0])
        except (sqlite3.OperationalError, TypeError):
            return ""

    def executing(self, file: str, lines: Iterable[int]) -> dict[str, float]:
        """Return the tests that execute any of these lines, with their seconds."""
        query = """
            select distinct test.name, test.seconds from line_bits
            join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id
            join test on test.name = context.context
            where file.path = ? and numbits_any_intersection(line_bits.numbits, ?)"""
        return dict(self.database.execute(query, (file, nums_to_numbits(lines))))

    def tests_of(self, site: Site) -> tuple[dict[str, float], dict[str, float]]:
        """Return the tests that execute a mutation, and all of the test file of the same name."""
        kin = f"tests/%test_{Path(site.file).stem}.py::%"
        near = dict(self.database.execute("select name, seconds from test where name like ?", (kin,)))
        if site.in_function:
            tests = self.executing(site.file, [site.line]) or self.executing(site.file, site.statement)
            tests = tests or self.executing(site.file, function_lines(site.file))  # it may run on import
        else:
            module = site.file.removesuffix(".py").replace("/", ".")
            importers = [file for file in sources() if f"from {module} import" in (ROOT / file).read_text("utf-8")]
            tests = self.executing(site.file, function_lines(site.file))
            for file in importers if not tests else []:
                tests |= self.executing(file, function_lines(file))
            near |= dict(self.database.execute("select name, seconds from test where name like ?", (SIGNATURES,)))
        return tests, near

    def selection(self, site: Site, budget: float) -> tuple[list[str], float, bool]:
        """Return the nearest tests within a budget, file by file, their seconds, and whether any executes the site."""
        covering, kin = self.tests_of(site)
        place = Path(site.file)
        folder = f"tests/{place.parts[1]}/"
        ranks: Counter[str] = Counter()
        keys = {}
        for test, seconds in sorted((covering | kin).items(), key=lambda pair: pair[1]):
            file = test.partition("::")[0]
            ranks[file] += 1  # far away, the fastest tests of each file come before the second fastest of any
            distance = (
                0
                if Path(file).stem in (f"test_{place.stem}", "test_signatures")
                else 1
                if file.startswith(folder)
                else 2
            )
            idle = site.in_function and test not in covering  # may run the line in a subprocess
            keys[test] = (idle, distance, ranks[file], seconds)
        chosen: dict[str, list[str]] = {}
        spent = 0.0
        for test in sorted(keys, key=keys.__getitem__):
            if spent < budget:
                chosen.setdefault(test.partition("::")[0], []).append(test)
                spent += keys[test][-1]
        return [test for tests in chosen.values() for test in tests], spent, bool(covering)


def state_of(tests: list[str]) -> str:
    """Return a hash of the package, the tests and the choice of tests."""
    files = [path for folder in ("langchain_rageval", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files) + repr(tests).encode()).hexdigest()
