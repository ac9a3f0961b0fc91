"""Random files for every loader, and the contract by which a campaign takes or refuses them.

A file is made by a grammar that knows what the file says, or by mutation of such a file. It is
judged by one rule. Either the program refuses it: exit code 2, one line on standard error, nothing
left on the disk. Or it takes it, and then everything works (ask, tell, status, report, export, open
again), every id has the graph and the cells that the file gave it, and memory stays bounded.
scripts/faults.py counts, tests/test_robustness.py plays a part of it.
"""
import contextlib
import copy
import csv
import io
import json
import os
import re
import resource
import select
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import traceback
import unicodedata
import zlib
from collections import Counter
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import pandas as pd
from tqdm import tqdm

import gnn_bandits.core as core
import gnn_bandits.journal as journal_room
from gnn_bandits import cli
from gnn_bandits.bandits import Prior
from gnn_bandits.campaigns import Campaign
from gnn_bandits.core import pack_arrays, unpack_arrays
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.intake import as_file

# progress bars share a lock between processes; one that is killed must not keep it
tqdm.set_lock(threading.RLock())
tqdm.monitor_interval = 0
FREE = 2**30            # bytes that the program is told are free; it may not take more than these
PATIENCE = 120          # seconds after which a call hangs


class Broken(BaseException):
    "The contract is broken; kind is traceback, wrong, lost, memory or hang. Nobody catches it."
    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


def must(holds, text, kind="wrong"):
    if not holds: raise Broken(kind, text)


def where(e):
    "An error, and the last places that it came through"
    at = [f"{Path(f.filename).name}:{f.name}" for f in traceback.extract_tb(e.__traceback__)]
    return f"{type(e).__name__}: {e!s:.200} ({' '.join(at[-4:])})"


# child processes

def fork(work):
    "A child process that does the work; returns its number and where it writes"
    mine, its = os.pipe()
    pid = os.fork()
    if pid:
        os.close(its)
        return pid, mine
    code = 1
    try:
        os.close(mine)
        tqdm.set_lock(threading.RLock())          # its own: one that is killed would keep ours
        work(lambda text: os.write(its, text.encode() + b"\n"))
        code = 0
    except BaseException: traceback.print_exc()
    finally: os._exit(code)


def heard(pid, pipe, must_end=True):
    "What a child wrote, once it has ended"
    with os.fdopen(pipe, "rb") as f: lines = f.read().decode().splitlines()
    _, status = os.waitpid(pid, 0)
    assert not must_end or status == 0, (status, lines)
    return lines


def watched(pid, pipe, patience=1.5*PATIENCE):
    "What a child wrote; it is ended if it writes nothing for a long time"
    text, fd = b"", pipe
    while select.select([fd], [], [], patience)[0]:
        new = os.read(fd, 2**16)
        text += new
        if not new: break
    with contextlib.suppress(ProcessLookupError): os.kill(pid, signal.SIGKILL)
    os.close(fd), os.waitpid(pid, 0)
    return text.decode().split("\n")[:-1]


# the program, as a person at a terminal sees it

class Closed(io.RawIOBase):
    "A standard output that takes nothing: a full disk, or a reader that has gone"
    def __init__(self, error): self.error = error
    def writable(self): return True
    def write(self, data): raise self.error


def program(*argv, out=None, encoding="utf-8"):
    "Exit code, standard output and standard error of one command; nothing else may come out"
    raw = [out or io.BytesIO(), io.BytesIO()]
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (io.TextIOWrapper(r, encoding, errors=e, write_through=True)
                              for r, e in zip(raw, ("strict", "backslashreplace")))
    try:
        code = cli.main(["campaign", *map(str, argv)])
        with contextlib.suppress(OSError, ValueError): sys.stdout.flush()
    except SystemExit as e: code = e.code
    except Broken: raise
    except BaseException as e: raise Broken("traceback", f"{argv[0]}: {where(e)}") from e
    finally:
        streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = kept
        for s in streams:
            with contextlib.suppress(OSError, ValueError): s.detach()
    text = [r.getvalue().decode(encoding, "replace") if isinstance(r, io.BytesIO) else ""
            for r in raw]
    for t in text:
        odd = [c for c in t if unicodedata.category(c) == "Cc" and c not in "\n\t"]
        must(not odd, f"{argv[0]}: the control character {odd[:1]} reaches the terminal")
    return code, *text


def refused(answer, what):
    "Whether the program refused; a refusal is code 2 and one line"
    code, out, err = answer
    if code == 0: return False
    lines = [line for line in err.splitlines() if not line.startswith("gnn_bandits: note:")]
    must(code == 2, f"{what}: exit code {code}, {err:.200}")
    must(len(lines) == 1 and lines[0].startswith("gnn_bandits: "),
         f"{what}: expected one line, got {err!r:.200}")
    must(out == "", f"{what}: refused, and printed {out!r:.80}")
    return True


def works(answer, what):
    "Refuse to go on if a command that must work does not"
    must(answer[0] == 0, f"accepted, but {what} fails: {answer[2]!r:.300}")
    return answer[1]


