"""How to begin a campaign and when to end it: first plates, contenders; tables.py makes the tables.

Sets of molecules come as in molecule_tables.py. First plates are chosen on some sets and reported
on others; which is which stands in `HALVES`, and was fixed before any of them was played.
"""
import tempfile
from itertools import product

import numpy as np
import torch
from molecule_tables import SIZES, all_qm9, drawn_pool, other_set     # the script beside this one
from tables import Table

from gnn_bandits.campaigns import Campaign, CampaignPolicy, propose
from gnn_bandits.surrogate import Surrogate, candidate_priors

# First plates

HALVES = {"choice": ("qm9 gap", "qm9 dipole", "qm9 U0", "qm9 polarisability", "esol log_solubility",
                     "photoswitch E_pi"),
          "report": ("chemml polarisability", "chemml density", "chemml refractive_index",
                     "freesolv hydration", "lipophilicity logD")}
SEEDS = {"choice": range(6000, 6010), "report": range(9000, 9005)} # Of the pools
AFTER, PLATE_BUDGET, PLATE = (10, 15, 20, 30, 50), 50, 10 # The mean gap after the plate counts


def picked(C, k, lam, score):
    "Arms that a score of the posterior covariance prefers one after the other; ties: the first."
    C, picks = C.clone(), []
    for _ in range(k):
        value = score(C, lam)
        value[picks] = -torch.inf
        picks.append(int((value >= value.max() - 1e-9*value.abs().max().clamp(max=1e300)).int()
                         .argmax()))
        c = C[picks[-1]].clone()
        C -= c[:, None]*c/(c[picks[-1]] + lam)
    return picks


def k_center(C, k, rng):
    "The arm farthest from those picked, in the distance of the kernel; the first at random."
    picks, own = [int(rng.integers(len(C)))], C.diagonal()
    far = torch.full_like(own, torch.inf)
    while len(picks) < k:
        a = picks[-1]
        far = torch.minimum(far, (own + own[a] - 2*C[a]).clamp(min=0))
        picks.append(int((far >= far.max()*(1 - 1e-9)).int().argmax()))
    return picks


STARTS = {
    "random": lambda C, k, lam, rng: rng.permutation(len(C))[:k].tolist(),
    "information": lambda C, k, lam, rng: picked(C, k, lam, lambda C, lam: C.diagonal().clone()),
    "k-center": lambda C, k, lam, rng: k_center(C, k, rng),
    "coverage": lambda C, k, lam, rng: picked(
        C, k, lam, lambda C, lam: C.square().sum(0)/(C.diagonal() + lam))}


def after_plate(priors, values, plate, budget, sd, rng):
    "The arms of a campaign that begins with some arms and goes on by the default policy."
    model, state = Surrogate(priors), np.full(len(values), "available", dtype="<U9")
    policy, arms, new = CampaignPolicy(starts=0), [], plate
    while new:
        model.learn(new, (values[new] + sd*rng.standard_normal(len(new))).tolist())
        state[new], arms = "measured", arms + new
        new = propose(model, policy, 1, state, rng)[0] if len(arms) < budget else []
    return np.array(arms)


def found_after(arms, values):
    "Distance to the best in deviations of the pool, its mean after the plate, and the top ten."
    gaps = (values.max() - values)/values.std()
    best, top = np.minimum.accumulate(gaps[arms]), np.argsort(gaps, kind="stable")[:10]
    return {f"gap_{s}": best[s - 1] for s in AFTER} | dict(
        mean_gap=best[PLATE:].mean(), top_ten=len(set(top) & set(arms)))


def set_pool(target, seed, o):
    "A pool of a set, and the name of the property in its table."
    name, column = target.split(" ", 1)
    rows, label = (all_qm9(), column) if name == "qm9" else (other_set(name, o.folder), target)
    return drawn_pool(rows, SIZES.get(name, 1000), seed), label


def first_plates(keys, o):
    """Campaigns that begin with plates chosen in several ways.

    Ten candidates first, then one at a time by UCB up to fifty; noise 0.1 deviations of the pool.
    gap_k is the distance to the best after k measurements in deviations of the pool, mean_gap its
    mean after the plate, top_ten how many of the best ten were measured."""
    half, target, seed, _ = keys[0]
    pool, label = set_pool(target, seed, o)
    priors, values = candidate_priors(pool.domain), pool.values[label].to_numpy(float)
    belief = Surrogate(priors).latent
    C = belief.covariance()
    for key in keys:
        plate = STARTS[key[-1]](C, PLATE, belief.lam, np.random.default_rng([seed, 7]))
        arms = after_plate(priors, values, plate, PLATE_BUDGET, 0.1*values.std(),
                           np.random.default_rng([seed, 8]))
        yield dict(zip(KEY_PLATE, key)) | found_after(arms, values)


KEY_PLATE = "half", "target", "seed", "start"


CHOSEN = "k-center" # The smallest mean_gap on the sets of the choice, mean over targets


def plate_keys():
    "All starts on the sets of the choice; the chosen one and random on those of the report."
    kinds = {"choice": tuple(STARTS), "report": ("random", CHOSEN)}
    return [(half, t, s, start) for half in HALVES for t in HALVES[half] for s in SEEDS[half]
            for start in kinds[half]]


# How often the contenders that a campaign names hold the best candidate

KEY_SURE, LEVEL = ("target", "seed"), 0.9
WHEN = 15, 30, 60 # Measurements after which a campaign is asked


def contenders(keys, o):
    """What `Campaign.contenders` says on the way, and whether it is true.

    A campaign with all its defaults measures one molecule at a time, with noise of 0.1 deviations.
    holds is whether the best molecule is among those that are named with probability 0.9, named how
    many these are, measured the stated probability that the best was measured, and is_measured
    whether it was."""
    for target, seed in keys:
        pool, label = set_pool(target, seed, o)
        values, rng = pool.values[label].to_numpy(float), np.random.default_rng([seed, 9])
        best, told = set(np.flatnonzero(values == values.max())), values + (
            0.1*values.std()*rng.standard_normal(len(values)))
        with tempfile.TemporaryDirectory() as home:
            campaign = Campaign.create(f"{home}/c", pool.domain, seed=seed)
            for t in range(1, max(WHEN) + 1):
                new = list(campaign.ask(1))
                campaign.tell(new, told[new].tolist())
                if t not in WHEN: continue
                said, seen = campaign.contenders(LEVEL), set(campaign.observations["arm"])
                yield dict(target=target, seed=seed, measurements=t, pool=len(values),
                           named=len(said["arms"]), probability=said["probability"],
                           holds=int(bool(best & set(said["arms"]))), measured=said["measured"],
                           is_measured=int(bool(best & seen)))
            campaign.close()


TABLES = {"first_plates": Table(first_plates, KEY_PLATE, plate_keys, lambda k: k[:3], 6),
          "contenders": Table(contenders, KEY_SURE, lambda: [*product(
              HALVES["choice"][:4], range(9000, 9025))], digits=6)}
