"""Speed and cost of this library compared with a bare ChatOpenAI and ragas 0.4.3, on the same data and server.

    python tests/benchmarks/compare.py --ragas ragas/bin/python
    python tests/benchmarks/compare.py --bars --ragas ragas/bin/python
    python tests/benchmarks/compare.py --layouts

The model is a loopback OpenAI-compatible server in a separate process that answers by word overlap, so the results say
nothing about quality. Each client is a separate process, and they take turns; before the first round each runs once,
untimed and without latency, so that the server has cached all answers. The bare client replays our requests.

Tokens are bytes / 4 of the messages as a chat template renders them. Schemas are not among them: vLLM keeps them from
the model. The prefix cache is vLLM's, empty when a client begins. Ideal is the sum of the calls' latencies / slots. CPU
and memory are those of the client's process, from when it is warm; where client and server keep as many cores busy as
there are, the machine was measured and nothing else. Embeddings come without latency. `--bars` runs the
contract's three settings and prints its bars beside the figures; throughput is bare wall time / ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from model_server import BLOCKS, Conditions, ServerProcess  # noqa: E402
from samples import samples  # noqa: E402

LAYOUTS = ("contexts_first", "instruction_first", "shared_instructions")
SETTINGS = ((16, 0.3), (64, 0.6), (256, 2.0))
SAMPLES_PER_SLOT = 6  # fewer, and the calls that end a run, one waiting for the other, weigh too much
SETTING_NAMES = ("LANGSMITH_", "LANGCHAIN_", "OPENAI_")
Outcome = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """Setting of one comparison.

    Attributes:
        samples: number of samples.
        slots: maximum number of calls of a client at a time.
        metrics: "one" or "six".
        door: "sync" or "async".
        conditions: how the server serves.
        timeout: seconds for a call.
        layout: of our requests; None for the default.
    """

    samples: int
    slots: int
    metrics: str
    door: str
    conditions: Conditions
    timeout: float
    layout: str | None = None

    def __str__(self) -> str:
        latency = f"{self.conditions.latency:g} s{' lognormal' if self.conditions.lognormal else ''}"
        faults = ", with faults" if self.conditions.hang is not None else ""
        what = f"{self.samples} samples, {self.metrics} metric{'s' if self.metrics == 'six' else ''}"
        return f"{what}, {self.slots} slots, {latency}, {self.door} door{faults}"


class Bench:
    """The server, the programs of the clients, and the folder of their inputs."""

    def __init__(self, server: ServerProcess, folder: Path, ragas: str | None) -> None:
        self.server = server
        self.folder = folder
        self.ragas = ragas

    def compare(self, trial: Trial, rounds: int) -> dict[str, list[Outcome]]:
        """Return the measurements of each client in each round."""
        given = self._write("samples", samples(trial.samples + 1))
        calm = replace(trial, slots=16, conditions=replace(trial.conditions, latency=0.0, hang=None))
        clients = ["ours", "bare", *(["ragas"] if self.ragas else [])]
        self.run("ours", calm, samples=given)
        asked = self._write("requests", map(_sent, self.server.bodies()))
        if self.ragas:
            self.run("ragas", calm, samples=given)
        costs: dict[str, list[Outcome]] = {client: [] for client in clients}
        for number in range(rounds):
            for client in clients:
                costs[client].append(self.run(client, trial, samples=given, requests=asked))
                print(f"round {number + 1}, {client}: {costs[client][-1]['wall']:.1f} s", file=sys.stderr)
        return costs

    def alone(self, trial: Trial, language: str) -> Outcome:
        """Return the measurements of this library on samples of one language."""
        return self.run("ours", trial, samples=self._write("samples", samples(trial.samples + 1, [language])))

    def run(self, client: str, trial: Trial, **options: str) -> Outcome:
        """Start a client, reset the server's records when it is warm, and return the measurements of both."""
        given = {
            **options,
            "url": f"{self.server.url}/v1",
            "warm_url": f"{self.server.url.replace('127.0.0.1', 'localhost')}/v1",  # clients are cached by address
            **{name: getattr(trial, name) for name in ("slots", "metrics", "door", "timeout", "layout")},
        }
        program = {"ours": "our_run.py", "bare": "bare_run.py", "ragas": "ragas_run.py"}[client]
        python = self.ragas if client == "ragas" and self.ragas else sys.executable
        self.server.open(Conditions())
        with _started([python, str(HERE / program), json.dumps(given)]) as process:
            _line(process, "ready")
            self.server.open(trial.conditions)
            _say(process, "go")
            told = json.loads(_line(process, "{"))
        books = self.server.books()
        return {**told, **books, **figures(told, books, trial)}

    def _write(self, name: str, items: Any) -> str:
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items), encoding="utf-8")
        return str(path)