@contextlib.contextmanager
def guarded(patience=PATIENCE):
    "A call that hangs is ended; one that takes more memory than it was told is free is noticed"
    def late(*_): raise Broken("hang", f"no end after {patience} s")
    before, plain = signal.signal(signal.SIGALRM, late), core.available_bytes
    core.available_bytes = lambda: FREE
    start = reset_peak()
    signal.alarm(patience)
    try: yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        core.available_bytes = plain
    took = core.peak_mb() - start
    must(took <= FREE/2**20, f"took {took:.0f} MB where {FREE >> 20} are free", "memory")


def reset_peak():
    "Forget the largest memory so far; returns the memory now, in MB"
    with contextlib.suppress(OSError): Path("/proc/self/clear_refs").write_text("5")
    return core.peak_mb()


# odd things

NUMBERS = ["0", "-0", "1e5", "1E5", "1e400", "-1e308", "5e-324", "1e-310", "1e200", "nan", "inf",
           "-Infinity", "00123", "1_000", "0x10", "1,5", "1,234", "9"*400, "1e-5", "+3", " 4 ",
           "٣", "1.", ".5", "--1", "1e", "TRUE", "None", "12345678901234567890"]
WORDS = ["", " ", "x", "x\ry", "x\ny", "x\r\ny", "\r", "a,b", "a;b", "a\tb", '"', '""', 'a"b', "'",
         "\\", "\\n", "#", "=1+1", "+1", "@SUM(A1)", "-2", "-x", "--help", "\ufeffx", "é",
         "e\u0301",
         "日本", "🙂", "\u202eabc", "a\u2028b", "a\u0085b", "a\xa0b", "\x1b[31mred", "\x07", "\0",
         "NA", "null", "true", "../x", "/dev/null", "%s", "{}", "<b>&amp;", "</script>", "a"*3000]
VALUES = [None, True, False, 0, -1, 3, 1.5, 1e308, 5e-324, 10**400, -10**400, float("nan"),
          float("inf"), "", "x", "x\ry", "\0", "日本", "1", [], [[]], {}, [1, 2], {"a": 1},
          {"nodes": []}, [None], "\ud800", 2**63, -2**63 - 1]


def pick(rng, things): return things[int(rng.integers(len(things)))]


def odd_text(rng): return str(pick(rng, NUMBERS if rng.integers(3) == 0 else WORDS))


def mutate(data, rng, times=None):
    "Bytes with a few changes: flipped, cut, doubled, moved, or with something odd in between"
    data = bytearray(data)
    for _ in range(times or int(rng.integers(1, 4))):
        n = max(1, len(data))
        i, j = sorted(int(v) for v in rng.integers(n + 1, size=2))
        j = min(j, i + int(rng.integers(1, 40)))
        how = int(rng.integers(8))
        if how == 0 and data: data[min(i, len(data) - 1)] ^= 1 << int(rng.integers(8))
        elif how == 1: del data[i:j]
        elif how == 2: data[i:i] = data[i:j]*int(rng.integers(1, 4))
        elif how == 3: data[i:i] = odd_text(rng).encode("utf-8", "surrogatepass")
        elif how == 4: data[i:j] = bytes(rng.integers(256, size=j - i, dtype=np.uint8))
        elif how == 5: data[i:i] = pick(rng, [b"\r", b"\n", b"\0", b'"', b",", b";", b"\t", b"\xff",
                                              b"\xef\xbb\xbf", b"<", b"&", b"{", b"[", b"]"])
        elif how == 6:
            found = list(re.finditer(rb"-?\d+\.?\d*(e-?\d+)?", bytes(data[:10**5])))
            if found:
                m = pick(rng, found)
                data[m.start():m.end()] = pick(rng, NUMBERS).encode()
        elif rng.integers(6) == 0: del data[i:]
    return bytes(data)


def mutate_tree(tree, rng):
    "A JSON value in which one place holds something else, or nothing, or itself once more"
    tree, places = copy.deepcopy(tree), []
    def visit(node):
        for k in list(node) if isinstance(node, dict) else range(len(node)):
            places.append((node, k))
            if isinstance(node[k], (dict, list)): visit(node[k])
    if isinstance(tree, (dict, list)): visit(tree)
    if not places or rng.integers(25) == 0: return pick(rng, VALUES)
    node, k = pick(rng, places)
    how = int(rng.integers(5))
    if how == 0: del node[k]
    elif how == 1 and isinstance(node, list): node.insert(k, copy.deepcopy(node[k]))
    elif how == 2 and isinstance(node, dict): node[odd_text(rng)] = node.pop(k)
    elif how == 3:
        for _ in range(int(rng.integers(2, 60))): node[k] = [node[k]]
    else: node[k] = copy.deepcopy(pick(rng, VALUES))
    return tree


def as_json(tree): return json.dumps(tree, ensure_ascii=True).encode()


# a file, and what it says

class Case:
    "One input: its file, how it is read, and what it says if that is known"
    def __init__(self, name, data, options=(), ids=None, sizes=None, cells=None, made="grammar"):
        self.name, self.data, self.options, self.made = name, data, list(map(str, options)), made
        self.ids, self.sizes, self.cells = ids, sizes, cells or {}
    def __repr__(self):
        return f"{self.name} {' '.join(self.options)} ({self.made}): {self.data!r:.1500}"


