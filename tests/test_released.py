"""The script that plays the released recipe: one file a run, nothing played twice, tables."""
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from gnn_bandits.paper.released import (REGRETS, Player, Recipe, recipe_from, released_data,
                                        released_game, released_run, resume, run_record,
                                        run_seed, save_progress, step)

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def data():
    "The graphs and rewards of the released recipe, made once"
    return released_data()


def play(out, *args):
    "The script on narrow networks without training steps."
    command = [sys.executable, ROOT/"scripts"/"released.py", "--out", out, "--m", "8", *args]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}).stdout


@pytest.mark.skipif(not (ROOT/"scripts"/"released.py").exists(), reason="needs the source tree")
def test_script_plays_each_run_once(tmp_path):
    args = ("--which", "3", "--recipe", "training", "--algorithms", "GNN-PE")
    first = play(tmp_path, *args)
    file = tmp_path/"training_m8_GNN-PE_003.json"
    assert "1/1 training m=8 GNN-PE run 3" in first and not list(tmp_path.glob("*.part"))
    before = file.read_bytes()
    assert play(tmp_path, *args) == "" and file.read_bytes() == before
    found = json.loads(before)
    assert found["row"]["run"] == 3 and np.array(found["curves"]).shape == (3, 500)
    sys.path.insert(0, str(ROOT/"scripts"))
    try:
        import released
        released.tables(tmp_path, tmp_path)
    finally: sys.path.remove(str(ROOT/"scripts"))
    table = pd.read_csv(tmp_path/"released.csv")
    assert table.best_observed_regret[0] == pytest.approx(found["curves"][2][-1], abs=1e-4)
    assert set(pd.read_csv(tmp_path/"released_curves.csv").value) == {
        "regret", "inference_regret", "best_observed_regret"}


@pytest.mark.parametrize("name, stop", [("released", 107), ("lag+training", 119),
                                        ("network+training+exploration", 45)])
def test_resumed_anywhere(tmp_path, name, stop):
    recipe = recipe_from(name)
    game = released_game(released_data(seed=2, n=30, N=4, d=3), 0, recipe, arms=12, T=122)
    whole = released_run(game, "NN-PE", recipe, 6)
    player = Player(game, "NN-PE", recipe, 6)
    p = resume(player, None)
    for t in range(stop): step(player, p, t, "NN-PE")
    save_progress(p, player, tmp_path/"part")
    rest = released_run(game, "NN-PE", recipe, 6, tmp_path/"part")
    for what in ("arms", "rewards", "best", "predicted", "candidates", "steps"):
        assert getattr(rest, what) == getattr(whole, what)


def test_refusals_and_names():
    assert recipe_from("noise+lag").name == recipe_from("lag+noise").name
    with pytest.raises(ValueError, match="expected reward to be one of"): Recipe(reward="mean")
    with pytest.raises(ValueError, match="run"): run_seed(101)
    data = released_data(seed=2, n=30, N=4, d=3)
    with pytest.raises(ValueError, match="expected algorithm to be one of"):
        Player(released_game(data, 0, arms=5, T=3), "GNN-TS", Recipe(), 6)


def test_redrawn_rewards_differ():
    a, b = (released_data(seed=s, n=10, N=4, d=3) for s in (1, 2))
    assert not torch.allclose(a.f, b.f) and torch.equal(a.f, released_data(1, 10, 4, d=3).f)


@pytest.mark.skipif(not (ROOT/"nbs"/"results").exists(), reason="needs the source tree")
@pytest.mark.parametrize("name, T", [
    ("released", 20), ("network+training+uncertainty+values+exploration+lag", 9)])
@pytest.mark.parametrize("algorithm", ["GNN-UCB", "NN-PE"])
def test_committed_curves_begin_with_the_random_pulls_of_now(data, algorithm, name, T):
    # later pulls depend on how a processor rounds in training, these only on graphs, reward, seeds
    keys = ["recipe", "m", "algorithm", "value", "t"]
    kept = pd.read_csv(ROOT/"nbs"/"results"/"released_curves.csv").set_index(keys)
    recipe = recipe_from(name)
    games = [released_game(data, run, recipe, T=T) for run in range(20)]
    curves = np.mean([run_record(g, released_run(g, algorithm, recipe, 8))[1] for g in games], 0)
    for value in ("regret", "best_observed_regret"):
        for t in (t for t in (1, 9, 20) if t <= T):
            mean = kept.loc[(recipe.name, 512, algorithm, value, t), "mean"]
            assert curves[REGRETS.index(value), t - 1] == pytest.approx(mean, rel=1e-4)
