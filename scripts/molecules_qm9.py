"""The whole of QM9 as one pool: 130,831 candidates, batches of suggestions, what was found.

    python scripts/molecules_qm9.py nbs/results/molecules_qm9.csv
    python scripts/molecules_qm9.py nbs/results/molecules_qm9.csv --starts 100 --batch 100 \\
        --measurements 2100 --noise 0 --targets gap

The first command makes 500 measurements in batches of 20 with a noise of a tenth of the spread; the
second follows the protocol of qPO for the gap. One row for each campaign; rows that are in the
table are not repeated. Recipes: "ours" has the list of kernels that a campaign has by default, row
by row, and "first kernel" only the first of them, without relations; "features" has explicit
features of the graph kernel; "tanimoto" has the Tanimoto kernel of Morgan counts, row by row.
Columns: top_k is how many of the best k molecules were measured (k is 0.01, 0.1 and 1 per cent of
the pool), top_k_tied counts ties with the last of them too; seconds is the time a suggestion took,
fit and update included, memory the peak of the process in GB.
`--check` plays a small pool by the quick and by the plain choice of batches and compares them.
"""
import argparse, multiprocessing, resource, time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import sparse

from gnn_bandits.campaigns import CampaignPolicy, choose, propose
from gnn_bandits.core import optional, progress_bar, write_table
from gnn_bandits.kernels import Counts, Overlap
from gnn_bandits.molecules import qm9, read_smiles
from gnn_bandits.priors import Prior
from gnn_bandits.surrogate import Surrogate, candidate_priors

TARGETS = ("gap", "dipole", "U0", "polarisability")
KEY = ["target", "noise", "starts", "batch", "measurements", "seed", "recipe"]
NEAR = 1000 # Candidates that the quick choice looks at first
SHARES = (1e-4, 1e-3, 1e-2) # Parts of the pool that count as the best


@dataclass(frozen=True, eq=False)
class Tanimoto(Overlap):
    "The Tanimoto kernel of Morgan counts."
    smiles:list=None # Of the graphs of the pool
    label = "Tanimoto"
    def encode(self, X):
        chem = optional("rdkit.Chem", "molecules")
        make = optional("rdkit.Chem.rdFingerprintGenerator", "molecules").GetMorganGenerator
        read, names = make(radius=2), {}
        seen = [read.GetSparseCountFingerprint(chem.MolFromSmiles(s)).GetNonzeroElements()
                for s in self.smiles]
        at = [names.setdefault(k, len(names)) for c in seen for k in c]
        start = np.cumsum([0, *map(len, seen)])
        values = [float(v) for c in seen for v in c.values()]
        table = sparse.csr_matrix((values, at, start), (len(seen), len(names)))
        return Counts(table, np.arange(len(names)))


def know_levels(prior):
    "Let a prior look up what it would compute candidate by candidate."
    for _, part in prior.held.parts: part._level = dict(enumerate(part.levels.tolist()))
    prior.diag
    return prior


MODELS = {"ours": lambda domain, smiles: [*map(know_levels, candidate_priors(domain))],
          "first kernel": lambda domain, smiles: [know_levels(candidate_priors(domain)[0])],
          "tanimoto": lambda domain, smiles: [know_levels(
              Prior(Tanimoto(smiles=smiles), domain, "rows", "anchors"))],
          "features": lambda domain, smiles: candidate_priors(domain, form="features"),
          "random": lambda domain, smiles: None}


def choose_near(model, policy, n, free):
    """The batch that `choose` takes, found among the candidates whose bound is highest.

    A choice counts as measured at its expected value, so means stay and uncertainties shrink:
    no bound rises. The search is over when the last choice beats all bounds that were left out.
    """
    belief, prior = model.latent, model.prior
    bound = torch.where(free, belief.mean + policy.factor*belief.std, -torch.inf)
    size = min(max(NEAR, 10*n), len(bound) - 1)
    while True:
        top = bound.topk(size + 1)
        near, outside = top.indices[:-1], float(top.values[-1])
        mean, C = belief.mean[near], prior.block(near.tolist())
        C.diagonal().add_(belief.private)
        for piece in belief._V: C.addmm_(piece[:, near].T, piece[:, near], alpha=-1)
        left, picks = free[near], []
        while len(picks) < n:
            std = (C.diagonal() - belief.hidden).clamp(min=0).sqrt()
            scores = torch.where(left, mean + policy.factor*std, -torch.inf)
            i = int(scores.argmax())
            if float(scores[i]) < outside: break
            picks.append(int(near[i])), left.__setitem__(i, False)
            C -= C[i]*C[i][:, None]/(C[i, i] + belief.lam)
        if len(picks) == n: return picks
        if size == len(bound) - 1: raise ValueError("too few candidates for the quick choice")
        size = min(4*size, len(bound) - 1)


