"""The package as type checkers should read it: methods that `@patch` attaches stand in their class.

    python scripts/typed.py check              write the package into build/typed and run mypy there
    python scripts/typed.py write FOLDER       only write it
    python scripts/typed.py stubs FOLDER       the stubs (.pyi) that the wheel brings, into a folder

A type checker reads a file and does not run it. It sees neither a method that fastcore's `patch`
attaches to its class nor a public name that `gnn_bandits` loads when it is first used. Here each
such method is moved to the end of its class, line by line, and each such name is imported; nothing
else changes. `setup.py` makes the stubs from the same text, so this file needs nothing but the
standard library, and mypy for `check` alone.
"""
import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT/"gnn_bandits"
KINDS = {"as_prop": "@property", "cls_method": "@classmethod"}


def patched(node):
    "The decorator of a method that `patch` attaches, or an empty text; None for all else."
    for d in node.decorator_list if isinstance(node, ast.FunctionDef) else []:
        called = isinstance(d, ast.Call)
        name = d.func if called else d
        if isinstance(name, ast.Name) and name.id == "patch":
            return "".join(KINDS[k.arg] for k in d.keywords if k.value.value) if called else ""
    return None


def method(node, kind, lines):
    "The class of a method, and its lines with their numbers as they stand in that class."
    first = node.args.args[0].annotation
    owner = first.value if isinstance(first, ast.Constant) else ast.unparse(first)
    at, text = first.lineno, dict(enumerate(lines[node.lineno - 1:node.end_lineno], node.lineno))
    text[at] = text[at][:first.col_offset].rstrip(": ") + text[at][first.end_col_offset:]
    kept = ["@" + ast.unparse(d) for d in node.decorator_list if "patch" not in ast.unparse(d)]
    above = [(d, node.lineno) for d in [*kept, *[kind]*bool(kind)]]
    text = [*above, *((line, i) for i, line in text.items())]
    return owner, [("    "*bool(line) + line, i) for line, i in text]


def double(node, owner, kind):
    """The type of a name that is a class method of a class and an attribute of what it makes.

    `Prior.kernel(K)` makes a prior, and `prior.kernel` is its kernel."""
    call = ast.unparse(ast.arguments(**{**vars(node.args), "args": [
        ast.arg("self"), *node.args.args[1:]]}))
    return [f"class _{owner}_{node.name}_of_class:",
            f"    def __call__({call})->{ast.unparse(node.returns)}:",
            "        raise NotImplementedError",
            f"class _{owner}_{node.name}:",
            "    @overload",
            f"    def __get__(self, of:None, kind:object)->_{owner}_{node.name}_of_class: ...",
            "    @overload",
            f"    def __get__(self, of:object, kind:object)->{kind}: ...",
            "    def __get__(self, of:object, kind:object)->object: return of",
            f"    def __set__(self, of:object, value:{kind})->None: ..."]


def inlined(source):
    "The lines of a module with patched methods in their classes, and where each stood."
    tree, lines = ast.parse(source), source.splitlines()
    classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
    added, gone, more = {}, set(), []
    for node in tree.body:
        if (kind := patched(node)) is None: continue
        owner, text = method(node, kind, lines)
        if owner not in classes:
            raise ValueError(f"{node.name} is attached to {owner}, which is not of this module")
        for n in classes[owner].body:
            if not isinstance(n, ast.AnnAssign) or ast.unparse(n.target) != node.name: continue
            more += [(line, node.lineno) for line in double(node, owner, ast.unparse(n.annotation))]
            lines[n.lineno - 1] = f'    {node.name}:"_{owner}_{node.name}"'
            text = [(line.replace(f"def {node.name}(", f"def _{node.name}("), i)
                    for line, i in text]
        added.setdefault(classes[owner].end_lineno, []).extend([("", node.lineno), *text])
        gone |= {*range(node.decorator_list[0].lineno, node.end_lineno + 1)}
    out, more = [], more and [("from typing import overload", more[0][1]), *more]
    for i, line in enumerate(lines, 1): out += [(line, i)]*(i not in gone) + added.get(i, [])
    out += more
    return [line for line, _ in out], [i for _, i in out]


def public_imports(source):
    "The imports of the names that a package loads when they are first used, from its table."
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOME":
            table = eval(compile(ast.Expression(node.value), "_HOME", "eval"))
            return [f"from .{module} import {name} as {name}" for name, module in table.items()]
    return []


def texts():
    "Each module: its path within the package, its lines as a checker reads them, where they stood."
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name == "_modidx.py": continue
        source = path.read_text(encoding="utf-8")
        lines, origins = inlined(source)
        yield path.relative_to(PACKAGE), [*lines, *public_imports(source)], origins


def put(path, text):
    "Write a file, and the folders above it."
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write(folder):
    "Write the package as type checkers should read it; where the lines of each file stood."
    shutil.rmtree(folder/"gnn_bandits", ignore_errors=True)
    places = {}
    for name, lines, origins in texts():
        put(folder/"gnn_bandits"/name, "\n".join(lines) + "\n")
        places[f"gnn_bandits/{name.as_posix()}"] = origins + [0]*(len(lines) - len(origins))
    return places


