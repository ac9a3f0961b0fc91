"""Random sequences of calls on a campaign, beside a plain model of it made of lists of ids.

After each call the journal, the campaign in memory and the plain model must say the same: events,
observations, states, pending candidates. A call that is refused must change nothing. A campaign
that is opened again must have the same graphs and suggest the same. scripts/faults.py counts,
tests/test_robustness.py plays a part of it.
"""
import contextlib
import os
import shutil
import tempfile
import threading
import warnings
import zlib
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import torch
from fuzz_files import (Broken, guarded, must, odd_text, pick, program, record, refused, where,
                        works, write_results)                        # the script beside this one

from gnn_bandits.campaigns import Campaign, CampaignPolicy, as_told
from gnn_bandits.graphs import GraphDomain


# graphs that nobody can mistake for each other, although their nodes look alike

def shapes(rng, n):
    "Small graphs: paths, stars, rings and trees"
    kinds = [nx.path_graph, lambda k: nx.star_graph(k - 1), nx.cycle_graph, nx.complete_graph]
    return [pick(rng, kinds)(int(rng.integers(3, 7))) for _ in range(n)]


def degrees(g): return sorted(d for _, d in g.degree)


def domain_of(graphs, hops):
    for g in graphs:
        for v in g: g.nodes[v]["x"] = [1., v % 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                    # some of them have twins
        return GraphDomain.from_networkx(graphs, hops=hops)


def degrees_of(X):
    "Degrees of the nodes of each graph of a domain"
    d = np.asarray((X.adjacency() > 0).sum(1)).reshape(-1)
    return [sorted(d[a:b].tolist()) for a, b in zip(X.offsets[:-1], X.offsets[1:])]


# the plain model

class Plain:
    "A campaign as lists: ids, graphs, and everything that was acknowledged"
    def __init__(self, ids, graphs):
        self.ids, self.graphs, self.events = list(ids), list(graphs), []
    def counts(self, seq):
        "Whether event number seq counts: no undo that counts names it"
        later = range(seq + 1, len(self.events) + 1)
        return not any(self.events[k - 1]["kind"] == "undo" and self.events[k - 1]["event"] == seq
                       and self.counts(k) for k in later)
    def counting(self): return [(k, e) for k, e in enumerate(self.events, 1) if self.counts(k)]
    def told(self):
        return [(k, self.ids[a], v, s, t) for k, e in self.counting() if e["kind"] == "tell"
                for a, v, s, t in zip(e["arms"], e["values"], e["noise"], e["notes"])]
    def places(self):
        "Pending, measured, failed and excluded candidates, as sets; and the policy"
        pending, measured, failed, excluded, policy = [], set(), set(), set(), CampaignPolicy()
        for _, e in self.counting():
            kind, arms = e["kind"], e.get("arms", [])
            if kind == "ask": pending += [a for a in arms if a not in pending]
            elif kind in ("tell", "fail", "drop", "exclude"):
                pending = [a for a in pending if a not in arms]
            if kind == "tell": measured |= set(arms); failed -= set(arms)
            if kind == "fail": failed |= set(arms)
            if kind == "exclude": excluded |= set(arms)
            if kind == "include": excluded -= set(arms); failed -= set(arms)
            if kind == "policy": policy = e["policy"]
        return pending, measured, failed, excluded, policy
    def states(self):
        pending, measured, failed, excluded, _ = self.places()
        word = lambda a: ("excluded" if a in excluded else "pending" if a in pending else
                          "measured" if a in measured else "failed" if a in failed else "available")
        return [word(a) for a in range(len(self.ids))]
    def open(self, repeats=None):
        "Candidates that must be suggested before others are, and those that may be"
        states, repeats = self.states(), self.places()[-1].repeats if repeats is None else repeats
        at = lambda word: [a for a, s in enumerate(states) if s == word]
        free = at("available") + (at("measured") if repeats is True or repeats == 1 else [])
        noisy = at("measured") if repeats == "noisy" else []      # those that are unsure enough
        if free: return free, free + noisy
        return [] if noisy else at("failed"), noisy + at("failed")


FULL = dict(tell=("values", "noise", "notes"), fail=("reason",), exclude=("reason",),
            undo=("event",), goal=("value",))


class Lab:
    "A campaign, its plain model, and the calls that were made"
    def __init__(self, home, rng):
        self.home, self.rng, self.log, self.calls, self.refusals = Path(home), rng, [], 0, 0
        n, self.hops = int(rng.integers(6, 10)), int(rng.integers(2))
        graphs = shapes(rng, n)
        self.style = pick(rng, ["words", "words", "numbers", "mixed", None])
        ids = None if self.style is None else [f"m{k}" for k in range(n)]
        if self.style == "numbers": ids = [str(k) for k in rng.permutation(n)]
        if self.style == "mixed": ids[:3] = ["é日本", "x y", str(n - 1)]
        self.options = dict(maximize=bool(rng.integers(2)), seed=int(rng.integers(100)), ids=ids,
                            noise_std=pick(rng, [None, None, 0.1]))
        self.graphs = domain_of(graphs, self.hops)
        self.folder = self.home/"lab"
        self.handles = [Campaign.create(self.folder, self.graphs, **self.options)]
        self.model = Plain(ids or map(str, range(n)), map(degrees, graphs))
        self.log.append(f"create({n} graphs, hops={self.hops}, {self.options})")
    def close(self):
        for c in self.handles: c.close()
    def some(self, most=3, among=None):
        "Some candidates"
        among = list(range(len(self.model.ids))) if among is None else list(among)
        k = min(len(among), int(self.rng.integers(1, most + 1)))
        return [among[i] for i in self.rng.permutation(len(among))[:k]]
    def names(self, arms): return [self.model.ids[a] for a in arms]
    def value(self): return round(float(self.rng.normal()), 3)
    def call(self, label, f, expected):
        "Make a call: `expected` are its events, None if it must be refused; a function sees both"
        self.log.append(label)
        self.calls += 1
        error = out = None
        try: out = f()
        except (ValueError, OSError) as e:
            error = str(e)
            must(error and "\n" not in error and "Traceback" not in error, f"{label}: {error!r}")
        except Exception as e:
            raise Broken("traceback", f"{label}: {where(e)}") from e
        if callable(expected): expected = expected(out, error)
        elif expected is None: must(error is not None, f"{label} was accepted")
        else: must(error is None, f"{label} was refused: {error}")
        self.refusals += error is not None
        self.model.events += expected or []
        self.check_journal(label)
        return out
    def either(self, events):
        "For calls that may be refused: nothing, or these events"
        return lambda out, error: [] if error else events
    def check_journal(self, label):
        "The journal has exactly the events that were acknowledged"
        stored = record(self.folder)[1:]
        kinds, ours = [e[1] for e in stored], [e["kind"] for e in self.model.events]
        kind = "lost" if len(kinds) < len(ours) else "wrong"
        must(kinds == ours, f"after {label}: the journal has {kinds[-4:]} ({len(kinds)}), "
             f"acknowledged are {ours[-4:]} ({len(ours)})", kind)
        for (_, _, data, _), e in zip(stored, self.model.events):
            must(data.get("arms") == e.get("arms"), f"after {label}: {e} is stored as {data}")
            for key in FULL.get(e["kind"], ()):
                if key in data: must(data[key] == e[key], f"after {label}: {e} is stored as {data}")
    def check(self, c, label, deep=False):
        "A campaign says what the plain model says"
        m, none = self.model, lambda s: None if s != s else s
        obs = as_told(c.observations)
        must(c.ids == m.ids, f"after {label}: ids {c.ids}, not {m.ids}")
        rows = [(r.event, r.id, r.value, none(r.noise), r.note) for r in obs.itertuples()]
        must(rows == m.told(), f"after {label}: observations {rows}, not {m.told()}",
             "lost" if len(rows) < len(m.told()) else "wrong")
        pending = self.names(m.places()[0])
        must(sorted(c.pending["id"]) == sorted(pending), f"after {label}: other pending")
        must(len(c.events) == len(m.events), f"after {label}: {len(c.events)} events in memory")
        if not deep: return
        states = c.to_dataframe()["state"].tolist()
        must(states == m.states(), f"after {label}: states {states}, not {m.states()}")
        must(degrees_of(c.domain) == m.graphs, f"after {label}: the graphs are others")
    def suggestions(self, c, label, n=2):
        "What would be suggested; refused only if nothing is left"
        _, may = self.model.open()
        try: found = c.suggest(n)["arm"].tolist()
        except ValueError as e:
            must(not self.model.open()[0], f"after {label}: nothing can be asked: {e}")
            return []
        must(set(found) <= set(may), f"after {label}: suggests {self.names(found)}")
        return found
    def compare(self, label):
        "A campaign that is opened now is the one in memory, and suggests the same"
        with Campaign.open(self.folder) as fresh:
            self.check(fresh, f"{label}, opened again", deep=True)
            again = self.suggestions(fresh, label)
            for c in self.handles:
                self.check(c, label, deep=True)
                must(self.suggestions(c, label) == again, f"after {label}: other suggestions")


# calls

def event(kind, arms=None, **facts):
    return dict(kind=kind, **facts) if arms is None else dict(kind=kind, arms=arms, **facts)


def telling(arms, values, noise=None, notes=None):
    n = len(arms)
    values = [v if isinstance(v, str) else float(v) for v in values]      # a bound is a text
    return [event("tell", arms, values=values, noise=noise or [None]*n,
                  notes=notes or [""]*n)]


def ask(lab, c):
    n, repeats = int(lab.rng.integers(1, 4)), pick(lab.rng, [None, None, True, "noisy"])
    must_be, may = lab.model.open(repeats)
    def judge(arms, error):
        if error: must(not must_be, f"ask({n}) was refused: {error}"); return []
        arms = list(arms)
        must(len(set(arms)) == len(arms) <= n and set(arms) <= set(may),
             f"ask({n}, {repeats}): {arms} of {may}")
        must(len(arms) >= min(n, len(must_be)), f"ask({n}): {arms} of {must_be}")
        return [event("ask", arms)]
    lab.call(f"ask({n}, {repeats})", lambda: c.ask(n, repeats), judge)


def ask_and_tell(lab, c):
    "What ask returns, tell takes"
    if not lab.model.open()[0]: return
    out = lab.call("ask(2)", lambda: c.ask(2), lambda arms, error: [event("ask", list(arms))])
    arms, values = list(out), [lab.value() for _ in out]
    lab.call("tell(what ask returned)", lambda: c.tell(out, values), telling(arms, values))


def by_number(lab, arms, events):
    "What is expected of numbers: refused if one of them is the id of another candidate"
    ids = lab.model.ids
    if any(str(a) in ids and ids[a] != str(a) for a in arms): return None
    own = ids != [str(k) for k in range(len(ids))]
    if callable(events): return events
    return lab.either(events) if own and any(str(a) in ids for a in arms) else events


def tell(lab, c):
    rng = lab.rng
    arms = lab.some()
    if rng.integers(3) == 0: arms = [*arms, arms[0]]                    # a replicate
    ids, values, n = lab.names(arms), [lab.value() for _ in arms], len(arms)
    noise = [None if rng.integers(2) else 0.25 for _ in arms] if rng.integers(3) == 0 else None
    plain = telling(arms, values, noise)
    frame = pd.DataFrame({"id": ids, "value": values})
    if noise: frame["noise"] = noise
    once = len(set(ids)) == n
    numbered = by_number(lab, arms, plain)
    order = rng.permutation(n)
    shuffled = pd.Series([values[k] for k in order], index=[f"r{k}" for k in order])
    also = {} if noise is None else dict(noise=noise)
    ways = {
        "lists": (lambda: c.tell(ids, values, **also), plain),
        "tuples": (lambda: c.tell(tuple(ids), tuple(values), **also), plain),
        "arrays": (lambda: c.tell(np.array(ids), np.array(values), **also), plain),
        "objects": (lambda: c.tell(np.array(ids, object), pd.Series(values), **also), plain),
        "tensor": (lambda: c.tell(ids, torch.tensor(values, dtype=torch.float64), **also), plain),
        "index": (lambda: c.tell(pd.Index(ids), values, **also), plain),
        "frame": (lambda: c.tell(frame), plain),
        "frame by id": (lambda: c.tell(frame.set_index("id")), plain),
        "frame of numbers": (lambda: c.tell(frame.drop(columns="id").assign(arm=arms)), plain),
        "numbers": (lambda: c.tell(arms, values, **also), numbered),
        "array of numbers": (lambda: c.tell(np.array(arms), np.array(values), **also), numbered),
        "series": (lambda: c.tell(pd.Series(values, index=ids), **also), plain if once else
                   lab.either(plain)),
        "dictionary": (lambda: c.tell(dict(zip(ids, values)), **also), plain if once else None),
        "dictionary of numbers": (lambda: c.tell(dict(zip(arms, values)), **also),
                                  numbered if once else None),
        "two series": (lambda: c.tell(pd.Series(ids), pd.Series(values), **also), plain),
        "two series, another order": (lambda: c.tell(pd.Series(ids, index=[f"r{k}" for k in
                                                     range(n)]), shuffled, **also),
                                      plain if n == 1 else lab.either(plain)),
        "set": (lambda: c.tell(set(ids), values), None),
        "frozenset": (lambda: c.tell(frozenset(ids), values), None),
        "generator": (lambda: c.tell((i for i in ids), values), lab.either(telling(arms, values))),
        "keys": (lambda: c.tell(dict.fromkeys(ids).keys(), values),
                 lab.either(telling(arms, values)) if once else None),
        "two columns of one name": (lambda: c.tell(pd.concat([frame, frame[["value"]]*2], axis=1)),
                                    None)}
    if not once: ways.pop("dictionary"), ways.pop("dictionary of numbers")
    name = pick(rng, list(ways))
    f, expected = ways[name]
    lab.call(f"tell of {name}: {ids} {values}", f, expected)


def tell_one(lab, c):
    arm, value = lab.some(1)[0], lab.value()
    note = odd_text(lab.rng) if lab.rng.integers(3) == 0 else ""
    lab.call(f"tell({lab.model.ids[arm]!r}, {value}, note={note!r:.40})",
             lambda: c.tell(lab.model.ids[arm], value, note=note),
             lab.either(telling([arm], [value], notes=[note])) if note
             else telling([arm], [value]))


def tell_bounds(lab, c):
    "Values beyond bounds, alone and among exact ones, in Python and by the program"
    rng, arms = lab.rng, lab.some()
    values = [f"{pick(rng, '<>')}{lab.value()!r}".removesuffix(".0") if rng.integers(2) or not k
              else lab.value() for k in range(len(arms))]
    ids, typed = lab.names(arms), [v.replace(">", " >= ") if isinstance(v, str) else v
                                   for v in values]
    plain = telling(arms, values)
    texts = pd.DataFrame({"id": ids, "value": list(map(str, typed))})
    table = lab.home/"bounds.csv"
    texts.to_csv(table, index=False)
    ways = {"lists": (lambda: c.tell(ids, typed), plain),
            "dictionary": (lambda: c.tell(dict(zip(ids, typed))), plain),
            "series": (lambda: c.tell(pd.Series(typed, index=ids, dtype=object)), plain),
            "frame of texts": (lambda: c.tell(texts), plain),
            "array of texts": (lambda: c.tell(ids, np.array(list(map(str, typed)))), plain),
            "with noise": (lambda: c.tell(ids, typed, noise=0.1), None),
            "file": (lambda: must(program("tell", lab.folder, table)[0] == 0, "not told"), plain),
            "file with noise": (lambda: must(refused(program("tell", lab.folder, table, "--noise",
                                                             "0.1"), "bounds with noise"),
                                             "accepted"), [])}
    name = pick(rng, list(ways))
    lab.call(f"tell of bounds, {name}: {ids} {typed}", *ways[name])


BAD = [float("nan"), float("inf"), None, "3.5", True, 1j, 10**400, [], b"1", pd.NA, ">", ">ten",
       "> 1e999", "><3", "<nan", ">1,5",
       np.datetime64(0, "s")]


def tell_bad(lab, c):
    "Values that are none, or candidates that are none; nothing is recorded"
    rng, arms = lab.rng, lab.some(2)
    ids, bad = lab.names(arms), pick(rng, BAD)
    values = [lab.value() for _ in ids]
    n = len(lab.model.ids)
    ways = {f"tell of {bad!r:.30}": lambda: c.tell(ids[0], bad),
            f"tell of {bad!r:.30} in a list": lambda: c.tell(ids, [*values[1:], bad]),
            f"tell with noise {bad!r:.30}": lambda: c.tell(ids[0], 1., noise=bad),
            "tell of nothing": lambda: c.tell([], []), "tell without values": lambda: c.tell(ids),
            "tell of too few": lambda: c.tell(ids, [*values, 1.]),
            "tell of an unknown id": lambda: c.tell([*ids, "nobody"], [*values, 1.]),
            "tell of an unknown number": lambda: c.tell(n, 1.), "-1": lambda: c.tell(-1, 1.),
            "tell of a float": lambda: c.tell(0.5, 1.),
            "tell of 10**400": lambda: c.tell(10**400, 1.),
            "tell with noise 0": lambda: c.tell(ids[0], 1., noise=0.),
            "tell with noise -1": lambda: c.tell(ids[0], 1., noise=-1.),
            "tell of a frame without values": lambda: c.tell(pd.DataFrame({"id": ids})),
            "tell of a list of lists": lambda: c.tell([ids], [values]),
            "fail of nobody": lambda: c.fail("nobody"), "exclude of nothing": lambda: c.exclude([]),
            "ask(0)": lambda: c.ask(0), "ask(-1)": lambda: c.ask(-1),
            "ask(1.5)": lambda: c.ask(1.5),
            "undo(10**6)": lambda: c.undo(10**6), "undo('x')": lambda: c.undo("x"),
            "set_policy('best')": lambda: c.set_policy("best"), "goal(nan)": lambda: c.goal(np.nan),
            "goal(10**400)": lambda: c.goal(10**400), "add(3)": lambda: c.add(3),
            "predict(level=2)": lambda: c.predict(level=2), "best(0)": lambda: c.best(0)}
    name = pick(rng, list(ways))
    none = "noise" in name and (bad is None or bad is pd.NA or bad != bad) if name[-1] != "]" else 0
    lab.call(name, ways[name], lab.either(telling(arms[:1], [1.])) if none else None)


def tell_extreme(lab, c):
    "Numbers that are finite and that no model can use; if they are taken, everything goes on"
    rng, arms = lab.rng, lab.some(2)
    ids = lab.names(arms)
    values = [pick(rng, [5e-324, 1e-310, 1e308, -1e308, 1e160, 1.]) for _ in ids]
    noise = pick(rng, [None, 1e200, 1e-300, 5e-324, 1e300, np.float32(.1)])
    kept = None if noise is None else [float(noise)]*len(ids)
    taken = telling(arms, values, kept)
    def judge(out, error):
        return [] if error else taken
    before = len(lab.model.events)
    label = f"tell({ids}, {values}, noise={noise!r})"
    lab.call(label, lambda: c.tell(ids, values, noise=noise), judge)
    if len(lab.model.events) == before: return
    lab.suggestions(c, label)
    table = c.predict()
    must(np.isfinite(table[["mean", "std", "low", "high"]].to_numpy()).all(),
         f"after {label}: predictions are not finite")
    lab.call("undo()", lambda: c.undo(), [event("undo", event=len(lab.model.events))])


def fail(lab, c):
    arms, reason = lab.some(2), odd_text(lab.rng)
    if lab.rng.integers(4) == 0: reason = os.fsdecode(b"caf\xe9")
    lab.call(f"fail({lab.names(arms)}, {reason!r:.30})", lambda: c.fail(lab.names(arms), reason),
             lab.either([event("fail", arms, reason=reason)]))


def exclude(lab, c):
    arms, reason = lab.some(1), odd_text(lab.rng)
    by = lab.names(arms) if lab.rng.integers(3) else arms
    new = [event("exclude", arms, reason=reason)]
    expected = by_number(lab, arms, lab.either(new)) if by is arms else lab.either(new)
    lab.call(f"exclude({by}, {reason!r:.30})", lambda: c.exclude(by, reason), expected)


def include(lab, c):
    _, _, failed, excluded, _ = lab.model.places()
    arms = lab.some(2)
    good = set(arms) <= failed | excluded
    lab.call(f"include({lab.names(arms)})", lambda: c.include(lab.names(arms)),
             [event("include", arms)] if good else None)


def drop(lab, c):
    pending = lab.model.places()[0]
    if lab.rng.integers(2):
        lab.call("drop()", lambda: c.drop(), [event("drop", pending)] if pending else None)
    else:
        arms = lab.some(1)
        lab.call(f"drop({lab.names(arms)})", lambda: c.drop(lab.names(arms)),
                 [event("drop", arms)] if set(arms) <= set(pending) else None)


def undo(lab, c):
    m = lab.model
    tells = [k for k, e in m.counting() if e["kind"] == "tell"]
    if lab.rng.integers(2) or not m.events:
        lab.call("undo()", lambda: c.undo(), [event("undo", event=tells[-1])] if tells else None)
        return
    seq = int(lab.rng.integers(1, len(m.events) + 1))
    good = m.counts(seq) and m.events[seq - 1]["kind"] != "add"
    undone = m.events[seq - 1]["kind"] == "undo" and not m.counts(seq)
    new = [event("undo", event=seq)]
    lab.call(f"undo({seq})", lambda: c.undo(seq), lab.either(new) if undone else
             new if good else None)


def policy(lab, c):
    rng = lab.rng
    way = pick(rng, ["ucb", "ei", "ts", "pe", "random", "repeats", "noisy", "one"])
    if way in ("repeats", "noisy", "one"):
        repeats = dict(repeats=True, noisy="noisy", one=1)[way]
        kept = True if way == "one" else repeats
        new = [event("policy", policy=CampaignPolicy("ucb", repeats=kept))]
        lab.call(f"set_policy(repeats={repeats!r})",
                 lambda: c.set_policy(CampaignPolicy("ucb", repeats=repeats)),
                 lab.either(new) if way == "one" else new)
        if way == "one" and lab.model.events[-1:] == new:
            stored = record(lab.folder)[-1][2]["repeats"]
            must(stored is True, f"repeats=1 is stored as {stored!r}")
    else:
        lab.call(f"set_policy({way!r})", lambda: c.set_policy(way),
                 [event("policy", policy=CampaignPolicy(way))])


def goal(lab, c):
    value = lab.value()
    lab.call(f"goal({value})", lambda: c.goal(value), [event("goal", value=value)])


def add(lab, c):
    rng, m = lab.rng, lab.model
    if len(m.ids) > 14: return
    graphs = shapes(rng, int(rng.integers(1, 3)))
    ids = [f"n{len(m.ids) + k}" for k in range(len(graphs))]
    bad = rng.integers(6) == 0
    if bad: ids[0] = m.ids[0]
    elif rng.integers(4) == 0: ids[0] = odd_text(rng)
    new = [event("add")]
    def judge(out, error):
        if bad: must(error is not None, f"add took the id {ids[0]!r} twice")
        if error: return []
        m.ids += [i.strip() for i in ids]
        m.graphs += map(degrees, graphs)
        return new
    X = domain_of(graphs, lab.hops)
    lab.call(f"add({list(map(degrees, graphs))}, {ids!r:.80})", lambda: c.add(X, ids), judge)
    must(degrees_of(c.domain) == m.graphs, "add: the graphs are others")


def reopen(lab, c):
    c.close()
    lab.handles[lab.handles.index(c)] = Campaign.open(lab.folder)
    lab.call("reopen", lambda: None, [])


def second(lab, c):
    if len(lab.handles) > 1: lab.handles.pop().close()
    else: lab.handles.append(Campaign.open(lab.folder))
    lab.call(f"{len(lab.handles)} handles", lambda: None, [])


def copy_folder(lab, c):
    "Go on in a copy of the folder, under another name"
    lab.close()
    new = lab.home/f"copy{lab.calls}"
    shutil.copytree(lab.folder, new)
    shutil.rmtree(lab.folder)
    lab.folder, lab.handles = new, [Campaign.open(new)]
    lab.call("copy folder", lambda: None, [])


def twin(lab, c):
    "The journal of a campaign that was created alike is not this one's"
    with tempfile.TemporaryDirectory() as home:
        start = GraphDomain.load(lab.folder/"domain.npz")
        Campaign.create(Path(home)/"twin", start, **lab.options).close()
        mixed = Path(shutil.copytree(lab.folder, Path(home)/"mixed"))
        shutil.copy(Path(home)/"twin/journal.db", mixed/"journal.db")
        lab.call("open with the journal of a twin", lambda: Campaign.open(mixed).close(), None)


def threads(lab, c):
    "Four threads on one handle: what each was told it did is there, once"
    m = lab.model
    begin, done, errors = threading.Barrier(4), [], []
    jobs = [[(lab.some(1)[0], lab.value()) for _ in range(3)] for _ in range(4)]
    def work(k):
        begin.wait()
        for arm, value in jobs[k]:
            try: c.tell(m.ids[arm], value); done.append((arm, value))
            except (ValueError, OSError): pass
            except BaseException as e: errors.append(repr(e))
            try: c.observations, c.pending
            except (ValueError, OSError): pass
            except BaseException as e: errors.append(repr(e))
    def all_of_them():
        workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for w in workers: w.start()
        for w in workers: w.join()
        if errors: raise RuntimeError(errors[0])
    def judge(out, error):
        new = [e[2] for e in record(lab.folder)[1 + len(m.events):]]
        told = sorted((e["arms"][0], e["values"][0]) for e in new)
        must(told == sorted(done), f"threads: {len(done)} acknowledged, {len(told)} in the journal",
             "lost" if len(told) < len(done) else "wrong")
        return [telling(e["arms"], e["values"])[0] for e in new]
    lab.call("12 tells in 4 threads", all_of_them, judge)


def two_undo(lab, c):
    "Two handles undo at once: each takes back another event, or is refused"
    m = lab.model
    tells = [k for k, e in m.counting() if e["kind"] == "tell"]
    if len(tells) < 3: return
    begin, gone = threading.Barrier(2), []
    two = [Campaign.open(lab.folder) for _ in range(2)]
    def work(h):
        begin.wait()
        with contextlib.suppress(ValueError, OSError): gone.append(h.undo().seq)
    def both():
        workers = [threading.Thread(target=work, args=(h,)) for h in two]
        for w in workers: w.start()
        for w in workers: w.join()
        for h in two: h.close()
    def judge(out, error):
        must(len(set(gone)) == len(gone), f"two undos took back event {gone[0]} together")
        stored = [e[2]["event"] for e in record(lab.folder)[1 + len(m.events):]]
        must(sorted(stored) == sorted(gone), f"undone {gone}, stored {stored}")
        return [event("undo", event=k) for k in stored]
    lab.call("two undos at once", both, judge)


PLACES = ["", "journal.db", "candidates.csv", "campaign.json", "domain.npz", "journal.db-journal"]


def overwrite(lab, c):
    "Outputs in the way of the campaign, or of somebody's file"
    mine = lab.home/"mine"
    mine.mkdir(exist_ok=True)
    for name in ("report.html", "candidates.csv", "events.csv", "thesis.tex"):
        (mine/name).write_text("mine")
    before = {p: p.read_bytes() for p in (*mine.iterdir(), *lab.folder.iterdir()) if p.is_file()}
    place = pick(lab.rng, PLACES)
    ways = {"export into the campaign": lambda: c.export(lab.folder),
            "export over my tables": lambda: c.export(mine),
            f"report over {place or 'the folder'}": lambda: c.report(lab.folder/place),
            "report over my file": lambda: c.report(mine/"thesis.tex"),
            "report over my page": lambda: c.report(mine/"report.html")}
    name = pick(lab.rng, list(ways))
    lab.call(name, ways[name], lab.either([]))
    for p, data in before.items():
        must(p.exists() and p.read_bytes() == data, f"{name}: {p.name} is not what it was", "lost")


def outputs(lab, c):
    "Outputs where they belong, once and again"
    place = pick(lab.rng, [lab.home/"tables", lab.folder/"export"])
    if lab.rng.integers(4) == 0:
        file = pick(lab.rng, [lab.home/"page.html", lab.folder/"report.html"])
        return lab.call(f"report({file.name})", lambda: c.report(file), [])
    lab.call(f"export({place.name})", lambda: c.export(place), [])
    table = pd.read_csv(place/"measurements.csv", dtype=str, keep_default_na=False)
    values = [v if v[:1] in ("<", ">") else float(v) for v in table["value"]]
    must(values == [row[2] for row in lab.model.told()],
         "export: other measurements")


def links(lab, c):
    "Links that somebody left in the folder lead nowhere"
    outside = lab.home/"outside.txt"
    outside.write_text("mine")
    for name in ("journal.db.writer.new", "journal.db.writer.json"):
        with contextlib.suppress(FileExistsError): (lab.folder/name).symlink_to(outside)
    arm, value = lab.some(1)[0], lab.value()
    lab.call("tell beside links", lambda: c.tell(lab.model.ids[arm], value),
             lab.either(telling([arm], [value])))
    kept = outside.exists() and outside.read_text() == "mine"
    must(kept, "a file outside was overwritten", "lost")
    for name in ("journal.db.writer.new", "journal.db.writer.json"):
        (lab.folder/name).unlink(missing_ok=True)


def command(lab, c):
    "The program tells or asks, on a terminal that takes the answer or does not"
    rng, m = lab.rng, lab.model
    how = pick(rng, ["well", "full", "gone", "ascii"])
    arm, value = lab.some(1)[0], lab.value()
    if how == "ascii" and lab.style == "mixed": arm = 0
    telled = bool(rng.integers(2)) or not m.open()[0]
    argv = ["tell", lab.folder, m.ids[arm], value] if telled else ["ask", lab.folder]
    out = None
    if how == "full" and Path("/dev/full").exists(): out = open("/dev/full", "wb", buffering=0)
    if how == "gone":
        read, write = os.pipe()
        os.close(read)
        out = open(write, "wb", buffering=0)
    def run():
        try: return program(*argv, out=out, encoding="ascii" if how == "ascii" else "utf-8")
        finally:
            with contextlib.suppress(OSError, AttributeError): out.close()
    def judge(answer, error):
        code, _, err = answer
        new = record(lab.folder)[1 + len(m.events):]
        if code == 0: must(len(new) == 1, f"{argv[0]}: exit code 0, and {len(new)} events")
        elif new:
            said = f"{argv[0]} ({how}): exit code {code}, and yet it is recorded: {err!r:.200}"
            must(code != 2 and "recorded" in err, said)
        if not new: return []
        if telled: return telling([arm], [value])
        return [event("ask", new[0][2]["arms"])]
    lab.call(f"program {argv[0]} {m.ids[arm] if telled else ''} ({how})", run, judge)


def program_reads(lab, c):
    "The program looks, and tells a table"
    m = lab.model
    arms = lab.some(3)
    values = [lab.value() for _ in arms]
    file = write_results(lab.home/"results.csv", zip(lab.names(arms), map(str, values)))
    lab.call(f"program tell results.csv: {lab.names(arms)} {values}",
             lambda: works(program("tell", lab.folder, file), "tell"), telling(arms, values))
    word = pick(lab.rng, ["status", "predict", "goal", "policy"])
    lab.call(f"program {word}", lambda: works(program(word, lab.folder), word), [])
    gone = "nobody at all"
    lab.call("program tell of nobody", lambda: must(refused(program("tell", lab.folder, gone, "1"),
                                                            "tell"), "it was accepted"), [])
    must(len(m.events) > 0, "no events")


CALLS = dict(ask=(ask, 5), ask_and_tell=(ask_and_tell, 4), tell=(tell, 9), tell_one=(tell_one, 3),
             tell_bad=(tell_bad, 5), tell_bounds=(tell_bounds, 4), tell_extreme=(tell_extreme, 2),
             fail=(fail, 2), exclude=(exclude, 2), include=(include, 2), drop=(drop, 2),
             undo=(undo, 4), policy=(policy, 2), goal=(goal, 1), add=(add, 3), reopen=(reopen, 2),
             second=(second, 2), copy_folder=(copy_folder, 1), twin=(twin, 1), threads=(threads, 1),
             two_undo=(two_undo, 1), overwrite=(overwrite, 2), outputs=(outputs, 1),
             links=(links, 1), command=(command, 3), program_reads=(program_reads, 1))


def sequence(seed, length=25, calls=None):
    "One random sequence: dict(calls, refused, broken, text, input)"
    rng = np.random.default_rng([zlib.crc32(b"calls"), seed])
    calls = list(calls or CALLS)
    weights = np.array([CALLS[k][1] for k in calls], float)
    with tempfile.TemporaryDirectory() as home:
        lab, out = None, dict(seed=seed, accepted=True, calls=0, broken="", text="", input="")
        try:
            with guarded(20*length):
                lab = Lab(home, rng)
                for step in range(length):
                    name = calls[int(rng.choice(len(calls), p=weights/weights.sum()))]
                    c = pick(rng, lab.handles)
                    CALLS[name][0](lab, c)
                    for h in lab.handles: lab.check(h, lab.log[-1])
                    if step % 6 == 5 or step == length - 1: lab.compare(lab.log[-1])
        except Broken as e: out |= dict(broken=e.kind, text=e.text)
        except Exception as e:
            kind = "wrong" if isinstance(e, (ValueError, OSError)) else "traceback"
            out |= dict(broken=kind, text=where(e))
        if lab is not None:
            with contextlib.suppress(Exception): lab.close()
            out |= dict(calls=lab.calls, refused=lab.refusals)
            if out["broken"]: out["input"] = "; ".join(lab.log)[-1500:]
    return out


# how a campaign begins

def beginnings(seed):
    "One odd way to create a campaign: it works and can be asked, or is refused and leaves nothing"
    rng = np.random.default_rng([zlib.crc32(b"create"), seed])
    X = domain_of(shapes(rng, 5), 1)
    odd = dict(noise_std=[np.float32(.1), 1e300, 5e-324, 0., -1., np.nan, "x", 10**400, True,
                          np.int64(1)],
               seed=[np.int64(3), -1, 1.5, 10**400, True, "x", 2**64],
               maximize=[np.bool_(True), 1, 0, "yes", None],
               policy=["ucb", "best", CampaignPolicy(repeats=True), 3, None],
               ids=[["a"]*5, ["a", "b"], [1, 2, 3, 4, 5], ["a\rb", "b", "c", "d", "e"], [None]*5,
                    [1.5, 2, 3, 4, 5], {"a", "b", "c", "d", "e"}, ["\ud800", "b", "c", "d", "e"],
                    [True, 2, 3, 4, 5], np.arange(5)[::-1],
                    pd.Series(list("abcde"), index=range(5, 0, -1)),
                    [" a", "a ", "b", "c", "d"], ["x\0", "b", "c", "d", "e"]],
               results=[{"0": 1.}, {0: 1.}, {"z": 1.}, {"0": np.nan}, {"0": 1e308, "1": -1e308},
                        pd.Series([1., 2.], index=["0", "0"]),
                        pd.DataFrame({"id": ["0"], "value": [1]}), [1., 2.], {"0", "1"},
                        {"0": 10**400}],
               table=[pd.DataFrame({"a": ["00123"]*5}), pd.DataFrame({"a": [1]*4}),
                      pd.DataFrame({"a": [b"\xff"]*5}),
                      pd.DataFrame({"a": [[1], {}, None, "x\ry", 1]}),
                      pd.DataFrame([[1, "x\ry"]]*5, columns=["a", "a"]),
                      pd.DataFrame({"id": list("vwxyz"), 3: [1.5, None, 2, 3, 4]}),
                      pd.DataFrame({"mean": ["\r"]*5, "state": ["="]*5})])
    name = pick(rng, list(odd))
    value = pick(rng, odd[name])
    out = dict(seed=seed, accepted=True, calls=1, broken="", text="",
               input=f"{name}={value!r:.100}")
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)/"lab"
        try:
            with guarded(): out["accepted"] = begin(folder, X, {name: value}, out)
            out["input"] = ""
        except Broken as e: out |= dict(broken=e.kind, text=e.text)
        except Exception as e: out |= dict(broken="traceback", text=where(e))
    return out


