"""Several outcomes on QM9: fronts beside those of others, thresholds and prices; tables.py makes
the tables.

Pools of 300 molecules, ten random starts that all recipes share, one measurement at a time, no
noise. A seed draws the pool, the starts and the prices; it is the unit of replication. No setting
was chosen on these pools. The extras `molecules`, `qm9` and `botorch` are needed.
"""
from itertools import product

import numpy as np
import torch
from molecule_tables import (MODELS, all_qm9, drawn_pool,         # the script beside this one
                             scores_of_new, tanimoto_process)
from tables import Table

from gnn_bandits.campaigns import CampaignPolicy, Purse, propose
from gnn_bandits.core import optional
from gnn_bandits.outcomes import (OUTCOME_POLICIES, Several, as_outcomes, hypervolume,
                                  nondominated)
from gnn_bandits.surrogate import Surrogate

SIZE, SEEDS, STARTS, BUDGET = 300, range(9000, 9010), 10, 60
PAIRS = {"gap and polarisability": ("gap", "polarisability"), "gap and dipole": ("gap", "dipole")}
STEPS, MONEY = (10, 20, 30, 40, 50, 60), (10, 20, 30, 40)


class Blind(Purse):
    "A purse that pays, and does not look at prices before it is empty."
    def per_price(self, scores, gain): return scores


def tanimoto_gain(pool):
    "qLogEHVI in BoTorch of independent Tanimoto Gaussian processes."
    fitted, models = tanimoto_process(pool), optional("botorch.models", "botorch")
    gain_of = optional("botorch.acquisition.multi_objective.logei", "botorch")
    cut = optional("botorch.utils.multi_objective.box_decompositions.non_dominated", "botorch")
    infer = optional("botorch.utils.multi_objective.hypervolume", "botorch").infer_reference_point

    def score(arms, told):
        X, Y = torch.tensor(arms, dtype=torch.float64)[:, None], torch.as_tensor(told)
        Y = (Y - Y.mean(0))/Y.std(0)
        each = [fitted(X, y) for y in Y.T]
        with torch.random.fork_rng(devices=()), torch.no_grad():
            torch.manual_seed(len(arms))                 # of the samples
            ref = infer(Y[nondominated(Y)])
            return scores_of_new(gain_of.qLogExpectedHypervolumeImprovement(
                models.ModelListGP(*each), ref, cut.FastNondominatedPartitioning(ref, Y)),
                len(pool), arms, 64)
    return score


def play(values, wishes, seed, priors, score=None, policy="ei", purse=None, steps=BUDGET):
    "The molecules that a recipe measures, in order."
    n, rng = len(values), np.random.default_rng([97, seed])
    state, arms = np.full(n, "available", dtype="<U9"), []
    models, how = [Surrogate(priors) for _ in wishes], CampaignPolicy(policy, starts=STARTS)
    while len(arms) < steps:
        if score is not None and len(arms) >= STARTS:
            found = [int(np.where(state == "available", score(arms, values[arms]),
                                  -np.inf).argmax())]
        else: found, _ = propose(Several(models, wishes), how, 1, state, rng, purse,
                                 OUTCOME_POLICIES)
        if not found: break
        arms += found
        state[found] = "measured"
        for m, w, y in zip(models, wishes, values.T): m.learn(found, w.sign*y[found])
    return arms


def measure_of(values, signs):
    "From some arms to their share of the hypervolume of the pool."
    points = signs*values
    front = points[nondominated(torch.from_numpy(points)).numpy()]
    ref = front.min(0) - 0.1*np.ptp(front, axis=0)
    whole = hypervolume(points, ref)
    return lambda arms: hypervolume(points[arms], ref)/whole


def two(seed, pair):
    "A pool and two properties of its molecules."
    pool = drawn_pool(all_qm9(), SIZE, seed)
    return pool, pool.values[list(PAIRS[pair])].to_numpy(float)


