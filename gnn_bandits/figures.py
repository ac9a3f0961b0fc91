"""Former place of `gnn_bandits.paper.figures`, with the former names, until every page says the new ones."""
from gnn_bandits import core
from gnn_bandits.paper import figures as _new
from gnn_bandits.paper.figures import *  # noqa: F403

write_csv, wide_specs, FEW, REAL = core.write_table, _new.d100_specs, _new.TRAINED_RUNS, _new.TRAINED_SWITCHES

def read_table(path): return core.read_table(path).fillna("").to_dict("records")

def by_run(table, value="regret"):
    return {(r["panel"], r["algorithm"], r["seed"]): r[value]/r["mean_gap"] for r in table}

def gaps_of(table, value="regret"):
    import pandas as pd
    found = _new.advantages(pd.DataFrame(table), value)
    return {k: found[k].dropna().to_dict() for k in found}

def draw_performance(fig, table, value="best_observed_regret", published=None):
    import pandas as pd
    if published is not None: published = pd.DataFrame(published)
    return _new.draw_performance(fig, pd.DataFrame(table), value, published)
