"""Mutation test: change one operator, number or condition of the package at a time, and see whether a quick test fails.

    python tests/benchmarks/mutants.py --seed 1 --count 300
    python tests/benchmarks/mutants.py --only langchain_rageval/statistics/paired.py:103 --budget 600

Mutants are drawn by a seed; every site (mutation_sites.py) is equally likely. Each runs against the quick tests that
execute its line, nearest first, up to --budget seconds of recorded test time, until the first test fails. The first
run records for some minutes which test executes which lines (--map). The repository is not changed: mutants live in
copies of it.

Own code, because mutmut and cosmic-ray run whole suites in new processes, whose imports take longer than the tests.
Here one process imports the libraries, but not the package, and forks for each mutant. A test counts only if it passes
without the mutation: while the map is recorded, and again when it first finds a mutant.

Limits: a line that only subprocesses of tests execute counts as not covered; its mutant runs against the test file of
the same name only. A module's top level runs in no test: its mutants run against the tests of its functions, or of its
importers, and of public signatures. Needs git, `coverage`, and an operating system that can fork.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import py_compile
import random
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}  # a stale .pyc would hide a mutation
sys.dont_write_bytecode = True

import pytest  # noqa: E402
from hypothesis import Phase, settings  # noqa: E402
from mutation_sites import ROOT, Site, sites_of, sources  # noqa: E402
from mutation_tests import Map, copies, forked, record, run_pytest, state_of  # noqa: E402

FOLDERS = ("statistics", "judge", "steps", "metrics", "run", "evaluation", "report", "testset")
PRELOADED = (
    *("numpy", "scipy.stats", "pandas", "hypothesis", "yaml", "razdel", "rich.console", "jinja2", "fastapi", "uvicorn"),
    *("openai", "langchain_openai", "langchain_gigachat", "langchain_community", "langchain_text_splitters"),
    *("langchain_core.runnables", "langchain_core.language_models", "langchain_core.tracers.context"),
)
PASSED = ("exit code 0", "exit code 5")  # 5: no test was left, because the mutation changes the list of cases


class FirstFailure:
    """Pytest plugin: runs given tests in their order, and writes the first that fails into a file."""

    def __init__(self, tests: list[str], file: Path) -> None:
        self.tests, self.file = tests, file

    def pytest_sessionstart(self) -> None:
        # Examples that fail are not shrunk, which may take minutes.
        settings.register_profile("unshrunk", settings.default, phases=[Phase.explicit, Phase.generate])
        settings.load_profile("unshrunk")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[test] for test in self.tests if test in found]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.file.exists():
            self.file.write_text(report.nodeid, encoding="utf-8")

    pytest_collectreport = pytest_runtest_logreport


@dataclass
class Attempt:
    """A run of tests against a mutant and its result."""

    site: Site
    tests: list[str]
    seconds: float
    covered: bool
    result: str = ""
    by: str = ""
    confirms: bool = False  # True for a second run, without the mutation, of the tests up to the one that failed


class Runner:
    """Runs attempts, one at a time in each copy of the repository."""

    def __init__(self, folders: list[Path], timeout: float) -> None:
        self.free, self.timeout = list(folders), timeout
        self.running: dict[int, tuple[Attempt, Path, float]] = {}
        self.trusted: set[str] = set()

    def results(self, attempts: Iterable[Attempt]) -> Iterator[Attempt]:
        """Yield the attempts as they finish."""
        waiting = deque(attempts)
        while waiting or self.running:
            while waiting and self.free:
                attempt = waiting.popleft()
                if attempt.tests:
                    self.start(attempt, self.free.pop())
                else:
                    attempt.result = "not covered"
                    yield attempt
            for pid in list(self.running):
                if code := self.ended(pid):
                    attempt = self.conclude(pid, code)
                    if attempt.result:
                        yield attempt
                    else:
                        waiting.appendleft(attempt)
            time.sleep(0.02)

    def start(self, attempt: Attempt, folder: Path) -> None:
        tests = attempt.tests
        if attempt.confirms and attempt.by in tests:
            tests = tests[: tests.index(attempt.by) + 1]
        if not attempt.confirms:
            replace_source(folder / attempt.site.file, attempt.site.mutated())
        failed = Path(f"{folder}.failed")
        failed.unlink(missing_ok=True)
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        pid = forked(folder, partial(run_pytest, folder, ["-x", *files], FirstFailure(tests, failed)))
        self.running[pid] = attempt, folder, time.monotonic() + self.timeout + 3 * attempt.seconds

    def ended(self, pid: int) -> str:
        """Return how a process ended, or nothing if it is still running."""
        done, status = os.waitpid(pid, os.WNOHANG)
        late = not done and time.monotonic() > self.running[pid][2]
        if done or late:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # also what the tests started
        if late:
            os.waitpid(pid, 0)
        return f"exit code {os.waitstatus_to_exitcode(status)}" if done else "time limit" if late else ""

    def conclude(self, pid: int, end: str) -> Attempt:
        """Free the copy; set the attempt's result, or leave it empty if another run is needed."""
        attempt, folder, _ = self.running.pop(pid)
        self.free.append(folder)
        failed = Path(f"{folder}.failed")
        by = failed.read_text(encoding="utf-8") if failed.exists() else end
        passed = by in PASSED
        if attempt.confirms:
            attempt.confirms = False
            if passed:
                self.trusted.add(attempt.by)
                attempt.result = "caught"
            else:
                print(f"not trusted, fails without a mutation: {attempt.by}", flush=True)
                kept = [test for test in attempt.tests if not f"{test}::".startswith(f"{attempt.by}::")]
                if kept == attempt.tests:
                    raise SystemExit(Path(f"{folder}.log").read_text(encoding="utf-8"))
                attempt.tests = kept
            return attempt
        replace_source(folder / attempt.site.file, (ROOT / attempt.site.file).read_bytes())
        attempt.by = "" if passed else by
        if passed:
            attempt.result = "survived" if attempt.covered else "not covered"
        elif by == "time limit":
            attempt.result = "timed out"
        elif by in self.trusted:
            attempt.result = "caught"
        else:
            attempt.confirms = True
        return attempt


