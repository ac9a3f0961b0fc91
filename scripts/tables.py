"""Make the tables of nbs/results that pages, claims and tests read.

    python scripts/tables.py --list                            every table: its rows, what is there
    python scripts/tables.py elimination stopping --jobs 2     make them, or go on with them
    python scripts/tables.py molecules --only seed=9000 "recipe=ours ucb"      only some rows
    python scripts/tables.py stopping --only run=0 --again     play these once more and compare

A table knows the keys of all its rows. What is in the file is not played again, so that a table
can be stopped at any time and goes on where it was; it is written after every piece of work, in
the order of its keys. A table that is to be made afresh has to be deleted. How rows are made stands
in paper_tables.py (theory and reproduction), model_tables.py (defaults and choices) and
molecule_tables.py, best_tables.py, condition_tables.py and outcome_tables.py beside this file.
The tables of `gnn_bandits reproduce` and of `gnn_bandits bench` are made by these commands.
"""
import argparse, sys, tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pandas as pd
import torch
from joblib import Parallel, delayed

from gnn_bandits.core import progress_bar, write_table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT/"nbs"/"results"
SUBJECTS = ("paper_tables", "model_tables", "molecule_tables", "best_tables",
            "condition_tables", "outcome_tables")


@dataclass(frozen=True)
class Options:
    "What a table may need to know besides its keys."
    results:Path=RESULTS # Folder of the tables
    folder:Path|None=None # Of files that are not distributed: digitised curves, sets of molecules
    room:Path=ROOT/"build"/"tables" # For what is in progress
    jobs:int=1 # Processes
    peer:Path|None=None # The Python of an environment with another package


@dataclass(frozen=True)
class Table:
    "Which rows a table has, and how they are made; the rows of one key may be several."
    play:Callable # (keys, options) -> rows of these keys
    key:tuple=() # Columns by which a row is known; none: the table is made as a whole
    keys:Callable=lambda: [()] # -> all keys, in the order of the file
    together:Callable|None=None # key -> what keys share that are played in one go; None: each alone
    digits:int|None=7 # Significant digits
    clock:tuple=() # Columns that are no result: times, memory
    alone:bool=False # Whether its memory is measured: never two pieces at a time
    ending:str=".csv" # Of its file; ".csv.gz" if it is compressed
    unfinished:bool=False # Whether rows of the plan are still to be played

    def groups(self, keys):
        "Pieces of work: keys that are played in one go."
        out = {}
        for k in keys: out.setdefault(str(self.together(k) if self.together else k), []).append(k)
        return list(out.values())

    def known(self, rows):
        "The key of each row that was read as text."
        columns = [[type(v)(cell) for cell in rows[c]] for c, v in zip(self.key, self.keys()[0])]
        return [*zip(*columns)] if columns else [()]*len(rows)


def registry():
    "Name -> table, of all subjects."
    return {k: v for s in SUBJECTS for k, v in import_module(s).TABLES.items()}


def read_text(path):
    "The rows of a file as text, so that what is there stays as it is."
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def as_text(rows, digits):
    "New rows as they look in a file."
    with tempfile.TemporaryDirectory() as home:
        return read_text(write_table(Path(home)/"new.csv", rows, digits))


def work(table, keys, o):
    "The rows of some keys, on one thread."
    torch.set_num_threads(1)
    return as_text(rows, table.digits) if (rows := list(table.play(keys, o))) else None


def played(table, groups, o):
    "The rows of each piece of work, as they come."
    jobs = 1 if table.alone else min(o.jobs, len(groups)) or 1
    tasks = (delayed(work)(table, keys, o) for keys in groups)
    return Parallel(jobs, return_as="generator_unordered", batch_size=1)(tasks)


def wanted(table, only):
    "The keys that have the asked values."
    asked = {}
    for word in only:
        column, equals, value = word.partition("=")
        if column not in table.key or not equals:
            sys.exit(f"expected COLUMN=VALUE with one of the columns {', '.join(table.key)}, "
                     f"got {word}")
        asked.setdefault(table.key.index(column), set()).add(value)
    found = [k for k in table.keys() if all(str(k[i]) in v for i, v in asked.items())]
    return found or sys.exit(f"no row of the table has {' '.join(only)}")