def figures(told: Outcome, books: dict[str, float], trial: Trial) -> Outcome:
    """Return the figures of the table from the measurements."""
    slots = min(trial.slots, trial.conditions.slots or trial.slots)
    ideal = books["seconds"] / slots
    return {
        "ideal": ideal,
        "efficiency": ideal / told["wall"],
        "calls_per_sample": books["calls"] / trial.samples,
        "prompt_per_sample": books["prompt_tokens"] / trial.samples,
        "unserved_per_sample": books["unserved_tokens"] / trial.samples,
        "embeddings_per_sample": books["embeddings"] / trial.samples,
        "cpu_per_call": told["cpu"] * 1000 / books["calls"],
        "cores": told["cpu"] / told["wall"],
        "server_cores": books["server_cpu"] / told["wall"],
    }


ROWS: Sequence[tuple[str, str, str]] = (
    ("wall, s", "wall", ".2f"),
    ("ideal, s", "ideal", ".2f"),
    ("efficiency (ideal / wall)", "efficiency", ".3f"),
    ("calls a sample", "calls_per_sample", ".2f"),
    ("embedding requests a sample", "embeddings_per_sample", ".2f"),
    ("prompt tokens a sample", "prompt_per_sample", ",.0f"),
    ("  not served by the cache", "unserved_per_sample", ",.0f"),
    ("CPU a call, ms", "cpu_per_call", ".2f"),
    ("cores that the client kept busy", "cores", ".2f"),
    ("  that the server did", "server_cores", ".2f"),
    ("peak memory, MiB", "peak", ".0f"),
    ("failed (ragas: NaN)", "failed", ".0f"),
    ("unscored", "unscored", ".0f"),
)


def middle(costs: list[Outcome], name: str) -> float | None:
    """Return the median over the rounds; None if this client does not measure the figure."""
    values = [cost[name] for cost in costs if cost[name] is not None]
    return median(values) if values else None


def ratio(ones: list[Outcome], others: list[Outcome], name: str) -> float | None:
    """Return the median of the rounds' ratios; None if there is none."""
    pairs = [(one[name], other[name]) for one, other in zip(ones, others, strict=True)]
    ratios = [one / other for one, other in pairs if one is not None and other]
    return median(ratios) if ratios else None


def table(costs: dict[str, list[Outcome]]) -> Iterator[str]:
    """Return a line for each figure: medians, then ratios."""
    others = [name for name in costs if name != "ours"]
    heads = [*costs, *(f"ours/{name}" for name in others)]
    if "ragas" in costs:
        heads.append("ragas/bare")
    yield f"{'':32}" + "".join(f"{head:>12}" for head in heads)
    for title, name, form in ROWS:
        cells = [_cell(middle(rounds, name), form) for rounds in costs.values()]
        cells += [_cell(ratio(costs["ours"], costs[other], name), ".3f") for other in others]
        if "ragas" in costs:
            cells.append(_cell(ratio(costs["ragas"], costs["bare"], name), ".3f"))
        yield f"{title:32}" + "".join(f"{cell:>12}" for cell in cells)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


@dataclass(frozen=True)
class Bar:
    """Required limit of a figure."""

    asked: str
    value: float | None
    passes: Callable[[float], bool]

    def __str__(self) -> str:
        if self.value is None:
            return f"  {self.asked}: not measured"
        return f"  {self.asked}: {self.value:.3f} {'yes' if self.passes(self.value) else 'NO'}"


def bars(costs: dict[str, list[Outcome]], trial: Trial) -> Iterator[Bar]:
    """Return the required limits for one setting."""
    ours, bare, ragas = costs["ours"], costs["bare"], costs.get("ragas")
    on_top = [one["cpu_per_call"] - other["cpu_per_call"] for one, other in zip(ours, bare, strict=True)]
    yield Bar("as many calls as bare", ratio(ours, bare, "calls"), lambda value: value == 1)
    yield Bar("throughput at least 0.95 of bare", ratio(bare, ours, "wall"), lambda value: value >= 0.95)
    if trial.slots == SETTINGS[0][0]:
        yield Bar("efficiency at least 0.90", middle(ours, "efficiency"), lambda value: value >= 0.9)
    yield Bar("own CPU on top of a bare call at most 1 ms", median(on_top), lambda value: value <= 1)
    if trial.metrics == "six":
        yield Bar("at most 8 calls a sample", middle(ours, "calls_per_sample"), lambda value: value <= 8)
    if ragas:
        read = [{"tokens": cost["unserved_per_sample"]} for cost in ours]
        sent = [{"tokens": cost["prompt_per_sample"]} for cost in ragas]
        told = "tokens not served at most 0.45 of ragas's"
        yield Bar(f"{told} prompt tokens", ratio(read, sent, "tokens"), lambda value: value <= 0.45)
        yield Bar(f"{told} not served", ratio(ours, ragas, "unserved_per_sample"), lambda value: value <= 0.45)
        yield Bar("CPU a call below ragas's", ratio(ours, ragas, "cpu_per_call"), lambda value: value < 1)


