"""Break the library on purpose, one small change at a time, and see which check notices.

    mutants.py map [--judges PATTERN …]                   find which check runs which line
    mutants.py play [MODULE …] [--count N] [--minutes M]  break modules; goes on with the table
    mutants.py again [MODULE …]                           play the survivors once more
    mutants.py list [MODULE …]                            survivors, and the share killed by module
    mutants.py quick [--minutes M]                        a random part of the table once more

A mutant is one change of one exported module: an operator, a comparison, a constant, a condition, a
statement left out, two arguments swapped. Checks of errors' messages are not asked for, so nothing
inside a `raise` is changed, nor docstrings, annotations, imports and `__all__`. The judges are the
tests of pytest and the cells of notebooks. A notebook defines its own module in its cells, so the
same change is made there. A mutant is judged by the checks that run its line, the quickest first,
until one fails. They play in a copy of the tree (build/mutants/tree), each in a process forked from
one that has imported torch and the like, but nothing of the package. Lines that a test runs in
another program are not noted, so a test may be left out that would have noticed.

The order of mutants is random but fixed: by the hash that names them. A hash depends on the text of
the function alone, so what was played stays played while other functions change. A mutant whose
function has changed leaves the table when its module is played again.

Verdicts: `killed` by a check that failed; `timeout` if a check worked six times as long as it
should, in seconds of the processor; `survived` if all judges passed; `unseen` if no check runs the
line; `stuck` if nothing came to an end by the clock, which may be a busy machine as well as the
mutant, and so does not count as noticed. `judges` counts the checks that were asked; those beyond
`--budget` seconds of unbroken time are not asked, and `asked` is the share that was. `reason` is
written by hand: why a survivor changes nothing that a caller could notice.

`quick` takes killed mutants of the table at random (seeded by the commit), and asks only the check
that killed each of them. A check that no longer notices what it noticed once is a failure; mutants
of functions that have changed since are counted and left out.
"""
import argparse
import ast
import contextlib
import gc
import hashlib
import importlib
import json
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import zlib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "gnn_bandits"
BUILD = ROOT/"build/mutants"
TREE = BUILD/os.environ.get("MUTANTS_TREE", "tree")     # one for each of several players
TABLE = ROOT/"nbs/results/mutants.csv"
COLUMNS = "module mutant function kind change verdict judge judges asked reason".split()
KEY, LEFT = ["module", "mutant"], ["survived", "unseen", "stuck"]
WARM = ("torch numba pandas scipy.stats scipy.special scipy.optimize scipy.linalg networkx jinja2 "
        "matplotlib.pyplot sklearn.base joblib mpmath fastcore.all rdkit.Chem sqlite3 openpyxl "
        "torch.distributed.tensor torch.testing numpy.testing hypothesis.stateful "
        "matplotlib_inline.backend_inline pytest IPython nbdev.test").split()
QUIET = ["-q", "-p", "no:cacheprovider"]
PADDING = 2000      # spaces at the end of each module: a mutant has the length of the original
# Neither the paper's wing nor the site: files that say nothing of the library's modules
ELSEWHERE = ("site package claims sweep ledger errata beside released figures studies population "
             "datasets experiments workflows codecheck tables pages checks bench").split()


# Mutants

@dataclass(frozen=True)
class Mutant:
    module: str                     # "policies"
    function: str                   # "Campaign.ask", or "" outside functions
    kind: str
    span: tuple[int, int]           # bytes of the module that are replaced
    text: str                       # by what
    lines: tuple[int, int]          # first and last line of the statement
    scope: tuple[int, int]          # first and last line of the function, or of the statement
    names: frozenset = frozenset()  # what is defined there, where using it does not run the lines
    inside: bool = True             # does the statement run when the function is called?

    @property
    def id(self):
        "Depends on the function's text and on where in it the change is."
        source, first = read(self.module), offset(self.module, self.scope[0])
        text = source[first:offset(self.module, self.scope[1] + 1)]
        what = (text, self.span[0] - first, self.span[1] - first, self.kind, self.text)
        return hashlib.sha256(repr(what).encode()).hexdigest()[:10]

    @property
    def change(self):
        a, b = self.span
        cut = lambda s: re.sub(r"\s+", " ", s if len(s) < 60 else s[:57] + "…")
        return f"{cut(read(self.module)[a:b].decode())} → {cut(self.text)}"

    def source(self):
        "The whole module, as long as the unchanged one"
        source, (a, b) = read(self.module), self.span
        changed = source[:a] + self.text.encode() + source[b:]
        return changed + b" "*(PADDING - len(changed) + len(source)) + b"\n"


