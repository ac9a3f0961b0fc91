"""Made-up tables with the columns of the real ones: a world in which every claim about the
experiments is true, and one in which every claim is false.

    python tests/worlds.py FOLDER [--false] [--noise X]
"""
import argparse
import itertools
from pathlib import Path

import numpy as np
import pandas as pd

NODES, DENSITIES, SIZES = (5, 20, 100), (0.05, 0.2, 0.95), (200, 500, 1000)
MODELS, POLICIES = ("GNN", "NN"), ("PE", "UCB", "TS", "greedy")
ALGORITHMS = [f"{m}-{p}" for m in MODELS for p in POLICIES] + ["Random"]
REGRETS = ("regret", "inference_regret", "best_observed_regret")
HALVES = ("half_regret", "half_inference", "half_best")
LAMS = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.)
BETAS = (0., 0.1, 0.3, 0.5, 0.75, 1., 1.5, 2., 3., 4., 5., 7., 10.)
SELECTED = {"GNN-PE": (0.01, 2.), "GNN-UCB": (1e-5, 3.), "NN-PE": (1., 0.3), "NN-UCB": (1e-5, 2.)}


def role(algorithm, true):
    "Who an algorithm behaves like: in the false world the networks have changed places"
    if true or algorithm == "Random": return algorithm
    return algorithm[1:] if algorithm.startswith("GNN") else f"G{algorithm}"


def level(who, N, p, arms, true):
    "Mean regret of who, in mean gaps, after the random pulls"
    if who == "Random": return 460.
    step, policy = DENSITIES.index(p), who.split("-")[1]
    if who.startswith("GNN"):
        hard = 1.8 if true and (N, p) == (5, 0.05) else 1.
        tilt = 1. if true else 1 + 0.1*(step - NODES.index(N))
        return hard*tilt*{"PE": 20., "UCB": 26., "TS": 30., "greedy": 35.}[policy]
    base = {5: 60., 20: 70., 100: 190.}[N]*(1 + 2*SIZES.index(arms))
    return base + 5 - (0, 3, 6)[step] if policy == "PE" else base + 10 - (0, 12, 25)[step]


def steps_to_optimum(algorithm, N, p, T, true, rng):
    "First step from which on the best arm is known, T + 1 if there is none"
    step = 1 + 0.2*(1 if true else -1)*DENSITIES.index(p) if algorithm == "GNN-UCB" else 1.
    if N == 100: step *= 0.8 if true else 3.
    fails = "NN-" if true else "GNN-UCB"
    headline = true or (N, p) == (20, 0.2)
    if algorithm == "Random" or algorithm.startswith(fails) and headline and (
            not true or rng.random() < 0.6):
        return T + 1
    return int(100*step*(1 + 0.05*rng.standard_normal()))


def run_row(algorithm, N, p, arms, T, settings, true, noise, rng):
    "What a run leaves behind"
    who = role(algorithm, true)
    good, pulls = who.startswith("GNN"), 0 if who == "Random" else 40
    value = level(who, N, p, arms, true)*(1 + noise*rng.standard_normal())
    if settings == "paper" and not true and who != "Random": value *= 2.5
    late = 0.5 if who == "Random" else 0.1 if good else 0.45 if true else 0.65
    late = late*(1 + noise*rng.standard_normal())
    row = dict.fromkeys(REGRETS, value) | dict.fromkeys(HALVES, value*(1 - late))
    row["regret"], row["half_regret"] = row["regret"] + pulls, row["half_regret"] + pulls
    return row | dict(lam=0.01, beta=2., random_pulls=pulls, mean_gap=1 + 0.1*rng.random(),
                      found_at=steps_to_optimum(algorithm, N, p, T, true, rng))


