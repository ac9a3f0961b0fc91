"""Former place of `gnn_bandits.paper.figures`, with former names, until every page says the new ones."""
import sys
from types import ModuleType

from gnn_bandits import core
from gnn_bandits.paper import figures as _new

write_csv, wide_specs = core.write_table, _new.d100_specs
FIGURES, FEW, REAL = _new.FIGURES, _new.TRAINED_RUNS, _new.TRAINED_SWITCHES

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

class _Former(ModuleType):
    "Everything else is read from, and written to, the new place."
    def __getattr__(self, name): return getattr(_new, name)
    def __setattr__(self, name, value):
        self.__dict__[name] = value
        setattr(_new, name, value)

sys.modules[__name__].__class__ = _Former
