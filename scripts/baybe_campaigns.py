"""Campaigns by BayBE as its users get it; molecule_tables.py starts this and makes the table.

It is run by the Python of an environment of its own, which has no part of this package:

    python -m venv baybe && baybe/bin/pip install 'baybe[chem]==0.15.0'

What to play comes as JSON on the standard input: `smiles` of the pool, the `encoding`, a `seed`,
the number of `measurements`, the arms `starts` that are measured first, and what every molecule
would measure by `targets`. What was measured, in order, goes to the standard output, with the
processor seconds to make a campaign and those of each recommendation. The measurement that it
learns from counts as part of a recommendation.
"""
import json, sys, time
from importlib.metadata import version

import pandas as pd
import torch
from baybe import Campaign
from baybe.parameters import SubstanceParameter
from baybe.searchspace import SearchSpace
from baybe.settings import active_settings
from baybe.targets import NumericalTarget


def play(space, names, values, starts, measurements, setup):
    "One campaign, all settings as they come."
    begin, new = time.process_time(), starts
    campaign = Campaign(space, NumericalTarget("value").to_objective())
    out = dict(arms=[], ask=[], setup=setup + time.process_time() - begin)
    while True:
        begin = time.process_time()
        told = dict(molecule=[names[i] for i in new], value=[values[i] for i in new])
        campaign.add_measurements(pd.DataFrame(told))
        out["arms"] += new
        if len(out["arms"]) >= measurements: return out
        new = [names.index(name) for name in campaign.recommend(1)["molecule"]]
        out["ask"].append(time.process_time() - begin)


def main(smiles, targets, starts, encoding, measurements, seed):
    "Campaigns for several targets on one pool, whose descriptors are computed once."
    active_settings.random_seed = seed
    active_settings.cache_directory = None                # or the time would depend on earlier runs
    begin, names = time.process_time(), [f"m{i}" for i in range(len(smiles))]
    molecule = SubstanceParameter("molecule", data=dict(zip(names, smiles)), encoding=encoding)
    space = SearchSpace.from_product([molecule])
    setup = time.process_time() - begin
    return dict(version=version("baybe"), columns=len(space.comp_rep_columns), campaigns=[
        play(space, names, v, starts, measurements, setup) for v in targets])


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(**json.load(sys.stdin))))