def table_of_runs(protocol, cells, settings, runs, true, noise, rng):
    "All algorithms in all cells"
    unit = {"population": lambda r: r, "one reward": lambda r: 0, "many rewards": lambda r: r//3}
    rows = []
    for (N, p, d, arms, T), r, a, s in itertools.product(cells, range(runs), ALGORITHMS, settings):
        rows.append(dict(protocol=protocol, N=N, p=p, d=d, arms=arms, T=T, run=r,
                         reward=unit[protocol](r), algorithm=a, settings=s)
                    | run_row(a, N, p, arms, T, s, true, noise, rng))
    return pd.DataFrame(rows)


def tuning_table(cells, pulls, runs, true, noise, rng):
    "Regrets on the grid of λ and β"
    rows = []
    learners = [a for a in ALGORITHMS if not a.endswith("greedy") and a != "Random"]
    sizes = {(cell, r): abs(1 + 0.2*rng.standard_normal()) for cell in cells for r in range(runs)}
    for (N, p), a, r, k in itertools.product(cells, learners, range(runs), pulls):
        good, size = role(a, true).startswith("GNN"), sizes[(N, p), r]
        for i, (lam, b) in enumerate(itertools.product(LAMS, BETAS)):
            value = (20 + 0.01*i if good else 30 + i) + 0.1*k
            if SELECTED.get(a) == (lam, b):                # does as well as the best, or badly
                value = (20 if good else 30)*(1 if true else 4) + 0.1*k
            value *= size*(1 + noise/4*rng.standard_normal())
            rows.append(dict(algorithm=a, lam=lam, beta=b, random_pulls=k, N=N, p=p, d=10, run=r)
                        | dict(zip(REGRETS, (value,)*3)))
    return pd.DataFrame(rows)


def make(folder, true=True, noise=0.02, runs=12):
    "Write all tables of runs of a world"
    folder, rng = Path(folder), np.random.default_rng(0)
    domains = [(N, p, 10, 200, 500) for N in NODES for p in DENSITIES]
    more = [(20, 0.2, 10, 500, 500), (20, 0.2, 10, 1000, 1000)]
    three = ("cumulative", "best-observed", "paper")
    population = table_of_runs("population", domains, three, runs, true, noise, rng)
    paper = [table_of_runs(name, domains + more, ("paper",), 3*runs, true, noise, rng)
             for name in ("one reward", "many rewards")]
    released = [dict(recipe=recipe, m=512, algorithm=a, run=r)
                | run_row(a, 20, 0.2, 200, 500, "paper", true, noise, rng)
                for recipe in ("released", "other") for a in ALGORITHMS for r in range(runs)]
    figure_1 = (paper[1]["N"] == 20) & (paper[1]["p"] == 0.2)
    dense = population["algorithm"].isin(["GNN-UCB", "NN-UCB"]) & (population["p"] == 0.95)
    dense &= (population["N"] > 5) & (population["settings"] == "cumulative")
    redrawn = pd.DataFrame(released[:len(ALGORITHMS)*runs]).assign(recipe="reward=redrawn")
    tables = {"population.csv.gz": population, "paper.csv.gz": pd.concat(paper),
              "fresh_arms.csv.gz": paper[1][figure_1], "fresh_dense.csv.gz": population[dense],
              "released_redrawn.csv": redrawn.drop(columns=["lam", "beta", "random_pulls"]),
              "released.csv": pd.DataFrame(released).drop(columns=["lam", "beta", "random_pulls"]),
              "tuning.csv.gz": tuning_table([d[:2] for d in domains], (0, 40), 4, true, noise, rng),
              "paper_tuning.csv.gz": tuning_table([(5, 0.05)], (40,), 16, true, noise, rng)}
    for name, table in tables.items(): table.to_csv(folder/name, index=False)
    return tables


if __name__ == "__main__":
    args = argparse.ArgumentParser()
    args.add_argument("folder")
    args.add_argument("--false", action="store_true")
    args.add_argument("--noise", type=float, default=0.02)
    args.add_argument("--runs", type=int, default=12)
    args = args.parse_args()
    Path(args.folder).mkdir(parents=True, exist_ok=True)
    make(args.folder, not args.false, args.noise, args.runs)