def where(module): return ROOT/PACKAGE/f"{module.replace('.', '/')}.py"


@cache
def read(module): return where(module).read_bytes()


@cache
def starts(module):
    "The byte at which each line begins"
    ends = [0]
    for line in read(module).splitlines(keepends=True): ends.append(ends[-1] + len(line))
    return ends


def offset(module, line, column=0):
    "The byte of a place"
    return starts(module)[min(line - 1, len(starts(module)) - 1)] + column


SWAPS = {ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"),
         ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Is: ("is", "is not"),
         ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
         ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
         ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"), ast.Pow: ("**", "*"),
         ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.And: ("and", "or"),
         ast.Or: ("or", "and")}
OPPOSITES = {a: b for x, y in (("min", "max"), ("any", "all"), ("zeros", "ones"), ("floor", "ceil"),
                               ("argmin", "argmax")) for a, b in ((x, y), (y, x))}


class Finder(ast.NodeVisitor):
    "All changes of a module"

    def __init__(self, module):
        self.module, self.source, self.found = module, read(module), []
        self.function, self.lines, self.scope = "", (1, 1), (1, 1)
        self.names, self.inside, self.deep = frozenset(), False, False
        self.visit(ast.parse(self.source))

    def at(self, node): return offset(self.module, node.lineno, node.col_offset)
    def end(self, node): return offset(self.module, node.end_lineno, node.end_col_offset)
    def text(self, node): return self.source[self.at(node):self.end(node)].decode()

    def add(self, kind, a, b, text):
        m = Mutant(self.module, self.function, kind, (a, b), text, self.lines, self.scope,
                   self.names, self.inside)
        first, last = offset(self.module, self.scope[0]), offset(self.module, self.scope[1] + 1)
        old, new = (self.source[first:last],
                    self.source[first:a] + text.encode() + self.source[b:last])
        try: differs = meaning(new) != meaning(old)
        except SyntaxError: return
        if differs: self.found.append(m)

    def change(self, kind, node, text): self.add(kind, self.at(node), self.end(node), text)

    def between(self, kind, left, op, right):
        "Another operator between two expressions"
        if type(op) not in SWAPS: return
        old, new = SWAPS[type(op)]
        a, b = self.end(left), self.at(right)
        gap = self.source[a:b].decode()
        word = r"\b" + old.replace(" ", r"\s+") + r"\b" if old[0].isalpha() else re.escape(old)
        if m := re.search(word, gap): self.add(kind, a + m.start(), a + m.end(), new)

    # what is visited, and what is passed over

    def visit_Module(self, node):
        for child in node.body: self.statement(child)

    def visit_Import(self, node): pass
    visit_ImportFrom = visit_Raise = visit_JoinedStr = visit_Import

    def statement(self, node):
        "A statement; functions, classes and blocks hold others"
        before = self.function, self.lines, self.scope, self.names, self.inside, self.deep
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        blocks = [b for name in ("body", "orelse", "finalbody") for b in getattr(node, name, [])]
        blocks += [s for h in getattr(node, "handlers", []) for s in h.body]
        head = min((b.lineno for b in blocks), default=node.end_lineno + 1) - 1
        self.lines = node.lineno, max(node.lineno, head)
        if not self.deep: self.scope = first, node.end_lineno
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)): self.define(node, blocks)
        elif isinstance(node, ast.ClassDef):
            self.function, self.names = node.name, frozenset([node.name])
            for b in blocks: self.statement(b)
        elif not self.skipped(node):
            if not self.deep: self.names = self.names | targets(node)
            self.left_out(node)
            note = node.annotation if isinstance(node, ast.AnnAssign) else None
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.expr, ast.withitem)) and child is not note:
                    self.visit(child)
            for b in blocks: self.statement(b)
        self.function, self.lines, self.scope, self.names, self.inside, self.deep = before

    def skipped(self, node):
        "Texts, lists of names, imports, and what only raises"
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        listed = not self.inside and "__all__" in targets(node)
        if isinstance(node, ast.Raise): self.change("raise left out", node, "pass")
        return text or listed or isinstance(node, (ast.Import, ast.ImportFrom, ast.Raise))

    def define(self, node, blocks):
        label = owner(node) or self.function
        compiled = any("njit" in ast.unparse(d) for d in node.decorator_list)
        if not self.deep:
            self.function = f"{label}.{node.name}" if label else node.name
            self.names = frozenset([node.name]) if compiled else frozenset()
            inside = not compiled
        else: inside = self.inside
        self.inside, self.deep = False, True
        for default in filter(None, [*node.args.defaults, *node.args.kw_defaults]):
            self.visit(default)
        self.inside = inside
        for b in blocks: self.statement(b)

    def left_out(self, node):
        call = isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await))
        place = (ast.Attribute, ast.Subscript)
        kept = isinstance(node, ast.Assign) and all(isinstance(t, place) for t in node.targets)
        if call or kept or isinstance(node, (ast.AugAssign, ast.Delete)):
            self.change("left out", node, "pass")
        if isinstance(node, (ast.Break, ast.Continue)): self.change("left out", node, "pass")
        if isinstance(node, ast.Return) and node.value and self.text(node.value) != "None":
            self.change("returns None", node.value, "None")
        if isinstance(node, (ast.If, ast.While)):
            self.change("condition", node.test, f"(not ({self.text(node.test)}))")
        if isinstance(node, ast.AugAssign) and type(node.op) in SWAPS:
            self.between("operator", node.target, node.op, node.value)

    def generic_visit(self, node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.expr, ast.keyword, ast.comprehension)): self.visit(child)

    def visit_comprehension(self, node):
        for test in node.ifs: self.change("condition", test, f"(not ({self.text(test)}))")
        self.generic_visit(node)

    def visit_BinOp(self, node):
        texts = [isinstance(s, ast.JoinedStr) or isinstance(s, ast.Constant)
                 and isinstance(s.value, str) for s in (node.left, node.right)]
        if not any(texts): self.between("operator", node.left, node.op, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        for a, b in zip(node.values, node.values[1:]): self.between("and/or", a, node.op, b)
        self.generic_visit(node)

    def visit_Compare(self, node):
        sides = [node.left, *node.comparators]
        for a, op, b in zip(sides, node.ops, sides[1:]): self.between("comparison", a, op, b)
        for side in sides:
            if isinstance(side, ast.Constant) and isinstance(side.value, str):
                self.change("constant", side, repr("X" + side.value))
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        if isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
            if not isinstance(node.operand, ast.Constant):
                self.change("sign", node, f"({self.text(node.operand)})")
        self.generic_visit(node)

    def visit_IfExp(self, node):
        self.change("condition", node.test, f"(not ({self.text(node.test)}))")
        self.generic_visit(node)

    def visit_Constant(self, node):
        value = node.value
        if value is True or value is False: self.change("constant", node, repr(not value))
        elif type(value) is int: self.change("constant", node, str(value + 1))
        elif type(value) is float: self.change("constant", node, repr(2*value if value else 1.))

    def visit_Call(self, node):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else \
            node.func.id if isinstance(node.func, ast.Name) else ""
        if name in OPPOSITES:
            self.add("opposite", self.end(node.func) - len(name.encode()), self.end(node.func),
                     OPPOSITES[name])
        if len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
            a, b = node.args[:2]
            gap = self.source[self.end(a):self.at(b)].decode()
            self.add("arguments", self.at(a), self.end(b), self.text(b) + gap + self.text(a))
        if name != "warn": self.generic_visit(node)

    def visit_Slice(self, node):
        for side in filter(None, (node.lower, node.upper)): self.change("slice", side, "")
        self.generic_visit(node)


@lru_cache(64)
def meaning(text): return ast.dump(ast.parse(textwrap.dedent(text.decode())))


def owner(node):
    "The class that a method is attached to by `@patch`"
    patched = any("patch" in ast.unparse(d) for d in node.decorator_list)
    return ast.unparse(node.args.args[0].annotation) if patched and node.args.args else ""


def targets(node):
    "Names that a statement assigns"
    to = {ast.Assign: lambda: node.targets, ast.AnnAssign: lambda: [node.target],
          ast.AugAssign: lambda: [node.target]}.get(type(node), list)()
    return frozenset(n.id for t in to for n in ast.walk(t) if isinstance(n, ast.Name))


@cache
def mutants(module):
    "All mutants of a module by their name, in an order that is random and fixed"
    return {m.id: m for m in sorted(Finder(module).found, key=lambda m: m.id)}


# Which check runs which line

class Lines:
    "Notes which lines of the package are run, and by whom"

    def __init__(self, tree):
        below = sorted((tree/PACKAGE).rglob("*.py"))
        self.seen = {str(f): set() for f in below}
        self.names = {str(f): str(f.relative_to(tree/PACKAGE).with_suffix("")).replace("/", ".")
                      for f in below}

    def __call__(self, frame, event, arg):
        seen = self.seen.get(frame.f_code.co_filename)
        if seen is None: return None
        seen.add(frame.f_lineno)
        return self.line

    def line(self, frame, event, arg):
        if event == "line": self.seen[frame.f_code.co_filename].add(frame.f_lineno)
        return self.line

    @contextlib.contextmanager
    def watch(self):
        "Lines run inside, by module"
        import threading
        for seen in self.seen.values(): seen.clear()
        sys.settrace(self), threading.settrace(self)
        try: yield
        finally: sys.settrace(None), threading.settrace(None)

    def result(self): return {self.names[f]: sorted(s) for f, s in self.seen.items() if s}


def plugin(judges=None, lines=None, begin=lambda name, seconds: None, done=None):
    "For pytest: which tests to run, in which order, and what to note of each"
    import pytest

    class Plugin:
        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items):
            if judges is not None:
                items[:] = sorted((i for i in items if i.nodeid in judges),
                                  key=lambda i: judges[i.nodeid])

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(self, item, nextitem):
            begin(item.nodeid, judges[item.nodeid] if judges is not None else 0)
            self.outcome, at = set(), time.process_time()
            with lines.watch() if lines else contextlib.nullcontext(): ended = yield
            if done: done(item.nodeid, time.process_time() - at, self.outcome)
            return ended

        def pytest_runtest_logreport(self, report): self.outcome.add(report.outcome)
    return Plugin()