def layouts(bench: Bench, trial: Trial) -> Iterator[Outcome]:
    """Print the tokens of each layout, for one metric and six, by language."""
    for metrics in ("one", "six"):
        for language in ("en", "ru"):
            for layout in LAYOUTS:
                cost = bench.alone(replace(trial, metrics=metrics, layout=layout), language)
                yield {"metrics": metrics, "language": language, "layout": layout, **cost}


def _sent(body: dict[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in ("messages", "response_format", "input") if name in body}


@contextmanager
def _started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Start the process of a client without the user's settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(SETTING_NAMES)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def _line(process: subprocess.Popen[str], start: str) -> str:
    """Read the next line, which must begin with a prefix.

    Raises:
        RuntimeError: if the client ended or wrote another line.
    """
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith(start):
        raise RuntimeError(f"expected a line with {start!r}, got {line!r}; the client's words stand above")
    return line


def _say(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def main() -> None:
    """Run the comparison that the options select."""
    options = _parser().parse_args()
    if options.ragas and not Path(options.ragas).exists():
        sys.exit(f"--ragas takes the path of a Python with ragas, and there is no {options.ragas}")
    collected: list[Outcome] = []
    with ServerProcess() as server, tempfile.TemporaryDirectory() as folder:
        bench = Bench(server, Path(folder), options.ragas)
        if options.layouts:
            _show_layouts(bench, options, collected)
        else:
            _show(bench, options, collected)
    if options.json:
        print(json.dumps(collected))


def _show(bench: Bench, options: argparse.Namespace, collected: list[Outcome]) -> None:
    for slots, latency in SETTINGS if options.bars else ((options.slots, options.latency),):
        count = max(options.samples, SAMPLES_PER_SLOT * slots) if options.bars else options.samples
        trial = _trial(options, count, slots, latency)
        busy = f"{os.getloadavg()[0]:.1f} of {os.cpu_count()} cores busy before"
        print(f"\n{trial}; medians of {options.rounds} rounds; {busy}", flush=True)
        costs = bench.compare(trial, options.rounds)
        for line in table(costs):
            print(line)
        if options.bars:
            print(*bars(costs, trial), sep="\n", flush=True)
        collected.append({"trial": str(trial), "costs": costs})


def _show_layouts(bench: Bench, options: argparse.Namespace, collected: list[Outcome]) -> None:
    trial = _trial(options, options.samples, options.slots, options.latency)
    kept = f"{options.blocks} blocks"
    print(f"{trial.samples} samples a language, {trial.slots} slots, {trial.conditions.latency:g} s, cache of {kept}")
    print(f"{'metrics':9}{'language':10}{'layout':20}{'prompt tokens':>14}{'not served':>12}{'calls':>8}")
    for cost in layouts(bench, trial):
        name = f"{cost['metrics']:9}{cost['language']:10}{cost['layout']:20}"
        tokens = f"{cost['prompt_per_sample']:14,.0f}{cost['unserved_per_sample']:12,.0f}"
        print(f"{name}{tokens}{cost['calls_per_sample']:8.2f}", flush=True)
        collected.append(cost)


def _trial(options: argparse.Namespace, count: int, slots: int, latency: float) -> Trial:
    timeout = max(10.0, 10 * latency) if options.faults else 60.0
    hang = 3 * timeout if options.faults else None
    conditions = Conditions(latency, options.lognormal, options.server_slots, options.blocks, hang)
    return Trial(count, slots, options.metrics, options.door, conditions, timeout, options.layout)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--slots", type=int, default=16, help="most calls of a client at a time")
    parser.add_argument("--latency", type=float, default=0.3, help="seconds of a call")
    parser.add_argument("--lognormal", action="store_true", help="spread the latencies around that mean")
    parser.add_argument("--server-slots", type=int, help="most calls that the server works on at a time")
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="16-token blocks in the prefix cache")
    parser.add_argument("--faults", action="store_true", help="5%% 429, 2%% 500, 5%% malformed, 0.5%% hangs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--metrics", choices=("one", "six"), default="six", help="faithfulness, or the contract's six")
    parser.add_argument("--door", choices=("sync", "async"), default="sync")
    parser.add_argument("--layout", choices=LAYOUTS, help="of our requests, instead of the default")
    parser.add_argument("--ragas", metavar="PYTHON", help="a Python with ragas 0.4.3, see ragas_run.py")
    parser.add_argument("--layouts", action="store_true", help="tokens of our three layouts, and nothing else")
    parser.add_argument("--bars", action="store_true", help="the contract's settings and its bars")
    parser.add_argument("--json", action="store_true", help="print everything as JSON too")
    return parser


if __name__ == "__main__":
    main()
