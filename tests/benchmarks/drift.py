"""False alarms and delay of the drift alarm, and false changes, simulated: the tables of results/drift.md.

python tests/benchmarks/drift.py
"""

import numpy as np

from langchain_rageval.statistics.sequential import DriftDetector, change_points

MEAN, WATCHES, PER_DAY = 0.85, 40, 100


def shares(rng, size, mean):
    """Return values like shares of supported statements: 1, or a multiple of a quarter."""
    return np.where(rng.random(size) < 2 * mean - 1, 1.0, rng.integers(0, 5, size) / 4)


def watch(rng, baseline, fall, after, samples, per_day=PER_DAY):
    """Return the number of samples until the alarm, or None."""
    detector = DriftDetector({None: list(shares(rng, baseline, MEAN))})
    for number, value in enumerate(np.concatenate([shares(rng, after, MEAN), shares(rng, samples, MEAN - fall)])):
        if detector.add(float(value), period=number // per_day):
            break
    return detector.alarm


def error(share, runs):
    """Return 1.96 Monte Carlo standard errors of a share."""
    return 1.96 * (max(share * (1 - share), 0.5 / runs) / runs) ** 0.5


def false_changes(rng, spread, weekend, months):
    """Return the shares of months with a change in 30 means of days, and in the scores themselves."""
    counts = np.zeros(2)
    for _ in range(months):
        means = [MEAN + rng.normal(0, spread) if day % 7 < 5 else MEAN - weekend for day in range(30)]
        days = [shares(rng, PER_DAY, float(np.clip(mean, 0.5, 1))) for mean in means]
        counts += [bool(change_points([float(day.mean()) for day in days])), bool(change_points(np.concatenate(days)))]
    return counts / months


def main():
    """Print one line for each row of the tables."""
    rng = np.random.default_rng(0)
    for baseline in (100, 300, 20_000):
        alarms = [watch(rng, baseline, 0.0, 0, 3650, per_day=10) for _ in range(200)]
        ever = np.mean([alarm is not None for alarm in alarms])
        print(f"{baseline} samples, no fall: {ever:.3f} ± {error(ever, 200):.3f} of 200 years have an alarm")
    for baseline in (100, 300):
        for fall, after in ((0.1, 500), (0.2, 500), (0.3, 0)):
            found = [alarm for _ in range(WATCHES) if (alarm := watch(rng, baseline, fall, after, 2500)) is not None]
            delays = [alarm - after for alarm in found if alarm > after]
            mean, slow = np.mean(delays), np.quantile(delays, 0.9)
            print(
                f"{baseline} samples, {fall} after {after}: {mean:.0f} ({slow:.0f}), {len(found)} of {WATCHES} watches"
            )
    for name, spread, weekend in (("equal days", 0, 0), ("sd .05", 0.05, 0), ("sd .10", 0.1, 0), ("weekends", 0, 0.18)):
        days, rows = false_changes(rng, spread, weekend, 400)
        print(
            f"changes, {name}: {days:.3f} ± {error(days, 400):.3f} by day, {rows:.3f} ± {error(rows, 400):.3f} by row"
        )


if __name__ == "__main__":
    main()