def test_notebook(path):
    "Run the cells of a notebook as `nbdev_test` does."
    from nbdev.config import get_config
    from nbdev.test import test_nb
    return test_nb(path, skip_flags=get_config().tst_flags.split(), showerr=False)[0]


def make_tree():
    "A copy of the clone, its modules padded, so that numba's compiled loops stay valid"
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout.splitlines()
    for name in files:
        new, old = TREE/name, ROOT/name
        if not old.is_file(): continue
        text = old.read_bytes()
        if new.suffix == ".py" and new.parts[len(TREE.parts)] == PACKAGE:
            text += b" "*PADDING + b"\n"
        if new.is_file() and new.read_bytes() == text: continue
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(text)
    for f in list(TREE.rglob("*.py")):
        if str(f.relative_to(TREE)) not in files: f.unlink()
    return TREE


def warm():
    "Import what is not ours, once for all forks."
    os.environ.setdefault("MPLBACKEND", "Agg")
    for name in WARM:
        with contextlib.suppress(ImportError): importlib.import_module(name)
    if "torch" in sys.modules: sys.modules["torch"].set_num_threads(1)
    if "numba" in sys.modules:              # the compiler is set up once, too
        sys.modules["numba"].njit(lambda x: x + 1.)(2.)
    gc.freeze()                             # and a fork need not look for garbage in all this


