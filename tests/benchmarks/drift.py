"""Delay of the drift alarm, simulated: the table of docs/how-to/trend.md.

python tests/benchmarks/drift.py
"""

import numpy as np

from langchain_rageval.statistics.drift import DriftDetector

MEAN, WATCHES = 0.85, 40


def shares(rng, size, mean):
    """Return values like shares of supported statements: 1, or a multiple of a quarter."""
    return np.where(rng.random(size) < 2 * mean - 1, 1.0, rng.integers(0, 5, size) / 4)


def watch(rng, baseline, fall, after, samples):
    """Return the number of samples until the alarm, or None."""
    detector = DriftDetector({None: list(shares(rng, baseline, MEAN))})
    for value in np.concatenate([shares(rng, after, MEAN), shares(rng, samples, MEAN - fall)]):
        if detector.add(float(value)):
            break
    return detector.alarm


def main():
    """Print one line for each row of the table."""
    rng = np.random.default_rng(0)
    for baseline in (100, 300):
        alarms = [watch(rng, baseline, 0.0, 0, 1500) for _ in range(100)]
        print(f"{baseline} samples, no fall: {sum(alarm is not None for alarm in alarms)} alarms in 100 watches")
        for fall, after in ((0.1, 500), (0.2, 500), (0.3, 0)):
            found = [alarm for _ in range(WATCHES) if (alarm := watch(rng, baseline, fall, after, 2500)) is not None]
            delays = [alarm - after for alarm in found]
            mean, slow = np.mean(delays), np.quantile(delays, 0.9)
            print(
                f"{baseline} samples, {fall} after {after}: {mean:.0f} ({slow:.0f}), {len(found)} of {WATCHES} watches"
            )


if __name__ == "__main__":
    main()