# Stubs

def kind_of(value, annotated):
    "The type of an attribute that is set to a value, where the text tells it; else Any."
    if isinstance(value, ast.Name): return annotated.get(value.id, "Any")
    plain = ("bool", "float", "int", "str")
    said = (type(value.value).__name__ if isinstance(value, ast.Constant) else
            ast.unparse(value.func) if isinstance(value, ast.Call) else "")
    return said if said in plain else "Any"


def own_attributes(node):
    "The attributes that the methods of a class set, beside those that its body names."
    named = {getattr(n, "name", "") or ast.unparse(getattr(n, "target", n)) for n in node.body}
    found = {}
    for f in (n for n in node.body if isinstance(n, ast.FunctionDef) and n.args.args):
        me, bound = f.args.args[0].arg, {n.id for n in ast.walk(f) if isinstance(n, ast.Name)
                                         and isinstance(n.ctx, ast.Store)}
        annotated = {a.arg: ast.unparse(a.annotation) for a in [*f.args.args, *f.args.kwonlyargs]
                     if a.annotation and a.arg not in bound}
        for n in ast.walk(f):
            if isinstance(n, ast.AnnAssign): pairs = [(n.target, None, ast.unparse(n.annotation))]
            elif isinstance(n, ast.Assign):
                wide = [t.elts if isinstance(t, ast.Tuple) else [t] for t in n.targets]
                values = n.value.elts if isinstance(n.value, ast.Tuple) else [n.value]
                pairs = [(t, v, "") for ts in wide for t, v in
                         zip(ts, values if len(values) == len(ts) else [None]*len(ts))]
            else: continue
            for target, value, said in pairs:
                of, _, name = ast.unparse(target).rpartition(".")
                said = said or kind_of(value, annotated)
                if of != me or not name.isidentifier(): continue
                if found.setdefault(name, said) != said: found[name] = "Any"
    return {name: said for name, said in found.items() if name not in named}


class Stub(ast.NodeTransformer):
    "Signatures without bodies, classes with all their attributes, imports as names of the module."
    def visit_FunctionDef(self, node):
        node.body = [ast.Expr(ast.Constant(...))]
        node.decorator_list = [d for d in node.decorator_list if "njit" not in ast.unparse(d)]
        return node

    def visit_ClassDef(self, node):
        more = ast.parse("\n".join(f"{k}: {v}" for k, v in own_attributes(node).items())).body
        self.generic_visit(node)
        node.body = [*more, *node.body] or [ast.Expr(ast.Constant(...))]
        return node

    def visit_ImportFrom(self, node):
        for a in node.names if node.level else []: a.asname = a.asname or a.name
        return node

    def visit_Expr(self, node): return None

    def visit_Module(self, node):
        "Every name is there by itself: a type checker need not ask `__getattr__` for it."
        node.body = [n for n in node.body if getattr(n, "name", "") != "__getattr__"]
        return self.generic_visit(node)


def stub(lines):
    "The text of a stub: what a module holds, as a type checker needs it."
    tree = Stub().visit(ast.parse("\n".join(lines)))
    return "from typing import Any\n" + ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def stubs():
    "The stubs of the modules that cannot be read as they stand: path within the package, and text."
    for name, lines, _ in texts():
        source = (PACKAGE/name).read_text(encoding="utf-8")
        if lines != source.splitlines() and name.parts[0] != "project":
            yield name.with_suffix(".pyi"), stub(lines)


# Checks

def overrides():
    "What pyproject.toml says of some modules."
    import tomllib    # here: nothing else needs it
    config = tomllib.loads((ROOT/"pyproject.toml").read_text(encoding="utf-8"))
    return config["tool"]["mypy"]["overrides"]


def not_yet():
    "The modules whose errors mypy does not show yet."
    return sorted(m for o in overrides() if o.get("ignore_errors") for m in o["module"])


def located(said, places):
    "What mypy said, with the lines of the exported files."
    line = lambda m: f"{m[1]}:{places[m[1]][int(m[2]) - 1]}:" if m[1] in places else m[0]
    return re.sub(r"^([^:\n]+):(\d+):", line, said, flags=re.M)


def check(folder=ROOT/"build"/"typed"):
    "Run mypy over the package, and say what it was not asked."
    places = write(folder)
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT/"pyproject.toml",
               "-p", "gnn_bandits"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    print(located(run.stdout, places) + run.stderr, end="")
    ignored = sum(p.read_text(encoding="utf-8").count("# type: ignore")
                  for p in PACKAGE.rglob("*.py"))
    off = [f"{code} in {m}" for o in overrides() for code in o.get("disable_error_code", ())
           for m in o["module"]]
    waiting = not_yet()
    print(f"{len(places) - len(waiting)} of {len(places)} modules checked; lines with "
          f"`type: ignore`: {ignored}; switched off: {', '.join(off) or 'nothing'}; "
          f"not checked yet: {', '.join(waiting) or 'none'}")
    return run.returncode


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["check"]: sys.exit(check())
        case ["write", folder]: write(Path(folder))
        case ["stubs", folder]:
            for name, text in stubs(): put(Path(folder)/name, text)
        case _: sys.exit(__doc__)