RECIPES = {"ours ei": ("ours", "ei"), "ours ts": ("ours", "ts"), "tanimoto ei": ("tanimoto", "ei"),
           "tanimoto qLogEHVI": ("random", "qLogEHVI"), "random": ("random", "random")}


def fronts(keys, options):
    "Share of the hypervolume of the pool after some measurements, for two properties, both large."
    pool, values = two(*keys[0][:2])
    wishes = as_outcomes(dict.fromkeys(PAIRS[keys[0][1]], "max"))
    share = measure_of(values, 1.)
    for seed, pair, recipe in keys:
        model, policy = RECIPES[recipe]
        score = tanimoto_gain(pool) if policy == "qLogEHVI" else None
        arms = play(values, wishes, seed, MODELS[model](pool), score, "ei" if score else policy)
        yield dict(seed=seed, pair=pair, recipe=recipe,
                   **{f"after_{k}": share(arms[:k]) for k in STEPS})


THRESHOLDS = ("threshold", "threshold ignored", "no threshold", "random")


def thresholds(keys, options):
    """One property large, the other at least its upper quartile in the pool.

    gap_20 is the distance of the best feasible molecule among the first 20 to the best feasible
    one of the pool, in standard deviations; without a threshold every molecule is feasible. Where
    none was found yet, the worst feasible one of the pool counts.
    """
    pool, values = two(*keys[0][:2])
    a, b = PAIRS[keys[0][1]]
    limit = float(np.quantile(values[:, 1], 0.75))
    for seed, pair, recipe in keys:
        wishes = as_outcomes({a: "max", b: f">= {limit!r}"} if recipe == "threshold" else
                             {a: "max"})
        policy = "random" if recipe == "random" else "ei"
        arms = play(values[:, :len(wishes)], wishes, seed, MODELS["ours"](pool), policy=policy)
        good = (values[:, 1] >= limit) | (recipe == "no threshold")
        value = np.where(good, values[:, 0], values[good, 0].min())
        gap = lambda k: (value.max() - value[arms[:k]].max())/values[:, 0].std()
        yield dict(seed=seed, pair=pair, recipe=recipe,
                   price=(values[:, 0].max() - value.max())/values[:, 0].std(),
                   feasible=int(good[arms].sum()), **{f"gap_{k}": gap(k) for k in STEPS})


PRICES = ("improvement per price", "prices ignored", "random")


def prices(keys, options):
    """Share of the hypervolume of the pool for some money; prices are lognormal with median one.

    share_20 is what is found for the money of 20 molecules of the median price; prices have a
    standard deviation of one on the logarithmic scale and nothing to do with the properties.
    """
    pool, values = two(*keys[0][:2])
    wishes, share = as_outcomes(dict.fromkeys(PAIRS[keys[0][1]], "max")), measure_of(values, 1.)
    for seed, pair, recipe in keys:
        price = np.exp(np.random.default_rng([98, seed]).standard_normal(len(values)))
        purse = (Purse if recipe == PRICES[0] else Blind)(price, float(MONEY[-1]))
        policy = "random" if recipe == "random" else "ei"
        arms = play(values, wishes, seed, MODELS["ours"](pool), policy=policy, purse=purse,
                    steps=len(values))
        paid = np.cumsum(price[arms])
        got = {f"share_{m}": share([a for a, p in zip(arms, paid) if p <= m]) for m in MONEY}
        yield dict(seed=seed, pair=pair, recipe=recipe, measured=len(arms), **got)


def table(play, recipes):
    "A table by seed, pair and recipe."
    return Table(play, ("seed", "pair", "recipe"), lambda: [*product(SEEDS, PAIRS, recipes)],
                 together=lambda k: k[:2] if k[2] != "tanimoto qLogEHVI" else k, unfinished=True)


TABLES = {"outcomes_fronts": table(fronts, RECIPES),
          "outcomes_thresholds": table(thresholds, THRESHOLDS),
          "outcomes_prices": table(prices, PRICES)}
