"""Simulated months of production, watched by `trend`: the second table of results/month.md.

python tests/benchmarks/month.py [months]
"""

import sys
from datetime import UTC, datetime, timedelta

import numpy as np

from langchain_rageval import Report, Row, Sample, Score, trend
from langchain_rageval.data.schema import Failure

START = datetime(2026, 11, 2, tzinfo=UTC)  # a Monday
DAYS, A_DAY, BASELINE = 30, 100, 300
MEANS = {"simple": 0.95, "hard": 0.65}
HARD = 0.3
OUTAGE = Failure(error="APIConnectionError", message="no connection", step="verify_statements")


def share(rng, mean):
    """Return a value like a share of supported statements: 1, or a multiple of a quarter."""
    return 1.0 if rng.random() < 2 * mean - 1 else rng.integers(0, 5) / 4


def rows(rng, days, a_day, fall=lambda day: 0.0, hard=lambda day: HARD, is_out=lambda day: False):
    """Yield the rows of some days: `fall` lowers the means, `hard` is the share of hard questions."""
    for number in range(days * a_day):
        day = number // a_day
        topic = "hard" if rng.random() < hard(day) else "simple"
        known = {"metric": "faithfulness", "aspect": "grounding"}
        score = Score(**known, value=share(rng, MEANS[topic] - fall(day)))
        score = Score(**known, failure=OUTAGE) if is_out(day) else score
        sample = Sample(question=f"Question {number}?", metadata={"topic": topic})
        time = START + timedelta(days=number / a_day)
        yield Row(index=number, sample=sample, scores={"faithfulness": score}, time=time)


MONTHS = {
    "stable": {},
    "slow drift: 0.2 lower after 30 days": {"fall": lambda day: 0.2 * day / DAYS},
    "sudden fall by 0.15 on day 15": {"fall": lambda day: 0.15 * (day >= 15)},
    "hard questions 30%, at weekends 80%": {"hard": lambda day: 0.8 if day % 7 >= 5 else HARD},
    "the judge is out on days 10 to 12": {"is_out": lambda day: 10 <= day <= 12},
}


def main():
    """Print one line for each row of the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    for name, changes in MONTHS.items():
        for adjust in (None, "metadata.topic"):
            rng = np.random.default_rng(0)
            found = []
            for _ in range(count):
                baseline = Report(list(rows(rng, 1, BASELINE)))
                watch = trend(Report(list(rows(rng, DAYS, A_DAY, **changes))), baseline, adjust=adjust)
                found += [(alarm.raised - START).days for alarm in watch.alarms.values()]
            when = f", on day {np.mean(found):.0f} in the mean" if found else ""
            print(f"{name}, adjust={adjust}: {len(found)} alarms in {count} months{when}", flush=True)


if __name__ == "__main__":
    main()