def campaign(priors, values, o, noise_std, rng, quick):
    "The candidates that were measured, in order, and the seconds a suggestion took."
    policy, arms = CampaignPolicy(starts=o.starts if priors else o.measurements), []
    model = Surrogate(priors) if priors else None
    state, spent = np.full(len(values), "available", dtype="<U9"), 0.
    while len(arms) < o.measurements:
        start, early = time.perf_counter(), len(arms) < o.starts
        n = min(o.starts if early else o.batch, o.measurements - len(arms))
        if early or not quick: new = propose(model, policy, n, state, rng)[0]
        else: new = choose_near(model, policy, n, torch.from_numpy(state == "available"))
        if not early: spent += time.perf_counter() - start
        told = values[new] + noise_std*rng.standard_normal(len(new))
        if model: model.learn(new, told.tolist())
        state[new], arms = "measured", arms + new
    return np.array(arms), spent/(len(arms) - o.starts)


def row(arms, values):
    "What a campaign found."
    order = np.argsort(-values, kind="stable")
    out = {"gap": (values.max() - values[arms].max())/values.std()}
    for share in SHARES:
        k, name = round(share*len(values)), f"top_{100*share:g}"
        out |= {f"of_{100*share:g}": k, name: len(set(order[:k]) & set(arms.tolist())),
                f"{name}_tied": min(k, int((values[arms] >= values[order[k - 1]]).sum()))}
    return out


def run(priors, values, key, o, sent):
    "One campaign in a process of its own, whose memory is measured."
    torch.set_num_threads(1)
    facts = dict(zip(KEY, key))
    rng, sd = np.random.default_rng([facts["seed"], 6]), o.noise*values.std()
    quick = facts["recipe"] not in ("features", "random")
    arms, spent = campaign(priors, values, o, sd, rng, quick)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/2**20
    sent.send(facts | row(arms, values) | dict(seconds=spent, memory=peak))


def check(table):
    "Both choices of a batch, on a small pool."
    read = read_smiles(table["smiles"].tolist()[::300], invalid="skip")
    values = table[TARGETS[0]].to_numpy()[::300][np.asarray(read.rows)]
    model, rng = Surrogate(candidate_priors(read.domain)), np.random.default_rng(0)
    policy, some = CampaignPolicy(), rng.permutation(len(values))[:60]
    model.learn(some.tolist(), values[some].tolist())
    free = torch.ones(len(values), dtype=torch.bool).index_fill(0, torch.tensor(some), False)
    plain = choose(model.latent, policy, 30, free, free | True, some.tolist(), [], rng)
    print("equal" if plain == choose_near(model, policy, 30, free) else "different")


def main():
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("path", type=Path, nargs="?", help="table to write, or to go on with")
    cli.add_argument("--recipes", nargs="+", default=["ours", "tanimoto", "random"], choices=MODELS)
    cli.add_argument("--targets", nargs="+", default=TARGETS[:2], choices=TARGETS)
    cli.add_argument("--seeds", type=int, default=3)
    cli.add_argument("--starts", type=int, default=20, help="random measurements first")
    cli.add_argument("--batch", type=int, default=20)
    cli.add_argument("--measurements", type=int, default=500)
    cli.add_argument("--noise", type=float, default=0.1, help="in deviations of the pool")
    cli.add_argument("--check", action="store_true", help="compare the two choices of a batch")
    o = cli.parse_args()
    torch.set_num_threads(1)
    table = qm9(TARGETS)
    if o.check: return check(table)
    start = time.perf_counter()
    read = read_smiles(table["smiles"].tolist(), invalid="skip", duplicates="keep")
    table, reading = table.iloc[read.rows], time.perf_counter() - start
    done = pd.read_csv(o.path) if o.path.exists() else pd.DataFrame(columns=KEY)
    known, fork = set(done[KEY].itertuples(index=False, name=None)), \
        multiprocessing.get_context("fork")
    for recipe in o.recipes:
        todo = [(t, f"{o.noise:g} sd", o.starts, o.batch, o.measurements, s, recipe)
                for s in range(9000, 9000 + o.seeds) for t in o.targets]
        if not (todo := [k for k in todo if k not in known]): continue
        start = time.perf_counter()
        priors = MODELS[recipe](read.domain, table["smiles"].tolist())
        setup = reading + time.perf_counter() - start
        for key in progress_bar(todo, recipe):
            got, sent = fork.Pipe(False)
            job = fork.Process(target=run, args=(priors, table[key[0]].to_numpy(float), key, o,
                                                 sent))
            job.start(), sent.close()
            try: new = pd.DataFrame([got.recv() | dict(setup=setup, pool=len(table))])
            except EOFError: raise SystemExit(f"the run {key} ended without a result") from None
            job.join()
            done = pd.concat([done, new], ignore_index=True) if len(done) else new
            write_table(o.path, done.sort_values(KEY), 6)


if __name__ == "__main__": main()