def begin(folder, X, how, out):
    "Create a campaign and use it; whether it was accepted"
    try: c = Campaign.create(folder, X, **how)
    except (ValueError, OSError) as e:
        must("\n" not in str(e), f"create: {e}")
        left = os.listdir(folder.parent)
        must(not left, f"create: refused, and left {left}")
        return False
    with c:
        ids, known = list(c.ids), len(c.observations)
        if "ids" in how and not isinstance(how["ids"], (set, np.ndarray)):
            must(ids == [str(i).strip() for i in how["ids"]], f"ids {ids}")
        must(len(ids) == 5 == len(c.table), f"{len(ids)} ids for 5 graphs")
        must(degrees_of(c.domain) == degrees_of(X), "other graphs")
        first = c.table.map(str)
        try:
            c.tell(ids[3], 1.5), c.tell([ids[4], ids[3]], [1., 2.], noise=np.float32(.5))
            asked = c.ask(1)
            must(np.isfinite(c.predict()["mean"]).all(), "predictions are not finite")
            tables = c.export(folder.parent/"tables")
        except ValueError as e: raise Broken("wrong", f"accepted, and then: {e}") from e
    out["calls"] += 5
    must(len(tables) == 3, "export")
    with Campaign.open(folder) as c:
        must(c.ids == ids and len(c.observations) == known + 3, "opened again: other", "lost")
        must(c.pending["arm"].tolist() == list(asked), "opened again: other pending")
        must(c.table.map(str).equals(first), "opened again: the table is another")
        must(degrees_of(c.domain) == degrees_of(X), "opened again: other graphs")
    return True