def ordered(table, rows):
    "Rows in the order of their keys; those of one key stay as they are."
    place = {k: i for i, k in enumerate(table.keys())}
    at = pd.Series([place.get(k, len(place)) for k in table.known(rows)])
    return rows.iloc[at.argsort(kind="stable")].reset_index(drop=True)


def make(name, table, only, o):
    "Play what is missing, and write the table after every piece."
    path = o.results/f"{name}{table.ending}"
    rows = read_text(path) if path.exists() else pd.DataFrame(columns=table.key)
    done = set(table.known(rows))
    groups = table.groups([k for k in wanted(table, only) if k not in done])
    for new in progress_bar(played(table, groups, o), name, len(groups)):
        if new is None: continue
        rows = ordered(table, pd.concat([rows, new]).fillna("") if len(rows) else new)
        write_table(path, rows)
    print(f"{path}: {len(rows)} rows")


def again(name, table, only, o):
    "Play rows that are there once more; how many came out otherwise, in any digit."
    old, keys = read_text(o.results/f"{name}{table.ending}"), set(wanted(table, only))
    old = old[[k in keys for k in table.known(old)]]
    there = set(table.known(old))
    groups = table.groups([k for k in table.keys() if k in there])
    new = [v for v in played(table, groups, o) if v is not None]
    if not new: sys.exit(f"{name}: none of these rows is in the table")
    columns = [c for c in old if c not in table.clock]
    cells = lambda t: ordered(table, t).reindex(columns=columns).fillna("").map(number).values
    now, then = cells(pd.concat(new).fillna("")).tolist(), cells(old).tolist()
    off = [pair for pair in zip(now, then) if pair[0] != pair[1]]
    print(f"{name}: {len(now)} rows again, {len(then)} in the table; {len(off)} differ")
    for a, b in off[:5]: print("  now  ", *a, "\n  table", *b)
    return len(off) + abs(len(now) - len(then))


def number(cell):
    "A cell as a number if it is one: 30 and 30.0 are the same."
    try: return float(cell)
    except ValueError: return cell


def main(argv=None):
    "Make, list or compare."
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("names", nargs="*", metavar="NAME", help="tables")
    cli.add_argument("--list", action="store_true", help="say what there is")
    cli.add_argument("--only", nargs="+", default=[], metavar="COLUMN=VALUE", help="only such rows")
    cli.add_argument("--again", action="store_true", help="play rows again and compare them")
    cli.add_argument("--results", type=Path, default=RESULTS, help="folder of the tables")
    cli.add_argument("--folder", type=Path, help="folder of files that are not distributed")
    cli.add_argument("--room", type=Path, default=Options.room, help="folder for unfinished work")
    cli.add_argument("--jobs", type=int, default=1, help="processes")
    cli.add_argument("--peer", type=Path, help="Python of an environment with another package")
    given, tables = cli.parse_args(argv), registry()
    o = Options(given.results, given.folder, given.room, given.jobs, given.peer)
    if bad := set(given.names) - set(tables):
        cli.error(f"no table {', '.join(sorted(bad))}; there are: {', '.join(tables)}")
    if given.list: return show(tables, given.names or tables, o)
    if not given.names: cli.error("which table? --list says what there is")
    o.results.mkdir(parents=True, exist_ok=True)
    if given.again: return int(sum(again(n, tables[n], given.only, o) for n in given.names) > 0)
    for name in given.names: make(name, tables[name], given.only, o)
    return 0


def show(tables, names, o):
    "One line for each table."
    for name in names:
        t = tables[name]
        path = o.results/f"{name}{t.ending}"
        there = len(set(t.known(read_text(path))) & set(t.keys())) if path.exists() else 0
        by = f"by {', '.join(t.key)}" if t.key else "made as a whole"
        print(f"{name:30} {there} of {len(t.keys())}, {by}: {t.play.__doc__.splitlines()[0]}")
    return 0


if __name__ == "__main__": sys.exit(main())