def fork(work, log, seconds=None):
    "Run `work(say)` in a process of its own; the lines it said, and how it ended"
    out, to = os.pipe()
    if not (child := os.fork()):
        try:
            os.setsid(), os.close(out)
            sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(sink, 1), os.dup2(sink, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.environ.update(PYTHONPATH=str(TREE), REQUIRE_BROWSER="0",
                              PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
            os.chdir(TREE)
            sys.path[:] = [str(TREE), *(p for p in sys.path if p not in (
                "", str(ROOT), str(ROOT/"scripts"), str(TREE)))]
            work(lambda **line: os.write(to, (json.dumps(line) + "\n").encode()))
            os._exit(0)
        except BaseException:      # also SystemExit: a fork must not go on as its parent
            import traceback
            traceback.print_exc()
            os._exit(70)
    os.close(to)
    text, until = b"", time.monotonic() + seconds if seconds else None
    while True:
        left = max(0, until - time.monotonic()) if until else None
        if not select.select([out], [], [], left)[0]: break
        if not (more := os.read(out, 1 << 16)): break
        text += more
        if b'"end"' in more: break
    late = until is not None and time.monotonic() >= until
    with contextlib.suppress(ProcessLookupError): os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(out)
    said = [json.loads(line) for line in text.decode().splitlines()]
    return said, late, status


def map_lines(patterns):
    "Ask every judge which lines it runs; those asked before and unchanged are not asked again."
    tree = make_tree()
    stamps = {m: stamp(where(m)) for m in Lines(tree).names.values()}   # of what is in the tree
    kept = BUILD/"map"
    kept.mkdir(parents=True, exist_ok=True)
    warm()
    tests = [f for f in sorted((tree/"tests").glob("test_*.py"))
             if f.stem.removeprefix("test_") not in ELSEWHERE]
    books = [f for f in sorted((tree/"nbs").glob("*.ipynb"))
             if any(home(m) == f.name for m in modules())]
    for f in [*tests, *books]:
        name, to = str(f.relative_to(tree)), kept/f"{f.stem}.json"
        if patterns and not any(re.search(p, name) for p in patterns) or fresh(f, to): continue
        at = time.monotonic()
        said, late, status = fork(lambda say, f=f: trace(f, tree, say), BUILD/"map.log", 3600)
        found = {s["judge"]: dict(seconds=s["seconds"], lines=s["lines"]) for s in said
                 if "judge" in s}
        run = {m: stamps[m] for j in found.values() for m in j["lines"]}
        to.write_text(json.dumps(dict(stamp=stamp(f), modules=run, judges=found)))
        print(f"{name}: {len(found)} judges, {sum(j['seconds'] for j in found.values()):.0f} s, "
              f"{time.monotonic() - at:.0f} s by the clock", flush=True)


def stamp(f): return hashlib.sha256(f.read_bytes()).hexdigest()[:16]


def fresh(f, to):
    "Whether a file was asked, and neither it nor a module that it runs has changed since"
    if not to.exists(): return False
    was = json.loads(to.read_text())
    return was["stamp"] == stamp(f) and all(
        where(m).exists() and stamp(where(m)) == s for m, s in was["modules"].items())


def trace(f, tree, say):
    "All judges in one file: seconds, and the lines they run"
    lines = Lines(tree)
    if f.suffix == ".py":
        import pytest
        done = lambda name, seconds, outcome: outcome == {"passed"} and say(
            judge=name, seconds=round(seconds, 3), lines=lines.result())
        pytest.main([str(f), *QUIET], plugins=[plugin(None, lines, done=done)])
    else:
        at = time.process_time()
        with lines.watch(): passed = test_notebook(f)
        if passed: say(judge=str(f.relative_to(tree)), lines=lines.result(),
                       seconds=round(time.process_time() - at, 3))
    say(end=True)


@cache
def known():
    "All judges: seconds and lines"
    found = {}
    for f in sorted((BUILD/"map").glob("*.json")): found |= json.loads(f.read_text())["judges"]
    return found


@cache
def runs(module):
    "The judges that run each line of a module"
    by = {}
    for name, judge in known().items():
        for line in judge["lines"].get(module, ()): by.setdefault(line, set()).add(name)
    return by


def modules():
    "The modules of the library"
    return sorted(f.stem for f in (ROOT/PACKAGE).glob("[a-z]*.py"))


@cache
def home(module):
    "The notebook that exports a module"
    found = re.search(r"File to edit: \.\./nbs/(\S+\.ipynb)", read(module).decode())
    return found and found[1]


@cache
def functions(module):
    "Outermost functions: first and last line, names they use, and whether they are compiled"
    found = []
    for node in ast.walk(ast.parse(read(module))):
        if not isinstance(node, ast.FunctionDef): continue
        used = {n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(node)
                if isinstance(n, (ast.Name, ast.Attribute))}
        compiled = any("njit" in ast.unparse(d) for d in node.decorator_list)
        found.append((node.name, node.body[0].lineno, node.end_lineno, used, compiled))
    return found


def users(names, known=frozenset()):
    "The judges that run a function in which one of these names is used"
    found, more = set(), set()
    for module in modules():
        for name, first, last, used, compiled in functions(module):
            if not names & used: continue
            if compiled: more.add(name)
            else: found |= {j for k in range(first, last + 1) for j in runs(module).get(k, ())}
    return found | (users(more, known | names) if more - known - names else set())


def judges(m):
    "The checks that run what a mutant changes, each with its seconds, the quickest first"
    if m.inside: asked = range(m.lines[0], m.lines[1] + 1)
    elif m.names: asked = ()
    else: asked = range(m.scope[0], m.scope[1] + 1)
    found = {j for line in asked for j in runs(m.module).get(line, ())}
    if not m.inside and m.names: found |= users(set(m.names))
    if home(m.module) and in_notebook(m): found.add(f"nbs/{home(m.module)}")
    known_ = {j: known()[j]["seconds"] for j in found if j in known()}
    return dict(sorted(known_.items(), key=lambda p: p[1]))


def in_notebook(m):
    "The mutant's notebook, with the same change in the cell that exports the line; or None"
    lines = read(m.module)[:m.span[0]].decode().split("\n")
    marks = [i for i, line in enumerate(lines) if line.startswith("# %% ../nbs/")]
    if not marks: return None
    cell_id = lines[marks[-1]].rpartition("#")[2].strip()
    path = ROOT/"nbs"/home(m.module)
    book = json.loads(path.read_text(encoding="utf-8"))
    cell = next((c for c in book["cells"] if c.get("id") == cell_id), None)
    a, b = offset(m.module, marks[-1] + 2), m.span[0]
    begins = read(m.module)[a:m.span[1]].decode()       # the cell as exported, up to the change
    text = "".join(cell["source"]) if cell else ""
    head = re.match(r"(#\|.*\n)*\n*", text)[0] if cell else ""
    if not cell or not text[len(head):].startswith(begins): return None
    at = len(head) + len(begins)
    old = read(m.module)[b:m.span[1]].decode()
    cell["source"] = (text[:at - len(old)] + m.text + text[at:]).splitlines(keepends=True)
    return book


# Playing

def ask(m, asked, tree):
    "Verdict and judge of one mutant"
    path = tree/PACKAGE/where(m.module).relative_to(ROOT/PACKAGE)
    stat, original = path.stat(), path.read_bytes()
    for old in path.parent.glob(f"__pycache__/{path.stem}.cpython-*.pyc"): old.unlink()
    book = tree/"nbs"/home(m.module)
    page, fresh = book.read_bytes(), TREE.with_suffix(".numba")
    compiled = bool(m.names) and any(n in m.names and c for n, *_, c in functions(m.module))
    try:
        path.write_bytes(m.source())
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        if changed := in_notebook(m): book.write_text(json.dumps(changed), encoding="utf-8")
        if compiled: shutil.rmtree(fresh, ignore_errors=True)
        wall = 20*sum(asked.values()) + 300
        said, late, status = fork(lambda say: play(m, asked, compiled, fresh, say),
                                  TREE.with_suffix(".log"), wall)
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        book.write_bytes(page)
    failed = [s["failed"] for s in said if "failed" in s]
    if failed: return "killed", failed[0]
    if any("end" in s for s in said): return "survived", ""
    last = [s["begin"] for s in said if "begin" in s]
    slow = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
    verdict = "timeout" if slow else "stuck" if late else "killed"
    return verdict, last[-1] if last else "import"


def play(m, asked, compiled, fresh, say):
    "In a fork: run the judges until one fails."
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    if compiled:
        import numba
        os.environ |= dict(NUMBA_CACHE_DIR=str(fresh), NUMBA_OPT="1", NUMBA_LOOP_VECTORIZE="0")
        numba.config.reload_config()            # compiled in a hurry: it will not run for long
    limit = 12 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    def begin(name, seconds):
        say(begin=name)
        signal.setitimer(signal.ITIMER_PROF, 6*seconds + (60 if compiled else 5))
    def done(name, seconds, outcome):
        if "failed" in outcome: say(failed=name), say(end=True)
    for file, some in in_files(asked, m.module):
        if file.endswith(".ipynb"):
            begin(file, some[file])
            if not test_notebook(TREE/file):
                say(failed=file)
                break
            continue
        import pytest
        begin("import", 30)
        code = pytest.main([file, "-x", *QUIET], plugins=[plugin(some, begin=begin, done=done)])
        if code not in (0, 5):      # all passed, or no test is left
            say(failed="import")
            break
    say(end=True)


def in_files(asked, module):
    "Judges by file: first the module's own file of tests, then those that take least"
    files = {}
    for j, seconds in asked.items(): files.setdefault(j.partition("::")[0], {})[j] = seconds
    own = f"tests/test_{module}.py"
    return sorted(files.items(), key=lambda f: (f[0] != own, sum(f[1].values())))


def within(asked, budget):
    "The quickest judges whose seconds add up to the budget"
    found, total = {}, 0
    for j, seconds in asked.items():
        total += seconds
        if found and total > budget: break
        found[j] = seconds
    return found


def table():
    if TABLE.exists(): return pd.read_csv(TABLE, keep_default_na=False)
    return pd.DataFrame(columns=COLUMNS)


def note(rows):
    "Put rows into the table, in place of those of the same mutants."
    import fcntl
    with open(BUILD/"lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        both = pd.concat([table(), pd.DataFrame(rows, columns=COLUMNS)])
        both = both.drop_duplicates(KEY, keep="last").sort_values(KEY)
        temporary = TABLE.with_suffix(".part")
        both.to_csv(temporary, index=False)
        temporary.replace(TABLE)


def row(m, tree, budget, reason="", only=None):
    "Play a mutant: its row of the table"
    covering = judges(m) if only is None else only
    asked = within(covering, budget)
    verdict, judge = ask(m, asked, tree) if asked else ("unseen", "")
    share = sum(asked.values())/max(sum(covering.values()), 1e-9) if asked else 0
    return [m.module, m.id, m.function, m.kind, m.change, verdict, judge, len(asked),
            f"{share:.2f}", reason if verdict == "survived" else ""]


def forget_changed(names):
    "Leave out of the table what no longer exists."
    rows = table()
    gone = [r.module in names and r.mutant not in mutants(r.module) for r in rows.itertuples()]
    if any(gone):
        rows[[not g for g in gone]].to_csv(TABLE, index=False)
        print(f"{sum(gone)} mutants of functions that have changed left the table")


def play_modules(names, count, minutes, budget):
    "The first `count` mutants of each module that are not in the table, the modules in turn"
    tree = make_tree()
    warm()
    forget_changed(names)
    until = time.monotonic() + 60*minutes
    played = set(table().mutant)
    queues = [[m for i, m in list(mutants(name).items())[:count] if i not in played]
              for name in names]
    print({name: f"{len(q)} of {len(mutants(name))} to play" for name, q in zip(names, queues)},
          flush=True)
    while any(queues) and time.monotonic() < until:
        for queue in filter(None, queues): report(row(queue.pop(0), tree, budget))


def report(r):
    note([r])
    print(*r[:9], sep=" | ", flush=True)


def play_again(names, budget):
    "The survivors of the table once more, after checks were added"
    tree = make_tree()
    warm()
    forget_changed(names)
    rows = table()
    rows = rows[rows.module.isin(names) & rows.verdict.isin(LEFT) & (rows.reason == "")]
    for r in rows.itertuples(): report(row(mutants(r.module)[r.mutant], tree, budget, r.reason))


def shares(rows):
    "By module: how many mutants were played, and which share of them was killed"
    rows = rows.assign(killed=rows.verdict.isin(["killed", "timeout"]), same=rows.reason != "")
    by = rows.groupby("module").agg(played=("mutant", "size"), killed=("killed", "sum"),
                                    equivalent=("same", "sum"))
    by["share"] = (by.killed/(by.played - by.equivalent)).round(3)
    return by.assign(mutants=[len(mutants(m)) for m in by.index])


def quick(minutes, seed):
    "Killed mutants at random, each asked of the check that killed it"
    tree = make_tree()
    warm()
    rows = table()
    rows = rows[(rows.verdict == "killed") & (rows.judge != "import")]
    until, gone, verdicts = time.monotonic() + 60*minutes, 0, []
    for r in rows.sample(frac=1, random_state=seed).itertuples():
        if time.monotonic() > until: break
        m = mutants(r.module).get(r.mutant)
        if not m or not (tree/r.judge.partition("::")[0]).exists():
            gone += 1
            continue
        for _ in range(3):                     # two programs that race do not meet every time
            verdict = ask(m, {r.judge: 20.}, tree)[0]
            if verdict != "survived": break
        verdicts.append(verdict)
        if verdicts[-1] == "survived":
            print(f"{r.judge} no longer notices {r.module}.{r.function}: {r.change}", flush=True)
    killed, lost = verdicts.count("killed"), verdicts.count("survived")
    print(f"{killed} of {len(verdicts)} mutants were killed again by the check that killed them, "
          f"{len(verdicts) - killed - lost} came to no end in time; "
          f"{gone} others belong to functions or checks that have changed since")
    return 1 if lost else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("verb", choices=["map", "play", "again", "list", "quick"])
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--judges", nargs="*", default=[])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--budget", type=float, default=60., help="seconds of judges a mutant")
    o = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))     # the tree is put right first
    names = o.modules or modules()
    if unknown := set(names) - set(modules()): parser.error(f"no modules: {sorted(unknown)}")
    if o.verb == "map": map_lines(o.judges)
    if o.verb == "play": play_modules(names, o.count, o.minutes or 1e6, o.budget)
    if o.verb == "again": play_again(names, o.budget)
    if o.verb == "quick":
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).stdout
        sys.exit(quick(o.minutes or 2, zlib.crc32(commit)))
    if o.verb == "list":
        rows = table()[lambda t: t.module.isin(names)]
        left = rows[rows.verdict.isin(LEFT)]
        for r in left.itertuples():
            print(f"{r.verdict} {r.module}.{r.function} [{r.kind}] {r.change}  "
                  f"({r.judges} judges, {r.mutant}) {r.reason}")
        print(shares(rows).to_string())


if __name__ == "__main__": main()
