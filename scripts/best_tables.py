"""How sure we are of the best, and how to begin; tables.py makes the tables.

Sets of molecules come as in molecule_tables.py. First plates are chosen on some sets and reported
on others; which is which stands in `HALVES`, and was fixed before any of them was played.
"""
from itertools import product

import numpy as np
import torch
from molecule_tables import SIZES, all_qm9, drawn_pool, other_set     # the script beside this one
from scipy.special import log_ndtr
from tables import Table

from gnn_bandits.campaigns import CampaignPolicy, propose
from gnn_bandits.policies import DRAWS, lite, wins
from gnn_bandits.surrogate import Surrogate, candidate_priors

# First plates

HALVES = {"choice": ("qm9 gap", "qm9 dipole", "qm9 U0", "qm9 polarisability", "esol log_solubility",
                     "photoswitch E_pi"),
          "report": ("chemml polarisability", "chemml density", "chemml refractive_index",
                     "freesolv hydration", "lipophilicity logD")}
SEEDS = {"choice": range(6000, 6010), "report": range(9000, 9010)} # Of the pools
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


# How probably each candidate is the best

EXACT = 2 # Times as many joint draws of the whole pool, to compare with


def independent(mean, std, grid=4000):
    "The exact probabilities if candidates were independent, which A-LITE approximates."
    f = np.linspace((mean - 8*std).max(), (mean + 8*std).max(), grid)
    below = np.concatenate([log_ndtr((c[:, None] - mean)/std) for c in np.array_split(f, 40)])
    rest, own = np.exp(below.sum(1, keepdims=True) - below), np.exp(below)
    p = (np.diff(own, axis=0)*(rest[1:] + rest[:-1])/2).sum(0) + 1 - own[-1]
    return p/p.sum()


def half_sum(p, q): return float(np.abs(np.asarray(p) - np.asarray(q)).sum()/2)


def few(p, level=0.9):
    "The fewest candidates that hold the best one with a probability."
    order = np.argsort(-p, kind="stable")
    return order[:1 + int((p[order].cumsum() < level).sum())]


def compared(model, values, rng):
    "Distances of several estimates to joint draws of the whole pool, and whether they are right."
    latent, fit = model.latent, model.fit
    own = torch.full_like(latent.mean, fit.private/fit.scale).index_fill(0, latent.arms, 0.)
    C, var = latent.covariance(), latent.std.square() + own
    C.diagonal().copy_(var)
    counts = [wins(latent.mean, C, rng).numpy()/DRAWS for _ in range(2*EXACT)]
    one, two = np.mean(counts[:EXACT], 0), np.mean(counts[EXACT:], 0)
    exact, ours = (one + two)/2, model.p_best(rng=rng).numpy()
    near, best = few(ours), int(values.argmax())
    fast = lite(latent.mean, var.sqrt()).exp().numpy()
    return dict(chance=half_sum(one, two), lite=half_sum(fast, exact), ours=half_sum(ours, exact),
                independent=half_sum(independent(latent.mean.numpy(), var.sqrt().numpy()), exact),
                lite_size=len(few(fast)), exact_size=len(few(exact)), size=len(near),
                inside=best in near, p_of_best=ours[best],
                measured=ours[latent.arms].sum(), best_measured=best in latent.arms.tolist())


def p_best(keys, o):
    """How probably each candidate is the best, by several estimates, in campaigns of 80.

    Distances are total variation distances to joint draws of the whole pool: F-LITE (lite), the
    exact probabilities of independent candidates (independent), and what campaigns use (ours);
    chance is that of two halves of the draws. size is the number of candidates that hold 90 per
    cent, inside says whether the true best one is among them, measured is the probability that the
    best was measured already and best_measured whether it was."""
    target, seed = keys[0][:2]
    pool, label = set_pool(target, seed, o)
    values, rng = pool.values[label].to_numpy(float), np.random.default_rng([seed, 9])
    model, state = Surrogate(candidate_priors(pool.domain)), np.full(len(pool), "available", "<U9")
    for key in keys:
        while model.t < key[2]:
            new = propose(model, CampaignPolicy(), 5, state, rng)[0]
            told = values[new] + 0.1*values.std()*rng.standard_normal(len(new))
            model.learn(new, told.tolist())
            state[new] = "measured"
        yield dict(zip(KEY_BEST, key)) | compared(model, values, rng)


KEY_BEST = "target", "seed", "t"


def best_keys():
    "All properties of all sets, a few pools of each."
    targets = *HALVES["choice"], *HALVES["report"]
    return list(product(targets, range(9000, 9003), (10, 20, 40, 80)))


TABLES = {"first_plates": Table(first_plates, KEY_PLATE, plate_keys, lambda k: k[:3], 6),
          "p_best": Table(p_best, KEY_BEST, best_keys, lambda k: k[:2], 6)}