def replace_source(file: Path, source: bytes) -> None:
    """Write a module and its bytecode, which Python would otherwise take for current if the size is the same."""
    file.write_bytes(source)
    py_compile.compile(str(file), doraise=True)


def draw(options: argparse.Namespace) -> list[Site]:
    """Return the mutants named by --only, or draw them."""
    sites = [site for file in sources(options.folders) for site in sites_of(file)]
    if options.only:
        return [site for site in sites if any(f"{site.name}:".startswith(f"{name}:") for name in options.only)]
    random.Random(options.seed).shuffle(sites)
    print(f"{len(sites)} sites in {', '.join(options.folders)}; seed {options.seed}", flush=True)
    return list(islice((site for site in sites if site.compiles()), options.count))


def described(attempt: Attempt) -> dict[str, Any]:
    """Return a line of --out."""
    site = attempt.site
    result = {"result": attempt.result, "by": attempt.by, "tests": len(attempt.tests)}
    return {"site": site.name, "operator": site.operator, "diff": site.diff(), **result}


def summary(attempts: list[Attempt]) -> None:
    """Print counts by folder, and the mutants that no test found."""
    kinds = ("caught", "timed out", "survived", "not covered")
    counts = Counter((Path(attempt.site.file).parts[1], attempt.result) for attempt in attempts)
    print(f"\n{'':12}{'drawn':>12}" + "".join(f"{kind:>12}" for kind in kinds))
    for folder in [*sorted({folder for folder, _ in counts}), "all"]:
        row = [sum(n for (f, k), n in counts.items() if k == kind and folder in (f, "all")) for kind in kinds]
        print(f"{folder:12}{sum(row):12}" + "".join(f"{n:12}" for n in row))
    for attempt in sorted(attempts, key=lambda attempt: attempt.site.name):
        if attempt.result in ("survived", "not covered"):
            site = attempt.site
            print(f"\n{attempt.result}: {site.name} ({site.operator}; {len(attempt.tests)} tests)\n    {site.diff()}")


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folders", nargs="+", default=FOLDERS, help="of the package")
    parser.add_argument("--only", nargs="+", default=[], metavar="FILE:LINE[:COLUMN]", help="mutants to run, undrawn")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="only these; give another --map too")
    parser.add_argument("--budget", type=float, default=30, help="recorded seconds of the tests of one mutant")
    parser.add_argument("--timeout", type=float, default=60, help="seconds beyond three times what was recorded")
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--map", type=Path, default=Path(tempfile.gettempdir(), "rageval-mutants.map"))
    options = parser.parse_args(given)
    for name in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    assert "langchain_rageval" not in sys.modules
    sites = draw(options)
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        folders = copies(Path(place), options.jobs)
        state = state_of(options.tests)
        if not options.map.exists() or Map(options.map).state() != state:
            print(f"recording which test executes which lines, into {options.map}", flush=True)
            record(folders, options.tests, options.map, state)
        tests = Map(options.map)
        attempts = []
        with options.out.open("w", encoding="utf-8") as out:
            drawn = [Attempt(site, *tests.selection(site, options.budget)) for site in sites]
            for attempt in Runner(folders, options.timeout).results(drawn):
                attempts.append(attempt)
                print(json.dumps(described(attempt), ensure_ascii=False), file=out, flush=True)
                print(f"{attempt.result:12} {attempt.site.name} {attempt.site.operator}  {attempt.by}", flush=True)
    summary(attempts)


if __name__ == "__main__":
    main()