MOLECULES = ["C", "CC", "CCO", "CCCN", "CC(C)CO", "c1ccccc1", "CCCCCCC", "Cc1ccccc1N"]


def table_cells(rng, n, ids=None):
    "Ids, and cells of a table of n rows by column; most tables have one or two odd places"
    ids = list(ids or [f"m{k}" for k in range(n)])
    odd = rng.random()
    if odd < 0.35: ids[int(rng.integers(n))] = odd_text(rng)
    elif odd < 0.45: ids = [f"{k:03}" for k in rng.permutation(n)]
    elif odd < 0.5: ids = [str(k) for k in rng.permutation(n)]
    columns = {}
    for _ in range(int(rng.integers(3))):
        usual = pick(rng, ["note", "well", "value", "a b"])
        name = odd_text(rng) if rng.integers(4) == 0 else usual
        if name.strip() in ("id", "SMILES") or name in columns: continue
        plain = pick(rng, [["A1", "B2"], ["00123", "0450"], ["1E5", "2E5"], ["x", ""]])
        columns[name] = [odd_text(rng) if rng.integers(3) == 0 else pick(rng, plain)
                         for _ in range(n)]
    return ids, columns


def as_csv(rows, rng):
    "Rows as a table, in one of the ways in which programs write them"
    text = io.StringIO()
    quoting = pick(rng, [csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    separator, end = pick(rng, [",", ",", ";", "\t"]), pick(rng, ["\n", "\n", "\r\n", "\r"])
    for row in rows:                      # csv.writer leaves a lone \r or \n of another kind bare
        cells = []
        for cell in row:
            bare = quoting == csv.QUOTE_MINIMAL and not re.search(f'["\r\n{separator}]|^ | $', cell)
            cells.append(cell if bare else '"' + cell.replace('"', '""') + '"')
        text.write(separator.join(cells) + end)
    mark = pick(rng, ["", "", "", "\ufeff"])
    return (mark + text.getvalue()).encode("utf-8", "surrogatepass")


def candidates_table(rng):
    "A table of molecules"
    n = int(rng.integers(3, 7))
    ids, columns = table_cells(rng, n)
    chosen = [MOLECULES[k] for k in rng.permutation(len(MOLECULES))[:n]]
    sizes = [1 + MOLECULES.index(m) for m in chosen]
    columns = {"id": ids} | columns | {"SMILES": chosen}
    names = list(columns)
    rng.shuffle(names)
    cells = {k: columns[k] for k in names if k not in ("id", "SMILES")}
    options = ["--smiles", "SMILES", "--seed", int(rng.integers(100))]
    if rng.integers(4) == 0:
        kind = pick(rng, ["parquet", "xlsx"])
        with contextlib.suppress(Exception):                # a name that Parquet cannot have
            data = as_file(pd.DataFrame({k: columns[k] for k in names}), kind)
            return mutated(Case(f"pool.{kind}", data, options, ids, sizes, cells), rng, 0.3)
    data = as_csv([names, *zip(*(columns[k] for k in names))], rng)
    if rng.integers(12) == 0: data = data.decode("utf-8", "replace").encode("utf-16")
    name = pick(rng, ["pool.csv", "pool.csv", "pool.tsv", "pool.txt"])
    return mutated(Case(name, data, options, ids, sizes, cells), rng, 0.3)


def mutated(case, rng, share):
    "The case, or one with a few other bytes, of which nobody knows what it says"
    if rng.random() >= share: return case
    return Case(case.name, mutate(case.data, rng), case.options, made="mutation")


TINY = {"path": [[0, 1], [1, 2], [2, 3]], "star": [[0, 1], [0, 2], [0, 3]], "pair": [[0, 1]],
        "ring": [[0, 1], [1, 2], [2, 0]], "lone": []}
NODES = {"path": 4, "star": 4, "pair": 2, "ring": 3, "lone": 1}


def graphml(rng):
    "Graphs in GraphML"
    n, kind = int(rng.integers(1, 5)), pick(rng, ["int", "double", "string", "boolean", "long"])
    plain = {"int": ["0", "1"], "long": ["1", "2"], "double": ["0.5", "1.5"],
             "string": ["C", "O"], "boolean": ["true", "false"]}[kind]
    value = lambda: odd_text(rng) if rng.integers(40) == 0 else pick(rng, plain)
    name = odd_text(rng) if rng.integers(12) == 0 else pick(rng, ["x", "label"])
    safe = lambda t: "".join(c for c in t if c in "\t\n\r" or ord(c) > 31)
    shapes, ids = [pick(rng, list(TINY)) for _ in range(n)], [f"g{k}" for k in range(n)]
    if rng.integers(4) == 0: ids[0] = odd_text(rng)
    ids = [safe(i) for i in ids]
    encoding = pick(rng, ["UTF-8"]*8 + ["ASCII", "UTF-7", "nonsense", "UTF-16", "hex"])
    if encoding not in ("UTF-8", "ASCII"): ids = [f"g{k}" for k in range(n)]
    parts = [f'<?xml version="1.0" encoding="{encoding}"?>\n'
             '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
             f'<key id="d0" for="node" attr.name={quoteattr(safe(name))} attr.type="{kind}"/>']
    for i, shape in zip(ids, shapes):
        parts.append(f'<graph id={quoteattr(i)} edgedefault="undirected">')
        parts += [f'<node id="n{v}"><data key="d0">{escape(safe(value()))}</data></node>'
                  for v in range(NODES[shape])]
        parts += [f'<edge source="n{a}" target="n{b}"/>' for a, b in TINY[shape]] + ["</graph>"]
    data = "\n".join([*parts, "</graphml>"]).encode("utf-8", "surrogatepass")
    ids = [" ".join(re.split("[\t\n\r]", i.replace("\r\n", "\n"))) for i in ids]    # as XML reads
    ids = ids if n > 1 else ["0"]
    options = ["--features", safe(name)] if kind == "string" or name != "x" else []
    options = options if not (options and options[1].startswith("-")) else []
    case = Case("nets.graphml", data, options, ids, [NODES[s] for s in shapes])
    return mutated(case, rng, 0.4)


def nodelink(rng):
    "Graphs in node-link JSON"
    n = int(rng.integers(1, 5))
    shapes, ids = [pick(rng, list(TINY)) for _ in range(n)], [f"g{k}" for k in range(n)]
    if rng.integers(3) == 0: ids[0] = odd_text(rng)
    value = pick(rng, [lambda: int(rng.integers(3)), lambda: float(rng.integers(4))/4,
                       lambda: pick(rng, ["C", "O"]), lambda: [1., float(rng.integers(2))],
                       lambda: pick(rng, ["123", "12a"])])
    graphs = [dict(id=i, graph={"name": odd_text(rng)}, directed=False,
                   nodes=[dict(id=v, x=value()) for v in range(NODES[s])],
                   edges=[dict(source=a, target=b) for a, b in TINY[s]])
              for i, s in zip(ids, shapes)]
    options = ["--features", "x"]
    how = int(rng.integers(4))
    if how == 0:
        cells = {"name": [g["graph"]["name"] for g in graphs]}
        return Case("nets.json", as_json(graphs), options, ids, [NODES[s] for s in shapes], cells)
    if how == 1: return Case("nets.json", mutate(as_json(graphs), rng), options, made="mutation")
    tree = mutate_tree(graphs, rng)
    if rng.integers(3) == 0: tree = mutate_tree(tree, rng)
    data = as_json(tree)
    if rng.integers(12) == 0:
        deep, quote = pick(rng, [200, 990, 5000, 10**5]), pick(rng, [b'"x": ', b'"graph": '])
        data = data.replace(quote, quote + b"["*deep + b"]"*deep + b', "old": ', 1)
    elif rng.integers(12) == 0: data = re.sub(rb": \d", b": " + b"9"*400, data, count=1)
    return Case("nets.json", data, options, made="mutation")


def small_pool(rng, n=5, **how):
    "A domain of small graphs"
    return GraphDomain.erdos_renyi(n, 4, 0.5, 3, rng, **how)


def odd_array(a, rng):
    "An array in which something is not as it should be"
    a, how = np.array(a), int(rng.integers(9))
    if how == 0 and a.size:
        bad = pick(rng, [0, -1, 2**31, 2**62, 7] if a.dtype.kind in "iu" else
                   [np.nan, np.inf, -1., 0., 1e300, 1e-300])
        a.reshape(-1)[int(rng.integers(a.size))] = bad
    elif how == 1: a = a[:-1]
    elif how == 2: a = np.concatenate([a, a])
    elif how == 3: a = a.astype(pick(rng, ["float32", "int8", "complex128", "U5", "bool", ">f8"]))
    elif how == 4: a = a.reshape(-1)
    elif how == 5: a = np.zeros(pick(rng, [(0,), (), (0, 3), (1, 1), (3, 0), (2, 2, 2)]), a.dtype)
    elif how == 6 and a.ndim: a = a[rng.permutation(len(a))]
    elif how == 7: a = a*pick(rng, [0, 2, -1, 1e-200])
    else: a = np.asfortranarray(a)
    return a


def packed_again(data, rng):
    "An archive with a checksum that fits, in which one part is not as it should be"
    meta, arrays = unpack_arrays(data)
    for _ in range(int(rng.integers(1, 3))):
        name = pick(rng, [*arrays, "meta"])
        if name == "meta": meta = mutate_tree(meta, rng)
        elif rng.integers(8) == 0: arrays.pop(name)
        elif rng.integers(8) == 0: arrays[pick(rng, ["edge_weight", "edge_type", "raw", "x"])] = \
            arrays[name]
        else: arrays[name] = odd_array(arrays[name], rng)
        if not arrays: break
    try: return pack_arrays(meta, **arrays)
    except (ValueError, TypeError, UnicodeEncodeError): return mutate(data, rng)


def domain_npz(rng):
    "Graphs as GraphDomain.save writes them"
    X = small_pool(rng)
    with tempfile.TemporaryDirectory() as home: data = X.save(Path(home)/"x.npz").read_bytes()
    how = int(rng.integers(6))
    if how == 0: return Case("x.npz", data, (), [str(k) for k in range(5)], X.sizes.tolist())
    if how == 1: return Case("x.npz", mutate(data, rng), made="mutation")
    return Case("x.npz", packed_again(data, rng), made="crafted")


POOLS = {"candidates table": candidates_table, "GraphML": graphml, "node-link JSON": nodelink,
         "domain npz": domain_npz}


# judging a file of candidates

def listing(folder):
    "What is in a folder, with its content"
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
            for p in sorted(Path(folder).rglob("*"))}


def same_cell(given, kept):
    "Whether a cell is kept: nothing is nothing, and blanks at its ends do not count"
    kept = "" if kept is None or kept != kept else str(kept)
    return str(given).strip() == kept.strip()


def check_pool(case, c, when):
    "Ids, graphs and cells of a campaign are those of its file"
    n = len(c.ids)
    must(n == len(c.domain) == len(c.table), f"{when}: {n} ids, {len(c.table)} rows and "
         f"{len(c.domain)} graphs")
    if case.ids is not None:
        must(c.ids == [str(i).strip() for i in case.ids], f"{when}: ids {c.ids} of {case.ids}")
        must(c.domain.sizes.tolist() == case.sizes, f"{when}: {c.domain.sizes.tolist()} nodes, "
             f"the file has {case.sizes}")
    for name, given in case.cells.items():
        kept = next((c.table[k].tolist() for k in c.table if str(k).strip() == name.strip()), None)
        if kept is None or not name.strip(): continue      # a column may get another name
        bad = [(g, k) for g, k in zip(given, kept) if not same_cell(g, k)]
        must(not bad, f"{when}: cell {bad[:1]} of column {name!r} has changed")
    if "SMILES" in c.table:
        from rdkit import Chem
        sizes = [Chem.MolFromSmiles(str(s).strip()).GetNumAtoms() for s in c.table["SMILES"]]
        must(sizes == c.domain.sizes.tolist(), f"{when}: molecules of {sizes} atoms, graphs of "
             f"{c.domain.sizes.tolist()} nodes")
    return c.ids, c.domain.sizes.tolist()


def write_results(path, rows):
    "A table of results as a careful program writes it"
    with open(path, "w", newline="", encoding="utf-8") as f:
        csv.writer(f, quoting=csv.QUOTE_ALL).writerows([["id", "value"], *rows])
    return path


def is_number(text):
    "Whether a spreadsheet takes the text for a number, which is harmless"
    try: return bool(float(text)) or True
    except ValueError: return False


def raw_cells(path):
    "The rows of a table that the program wrote"
    csv.field_size_limit(10**9)
    with open(path, newline="", encoding="utf-8") as f: return list(csv.reader(f))


def use(case, folder, home, rng, thorough):
    "Everything that must work once a file has been taken; returns how many calls were made"
    with Campaign.open(folder) as c: ids, sizes = check_pool(case, c, "after new")
    n = len(ids)
    works(program("ask", folder), "ask")
    a, b = int(rng.integers(n)), int(rng.integers(n))
    results = write_results(home/"results.csv", [[ids[a], "7.25"]])
    works(program("tell", folder, results), f"tell of a table with the id {ids[a]!r}")
    with Campaign.open(folder) as c:
        c.tell(ids[b], -1.5)
        told = c.observations
        must(told["id"].tolist() == [ids[a], ids[b]], f"told {ids[a]!r}, {ids[b]!r}; {told}")
        must([sizes[k] for k in (a, b)] == [int(c.domain.sizes[k]) for k in told["arm"]],
             "a value was recorded on another graph")
    with contextlib.suppress(IndexError):
        k = next(k for k in range(n) if k not in (a, b)) if n > 2 else a
        with Campaign.open(folder) as c: c.tell(ids[k], 0.5)
    answer = program("ask", folder)
    if n > 4: works(answer, "the second ask")
    else: refused(answer, "ask")
    works(program("status", folder), "status")
    works(program("export", folder, "--out", home/"tables"), "export")
    rows = raw_cells(home/"tables/candidates.csv")
    must(len(rows) == n + 1 and {len(r) for r in rows} == {len(rows[0])},
         f"export: {len(rows) - 1} rows for {n} candidates")
    place = rows[0].index("id")
    for i, row in zip(ids, rows[1:]):
        must(row[place].lstrip("'") == i.lstrip("'"), f"export: {row[place]!r} for {i!r}")
        formula = [x for x in row if x[:1] in ("=", "+", "@", "-") and not is_number(x)]
        must(not formula, f"export: a formula, {formula[:1]}")
    calls = 9
    if thorough:
        works(program("report", folder, "--out", home/"report.html"), "report")
        page = (home/"report.html").read_text(encoding="utf-8")
        must(page.rstrip().endswith("</html>"), "half a report")
        calls += 1
    with Campaign.open(folder) as c:
        must((ids, sizes) == check_pool(case, c, "opened again"), "opened again: another pool")
        must(len(c.observations) == 3, "opened again: other observations", "lost")
    return calls


def judge_pool(case, rng, thorough=False):
    "Play one file of candidates; returns (accepted, calls)"
    with tempfile.TemporaryDirectory() as home, guarded():
        home, file = Path(home), Path(home)/case.name
        file.write_bytes(case.data)
        before = listing(home)
        answer = program("new", file, *case.options, "--out", home/"lab")
        if refused(answer, "new"):
            must(listing(home) == before, f"refused, and left {set(listing(home)) - set(before)}")
            return False, 1
        must(set(listing(home)) - set(before) >= {"lab/campaign.json"}, "nothing was made")
        with tempfile.TemporaryDirectory() as more:
            return True, 1 + use(case, home/"lab", Path(more), rng, thorough)


# results for tell

def results_table(rng):
    "A table of results for the candidates m0 to m5; rows of id, value, noise, note"
    n = int(rng.integers(1, 6))
    number = lambda plain: pick(rng, NUMBERS) if rng.integers(30) == 0 else plain
    scale = pick(rng, [1]*40 + [5e-324, 1e-310, 1e-160, 1e150, 1e300])
    ids = [odd_text(rng) if rng.integers(40) == 0 else f"m{rng.integers(6)}" for _ in range(n)]
    values = [number(repr(round(rng.normal(), 3)*scale)) for _ in range(n)]
    columns = {"id": ids, "value": values}
    if rng.integers(3) == 0:
        usual = ["0.1", "0.25", "1e200"] if rng.integers(4) == 0 else ["0.1", "0.25"]
        columns["noise"] = [number(pick(rng, usual)) for _ in ids]
    if rng.integers(2): columns["note"] = [odd_text(rng) for _ in ids]
    if rng.integers(6) == 0: columns[odd_text(rng)] = [odd_text(rng) for _ in ids]
    if rng.integers(12) == 0: columns["wide" + "x"*70000] = ["" for _ in ids]
    names = list(columns)
    rng.shuffle(names)
    if rng.integers(15) == 0: names.append(pick(rng, names))
    data = as_csv([names, *zip(*(columns[k] for k in names))], rng)
    case = Case(pick(rng, ["results.csv", "results.tsv"]), data)
    case.rows = list(zip(ids, values, columns.get("noise", [""]*n), columns.get("note", [""]*n)))
    if rng.random() < 0.3:
        case = Case(case.name, mutate(data, rng), made="mutation")
        case.rows = None
    return case


def six(folder):
    "A campaign of six molecules, with one value"
    table = pd.DataFrame({"SMILES": MOLECULES[:6]})
    from gnn_bandits.molecules import read_smiles
    X = read_smiles(table["SMILES"].tolist()).domain
    with Campaign.create(folder, X, ids=[f"m{k}" for k in range(6)], table=table) as c:
        c.tell("m0", 1.)
    return Path(folder)


def record(folder):
    "What a journal holds, read without the package"
    try:
        file = f"file:{folder}/journal.db?mode=ro"
        with contextlib.closing(sqlite3.connect(file, uri=True)) as db:
            rows = db.execute("SELECT seq, kind, data, note FROM events ORDER BY seq").fetchall()
    except sqlite3.Error as e: raise Broken("lost", f"the journal cannot be read: {e}") from e
    return [(seq, kind, json.loads(data), note) for seq, kind, data, note in rows]


def judge_results(case, base, rng, thorough=False):
    "Play one table of results; returns (accepted, calls)"
    with tempfile.TemporaryDirectory() as home, guarded():
        home, file = Path(home), Path(home)/case.name
        folder = Path(shutil.copytree(base, home/"lab"))
        file.write_bytes(case.data)
        before = listing(home)
        if refused(program("tell", folder, file), "tell"):
            must(listing(home) == before, "tell was refused, and the folder is another")
            return False, 1
        (_, kind, data, _), *more = record(folder)[2:]
        must(kind == "tell" and not more, f"tell: {kind} and {more}")
        with Campaign.open(folder) as c:
            obs = c.observations[1:]
            for arm, i in zip(obs["arm"], obs["id"]): must(i == f"m{arm}", f"{i} is arm {arm}")
            if case.rows is not None: check_told(case.rows, obs)
            must(len(c.suggest(1, repeats=True)) == 1 and np.isfinite(c.predict()["mean"]).all(),
                 "accepted, and then nothing can be predicted")
        works(program("ask", folder, "--repeats"), "ask after tell")
        works(program("status", folder), "status after tell")
        works(program("export", folder, "--out", home/"tables"), "export after tell")
        rows = raw_cells(home/"tables/measurements.csv")
        must(len(rows) == len(obs) + 2, "export: other measurements")
        works(program("undo", folder), "undo")
        with Campaign.open(folder) as c: must(len(c.observations) == 1, "undo")
        return True, 6


def check_told(rows, obs):
    "Every row of the file is a measurement, in order, with its noise and its note"
    must(len(obs) == len(rows), f"the file has {len(rows)} values, {len(obs)} are recorded", "lost")
    for (i, value, noise, note), r in zip(rows, obs.itertuples()):
        must(r.id == i.strip() and r.value == float(value), f"{i!r} = {value!r} became {r}")
        none = noise.strip().lower() in ("", "na", "nan", "n/a", "none", "null")
        must(r.noise != r.noise if none else r.noise == float(noise), f"noise {noise!r}: {r.noise}")
        must(r.note.strip() == note.strip(), f"the note {note!r:.60} became {r.note!r:.60}")


# files of a campaign that changed

def own(folder):
    "A campaign with a prior of its own and one of each event"
    X = small_pool(np.random.default_rng(0), 6)
    with Campaign.create(folder, X, ids=[f"m{k}" for k in range(6)], prior=Prior.gntk(X)) as c:
        c.tell(["m0", "m1"], [1., 2.]), c.ask(1), c.exclude("m5", "gone"), c.fail("m4", "wet")
    return Path(folder)


def contents(c):
    "What a campaign says"
    obs = c.observations[["event", "id", "value", "note"]]
    return (c.ids, obs.values.tolist(), c.to_dataframe()["state"].tolist(),
            c.pending["id"].tolist(), c.settings)


def rechained(path, rng):
    "A journal in which the data of one event are others, and all checksums fit"
    db = sqlite3.connect(path)
    rows = db.execute("SELECT * FROM events ORDER BY seq").fetchall()
    k, previous = int(rng.integers(len(rows))), ""
    tree = mutate_tree(json.loads(rows[k][4]), rng)
    triggers = "in_order", "counted", "unchanged", "kept"
    for trigger in triggers: db.execute(f"DROP TRIGGER {trigger}")
    for i, row in enumerate(rows):
        row = list(row[:-1])
        if i == k: row[4] = json.dumps(tree)
        previous = journal_room.link(previous, tuple(row))
        db.execute("UPDATE events SET data = ?, hash = ? WHERE seq = ?", (row[4], previous, row[0]))
    db.execute("UPDATE head SET hash = ?", (previous,))
    db.commit()
    for statement in journal_room.TABLES[2:]: db.execute(statement)
    db.commit(), db.close()


def changed_part(name):
    "A fault: one file of a campaign has other bytes"
    def make(rng, base):
        data = (base/name).read_bytes()
        if name == "campaign.json" and rng.integers(3):
            return as_json(mutate_tree(json.loads(data), rng))
        if name == "prior.npz" and rng.integers(3): return packed_again(data, rng)
        if name == "candidates.csv" and rng.integers(3) == 0: return data.replace(b"\n", b"\r\n")
        return mutate(data, rng)
    return make


PARTS = ["campaign.json", "candidates.csv", "prior.npz", "journal.db", "domain.npz"]


def judge_part(name, data, base, rng, thorough=False):
    "Play a campaign in which one file has other bytes; returns (accepted, calls)"
    with Campaign.open(base) as c: before = contents(c)
    with tempfile.TemporaryDirectory() as home, guarded():
        folder = Path(shutil.copytree(base, Path(home)/"lab"))
        if callable(data): data(folder/name)
        else: (folder/name).write_bytes(data)
        answer = program("ask", folder, "--json")
        if refused(answer, "ask"):
            refused(program("status", folder), "status")
            return False, 2
        works(program("tell", folder, "m3", "1.5"), "tell")
        works(program("status", folder), "status")
        works(program("export", folder, "--out", Path(home)/"tables"), "export")
        with Campaign.open(folder) as c: after = contents(c)
        if callable(data): return True, 4                  # what it should say, nobody knows
        told = [row for row in after[1] if row in before[1]]
        must(told == before[1] and len(after[1]) == len(told) + 1, "other observations", "lost")
        must(after[0] == before[0] and after[4] == before[4], "other ids or settings")
        return True, 4


def journals(rng, base):
    "A journal whose checksums fit and whose events do not"
    seed = int(rng.integers(2**32))
    return lambda path: rechained(path, np.random.default_rng(seed))


# inputs that are large, or that are no files

def chain(n): return "C"*n


def many_labels(home):
    nodes = "".join(f'<node id="{k}"><data key="d">w{k}</data></node>' for k in range(20001))
    (home/"x.graphml").write_text('<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.'
        'org/xmlns"><key id="d" for="node" attr.name="x" attr.type="string"/><graph '
        f'edgedefault="undirected">{nodes}</graph></graphml>')
    return home/"x.graphml", "--features", "x"


def many_columns(home):
    names = ",".join(["id", "SMILES", *(f"c{k}" for k in range(300000))])
    rows = "".join(f"m{k},{chain(k + 1)}{','*300000}\n" for k in range(4))
    (home/"x.csv").write_text(f"{names}\n{rows}")
    return home/"x.csv", "--smiles", "SMILES"


def long_molecule(home):
    (home/"x.csv").write_text(f"id,SMILES\na,CC\nb,CCC\nc,{chain(300000)}\n")
    return home/"x.csv", "--smiles", "SMILES"


def long_header(home):
    (home/"x.csv").write_text(f"id,SMILES,{'x'*70000}\n"
                              + "".join(f"m{k},{chain(k + 1)},\n" for k in range(4)))
    return home/"x.csv", "--smiles", "SMILES"


def pipe(home):
    os.mkfifo(home/"x.npz")
    return (home/"x.npz",)


def zeros(home):
    (home/"x.npz").symlink_to("/dev/zero")
    return (home/"x.npz",)


def pipe_of_text(home):
    os.mkfifo(home/"x.csv")
    return home/"x.csv", "--smiles", "SMILES"


def entities(home):
    lol = "".join(f'<!ENTITY a{k} "{f"&a{k - 1};"*10}">' for k in range(1, 12))
    (home/"x.graphml").write_text(f'<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a0 "xxxxxxxxxx">'
                                  f'{lol}]><graphml><graph><node id="a">&a11;</node></graph>'
                                  '</graphml>')
    return (home/"x.graphml",)


def bomb(home):
    import zipfile
    with zipfile.ZipFile(home/"x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z:
        with z.open("nodes.npy", "w", force_zip64=True) as f:
            for _ in range(64): f.write(bytes(2**24))
    return (home/"x.npz",)


def deep(home):
    (home/"x.json").write_text("["*200000 + "]"*200000)
    return (home/"x.json",)


LARGE = [many_labels, many_columns, long_molecule, long_header, pipe, pipe_of_text, zeros, entities,
         bomb, deep]


def judge_large(make, rng, thorough=False):
    "Play one input that is large, or no file; returns (accepted, calls)"
    with tempfile.TemporaryDirectory() as home, guarded():
        home = Path(home)
        argv, names = make(home), set(os.listdir(home))
        if refused(program("new", *argv, "--out", home/"lab"), "new"):
            must(set(os.listdir(home)) == names, "refused, and something is left")
            return False, 1
        works(program("ask", home/"lab"), "ask")
        works(program("status", home/"lab"), "status")
        return True, 3


# counting

def loaders(base, own_base):
    "Of each loader: a function from a generator to (input, judge)"
    out = {}
    for name, make in POOLS.items():
        out[name] = lambda rng, make=make: (make(rng), judge_pool)
    out["results for tell"] = lambda rng: (results_table(rng),
                                           lambda case, *a: judge_results(case, base, *a))
    for part in PARTS:
        out[f"{part} changed"] = lambda rng, part=part, make=None: (
            changed_part(part)(rng, own_base),
            lambda data, *a: judge_part(part, data, own_base, *a))
    out["journal.db crafted"] = lambda rng: (
        journals(rng, own_base), lambda data, *a: judge_part("journal.db", data, own_base, *a))
    out["large or no file"] = lambda rng: (pick(rng, LARGE), judge_large)
    return out


def play(name, make, seed, thorough=8):
    "One input of one loader: dict(accepted, calls, broken, text)"
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    if name == "large or no file": case, judge = LARGE[seed % len(LARGE)], judge_large
    else: case, judge = make(rng)
    try: accepted, calls = judge(case, rng, seed % thorough == 0)
    except Broken as e: kind, text = e.kind, e.text
    except Exception as e:
        kind, text = "wrong" if isinstance(e, (ValueError, OSError)) else "traceback", where(e)
    else: return dict(seed=seed, accepted=accepted, calls=calls, broken="", text="", input="")
    shown = repr(case) if not callable(case) else getattr(case, "__name__", "")
    return dict(seed=seed, accepted=True, calls=1, broken=kind, text=text, input=f"{shown:.1600}")


def fuzz(name, seeds, home):
    "Inputs of one loader, in a process of their own; a list of what `play` returns"
    base, own_base = Path(home)/"six", Path(home)/"own"
    if not base.exists(): six(base)
    if not own_base.exists(): own(own_base)
    make, found, left = loaders(base, own_base)[name], [], list(seeds)
    def work(write):
        most = os.sysconf("SC_PAGE_SIZE")*int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (most + 4*FREE,)*2)
        for seed in left: write(json.dumps(play(name, make, seed)))
    while left:
        done = [json.loads(line) for line in watched(*fork(work))]
        if len(done) < len(left):
            why = "the process ended, or had to be ended"
            done.append(dict(seed=left[len(done)], accepted=True, calls=1, broken="hang", text=why,
                             input=LARGE[left[len(done)] % len(LARGE)].__name__
                             if name == "large or no file" else ""))
        found, left = found + done, left[len(done):]
    return found


LOADERS = [*POOLS, "results for tell", *(f"{p} changed" for p in PARTS), "journal.db crafted",
           "large or no file"]


def count(found, **names):
    "One row of the table; where an input is a sequence, its calls are taken or refused"
    broken, each = Counter(f["broken"] for f in found), [f for f in found if not f["broken"]]
    no = sum(f.get("refused", not f["accepted"]) for f in each)
    all_of_them = sum(f["calls"] if "refused" in f else 1 for f in each)
    return dict(names, inputs=len(found), calls=sum(f["calls"] for f in found),
                taken=all_of_them - no, refused=no, lost=broken["lost"],
                tracebacks=broken["traceback"],
                wrong=sum(broken[k] for k in ("wrong", "memory", "hang")))
