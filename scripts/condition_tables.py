"""Conditions beside the graph: campaigns with several molecules a row; tables.py makes the tables.

The files come by --folder and are not distributed. `arylation` needs `experiments.csv` and
`edbo_runs.csv` (b-shields/edbo, MIT: Shields et al., Nature 2021). The sets on which settings were
chosen need `buchwald.csv` (ligand, additive, base, halide, value) and `suzuki.csv` (reactant1,
reactant2, ligand, base, solvent, value): the tables of drfp's source archive (MIT), whose names of
ligands, bases and solvents are written as SMILES there.
"""
import tempfile
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
from tables import Table                                 # the script beside this one

from gnn_bandits.campaigns import Campaign, CampaignPolicy, virtual
from gnn_bandits.kernels import GNTK, Columns, Overlap, Relational, Sum
from gnn_bandits.molecules import MORGAN_FEATURES, read_reactions
from gnn_bandits.surrogate import Surrogate, candidate_priors

STEPS, BATCH = (5, 10, 15, 25, 50), 5
ARYLATION = ["Base_SMILES", "Ligand_SMILES", "Solvent_SMILES"], ["Concentration", "Temp_C"]
CHOSEN_ON = {"buchwald": (["ligand", "additive", "base", "halide"], []),
             "suzuki": (["ligand", "base", "solvent"], ["reactant1", "reactant2"])}


def found(values):
    "The best value after some experiments."
    return {f"after_{k}": round(float(np.max(values[:k])), 4) for k in STEPS}


# The test

@cache
def arylation(folder): return pd.read_csv(folder/"experiments.csv")


def played(table, seed, **options):
    "The values that a campaign finds, by its own `ask`, five at a time."
    values = table["yield"].to_numpy(float)
    with tempfile.TemporaryDirectory() as home:
        c = Campaign.create(f"{home}/c", seed=seed, table=table.drop(columns="yield"), **options)
        while len(c.observations) < max(STEPS): c.tell(arms := c.ask(BATCH), values[arms])
        return c.observations["value"].to_numpy()


def one_graph(table):
    "The molecules of a row as one graph, conditions unseen."
    from gnn_bandits import GraphDomain
    dotted = table[ARYLATION[0]].agg(".".join, axis=1)
    return GraphDomain.from_smiles(dotted, duplicates="keep")


METHODS = {
    "campaign": lambda t, s, _: played(t, s, smiles=ARYLATION[0], columns=ARYLATION[1]),
    "campaign, EI": lambda t, s, _: played(t, s, smiles=ARYLATION[0], columns=ARYLATION[1],
                                           policy="ei"),
    "columns ignored": lambda t, s, _: played(t, s, domain=one_graph(t)),
    "random": lambda t, s, _: np.random.default_rng(s).permutation(t["yield"].to_numpy()),
    "EDBO": lambda t, s, folder: pd.read_csv(folder/"edbo_runs.csv", index_col=0).to_numpy()[s]}
SEEDS = {"campaign": 20, "campaign, EI": 10, "columns ignored": 10, "random": 200, "EDBO": 50}


def conditions(keys, o):
    "Best yield of direct arylations after some experiments, by campaigns and by EDBO."
    for method, seed in keys:
        values = METHODS[method](arylation(o.folder), seed, o.folder)
        yield dict(method=method, seed=seed) | found(values)


# How settings were chosen, on other sets

@cache
def reactions(name, folder):
    "A pool of reactions and its yields."
    table, (smiles, columns) = pd.read_csv(folder/f"{name}.csv"), CHOSEN_ON[name]
    pool = read_reactions(table, smiles)[0]
    pool = pool.with_columns(table, columns) if columns else pool
    return pool, table["value"].to_numpy()


def graph_kernels(pool):
    "Ways to compare the graphs of a column."
    names = pool.notes["molecules"]["names"]
    morgan = Overlap(2, [i for i, k in enumerate(names) if k in MORGAN_FEATURES])
    return {"overlap": morgan, "GNTK, sum": GNTK(2, over="sum"), "GNTK, mean": GNTK(2),
            "relational": Relational(over="sum"),
            "GNTK and overlap": Sum((GNTK(2, over="sum"), morgan), standard=True)}


def priors_of(pool, setting):
    "The candidates of a campaign, or one of them with another kernel of graphs."
    usual = candidate_priors(pool)
    if setting == "by evidence": return usual
    by = {"product": usual[0], "both": usual[1], "sum": usual[2]}
    if setting in by: return [by[setting]]
    return [usual[0].changed(kernel=Columns(tuple(pool.beside),
                                            graph=graph_kernels(pool)[setting]))]


SETTINGS = ("product", "both", "sum", "by evidence", "GNTK, sum", "GNTK, mean", "relational",
            "GNTK and overlap")


def conditions_choice(keys, o):
    "How well settings predict other reactions, from 50 at random."
    for name, setting, seed in keys:
        pool, values = reactions(name, o.folder)
        order = np.random.default_rng(seed).permutation(len(pool))
        seen, rest = order[:50].tolist(), order[50:]
        model = Surrogate(priors_of(pool, setting)).learn(seen, values[seen].tolist())
        miss, plain = model.mean.numpy()[rest] - values[rest], values[seen].mean() - values[rest]
        yield dict(set=name, setting=setting, seed=seed, evidence=model.fit.evidence,
                   r2=1 - (miss**2).mean()/(plain**2).mean())


def conditions_policy(keys, o):
    "Best yield of other reactions after some experiments, by policy."
    for name, policy, seed in keys:
        pool, values = reactions(name, o.folder)
        rng = np.random.default_rng(seed)
        run = virtual(candidate_priors(pool), values, max(STEPS), CampaignPolicy(policy),
                      batch=BATCH, rng=rng)
        yield dict(set=name, policy=policy, seed=seed) | found(run["value"].to_numpy())


TABLES = {
    "conditions": Table(conditions, ("method", "seed"), lambda: [
        (m, s) for m, k in SEEDS.items() for s in range(k)]),
    "conditions_choice": Table(conditions_choice, ("set", "setting", "seed"), lambda: [
        *product(CHOSEN_ON, SETTINGS, range(4))], digits=4),
    "conditions_policy": Table(conditions_policy, ("set", "policy", "seed"), lambda: [
        *product(CHOSEN_ON, ("ucb", "ei"), range(5))])}
