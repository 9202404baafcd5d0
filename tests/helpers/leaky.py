"""Small tables with a leak, as columns by name: a random split scores far higher on them than new rows will."""

import datetime as dt

import numpy as np


def sensor(n=600, seed=0, run=20):
    """Rows in time; level and state last for `run` rows and are drawn independently of each other."""
    rng = np.random.default_rng(seed)
    runs = n // run
    level = np.repeat(rng.normal(size=(runs, 3)), run, axis=0) + rng.normal(scale=0.05, size=(n, 3))
    begun = dt.datetime(2024, 1, 1)
    return {
        "timestamp": [str(begun + dt.timedelta(minutes=10 * i)) for i in range(n)],
        **{f"level_{j}": level[:, j].round(3) for j in range(3)},
        "state": np.repeat(np.array(["idle", "run", "fail"])[rng.integers(0, 3, runs)], run),
    }


def patients(n=60, seed=0):
    """Ten rows per patient, whose values resemble each other; the diagnosis is drawn per patient."""
    rng = np.random.default_rng(seed)
    who = rng.permutation(np.repeat(np.arange(n), 10))
    names = np.array([f"P{i:05d}" for i in rng.permutation(90_000)[:n]])
    values = rng.normal(size=(n, 5))[who] + rng.normal(scale=0.1, size=(10 * n, 5))
    return {
        "who": names[who],
        **{f"value_{j}": values[:, j].round(3) for j in range(5)},
        "dx": np.array(["a", "b", "c"])[rng.integers(0, 3, n)][who],
    }


def copies(n=200, seed=0, jitter=0.0):
    """Noise with labels drawn at random, each row three times; with `jitter`, the copies differ a little."""
    rng = np.random.default_rng(seed)
    row = rng.permutation(np.repeat(np.arange(n), 3))
    values = rng.normal(size=(n, 6)).round(3)[row]
    values = values + jitter * rng.normal(size=values.shape)
    return {**{f"x{j}": values[:, j] for j in range(6)}, "y": rng.integers(0, 2, n)[row]}


def target_column(n=400, seed=0):
    """A column of codes that are the labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return {
        "age": rng.integers(18, 90, n),
        "spend": (rng.normal(size=n) + 0.3 * y).round(2),
        "code": np.array([42, 17])[y],
        "churn": np.array(["no", "yes"])[y],
    }


def write_csv(path, columns):
    """Write columns by name."""
    lines = [",".join(map(str, row)) for row in zip(*columns.values())]
    path.write_text("\n".join([",".join(columns), *lines]) + "\n")
