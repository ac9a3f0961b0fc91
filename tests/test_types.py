"""Types: what a checker reads has every method in its class, and the wheel says it to users.

That the package itself has no type errors is checked by `make types`."""
import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gnn_bandits
from gnn_bandits.project import api
from test_checks import script

ROOT = Path(__file__).parent.parent
typed = script("typed")

SOURCE = '''\
from fastcore.basics import patch
class A:
    "A class."
    n:int
    def __init__(self, n:int, size, name="x"):
        self.n, self.size = n, size
        self.first, self.name = n, str(name)
        self.size[0] = 1
def between(): return 1

@patch
def double(
    self:A,
    k:int=2, # Times
)->int: # The product
    """Several
    lines."""
    return self.n*k

@patch(as_prop=True)
def half(self:"A")->float: return self.n/2

@patch(cls_method=True)
def of(cls:A, text:str)->A: return cls(int(text), [0])
LAST = A(1, [0])
'''


def test_methods_move_into_their_class():
    lines, origins = typed.inlined(SOURCE)
    assert len(lines) == len(origins)
    old = SOURCE.splitlines()
    for line, i in zip(lines, origins):          # a line is as it was, but for `self` and its place
        if not line.strip().startswith(("def ", "self,", "@")) and line:
            assert line.strip() == old[i - 1].strip()
    found = {}
    exec("\n".join(["from __future__ import annotations", *lines]), found)
    a = found["A"].of("6")
    assert (a.double(), a.double(3), a.half, found["LAST"].n) == (12, 18, 3., 1)
    assert [n.name for n in ast.parse("\n".join(lines)).body[1].body[2:]] == ["__init__", "double",
                                                                              "half", "of"]
    assert "patch" not in "\n".join(lines[1:])


def test_a_method_of_another_module_is_refused():
    with pytest.raises(ValueError, match="f is attached to B, which is not of this module"):
        typed.inlined("class A: pass\n@patch\ndef f(self:B): pass\n")


def test_a_stub_has_signatures_and_attributes():
    text = typed.stub(typed.inlined(SOURCE)[0])
    body = {n.name: n for n in ast.parse(text).body if isinstance(n, ast.ClassDef)}["A"].body
    said = {ast.unparse(n.target): ast.unparse(n.annotation) for n in body
            if isinstance(n, ast.AnnAssign)}
    assert said == dict(n="int", size="Any", first="int", name="str")
    assert "def double(self, k: int=2) -> int:" in text and "@classmethod" in text
    assert not re.search(r"return|Several|\* ?k", text)


def members(node):
    "The names that the body of a class has"
    names = {n.name for n in node.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    targets = [t for n in node.body if isinstance(n, (ast.Assign, ast.AnnAssign))
               for t in (n.targets if isinstance(n, ast.Assign) else [n.target])]
    return names | {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


@pytest.fixture(scope="module")
def stubs():
    return {name.as_posix(): ast.parse(text) for name, text in typed.stubs()}


def test_stubs_have_what_the_package_has(stubs):
    "Read from the running package: everything that a class has, however it came there"
    assert "__init__.pyi" in stubs and "campaigns.pyi" in stubs and "core.pyi" not in stubs
    assert not [name for name in stubs if name.startswith("project")]
    checked = 0
    for name, module in api.PUBLIC.items():
        thing = getattr(gnn_bandits, name)
        if f"{module}.pyi" not in stubs or not inspect.isclass(thing): continue
        node, = (n for n in stubs[f"{module}.pyi"].body if getattr(n, "name", "") == name)
        own = {k for k in vars(thing) if not k.startswith("_")}
        assert own <= members(node), (name, own - members(node))
        checked += len(own)
    assert checked > 150
    imported = {a.asname for n in stubs["__init__.pyi"].body
                if isinstance(n, ast.ImportFrom) and n.level for a in n.names}
    assert imported == set(api.PUBLIC)


def test_messages_name_the_exported_line():
    lines, origins = typed.inlined(SOURCE)
    at = lines.index("        return self.n*k") + 1
    said = f"gnn_bandits/a.py:{at}: error: wrong  [misc]\nother.py:3: note: x:4:\nFound 1 error\n"
    there = SOURCE.splitlines().index("    return self.n*k") + 1
    assert there != at and typed.located(said, {"gnn_bandits/a.py": origins}) == said.replace(
        f":{at}:", f":{there}:")


BOTH = '''\
from fastcore.basics import patch
class A:
    part:str # Of one that is made
    def __init__(self, part:str): self.part = part

@patch(cls_method=True)
def part(cls:A, n:int, *, more:int=1)->A: return cls("x"*n*more)
'''


def test_a_class_method_may_share_its_name_with_an_attribute(tmp_path):
    lines, origins = typed.inlined(BOTH)
    assert len(lines) == len(origins) and '    part:"_A_part"' in lines
    mypy = pytest.importorskip("mypy.api")
    program = tmp_path/"both.py"
    program.write_text("\n".join([*lines, "reveal_type(A.part(2, more=3))",
                                  "reveal_type(A('y').part)", "A.part('z')"]))
    said = mypy.run(["--config-file=", "--follow-imports=skip", "--ignore-missing-imports",
                     f"--cache-dir={tmp_path}", str(program)])[0]
    assert re.findall(r'type is "(.*)"', said) == ["both.A", "str"]
    assert re.findall(r"error: .*\[(.*)\]", said) == ["arg-type"]


def test_every_module_is_checked():
    "No module waits, and what is switched off or ignored says why"
    assert not typed.not_yet()
    off = {(code, m) for o in typed.overrides() for code in o.get("disable_error_code", ())
           for m in o["module"]}
    assert len(off) <= 4 and {m.removeprefix("gnn_bandits.") for _, m in off} <= {*api.modules()}
    lines = [line for path in typed.PACKAGE.rglob("*.py")
             for line in path.read_text(encoding="utf-8").splitlines() if "# type: ignore" in line]
    assert len(lines) <= 4, "mend the types, or raise this number with a reason"
    assert all(re.search(r"# type: ignore\[[a-z-]+\] # \w+", line) for line in lines)


PROGRAM = '''\
import numpy as np
from gnn_bandits import Campaign, Environment, GraphDomain, Prior, make_algorithm, run_bandit
from gnn_bandits.kernels import GNTK, Kernel, Overlap
domain = GraphDomain.from_networkx([], features="x")
rng = np.random.default_rng(0)
campaign = Campaign.create("here", domain, prior=Prior.gntk(domain))
alg = make_algorithm("GNN-UCB", domain, rng=rng)
env = Environment(domain, [0.5], rng=rng)
reveal_type(domain)                                        # gnn_bandits.graphs.GraphDomain
reveal_type(domain[0].h)                                   # torch._tensor.Tensor
reveal_type(Prior.gntk(domain).block([0]))                 # torch._tensor.Tensor
reveal_type(campaign.ask(2))                               # gnn_bandits.logbook.Asked
reveal_type(campaign.tell([0], [1.0]))                     # gnn_bandits.campaigns.Campaign
reveal_type(alg.ask())                                     # int
reveal_type(run_bandit(alg, env, 5))                       # gnn_bandits.bandits.History
reveal_type(0.5*GNTK(2) + Overlap(1))                      # gnn_bandits.kernels.Sum
reveal_type(GNTK(2).gram(domain))                          # torch._tensor.Tensor
reveal_type(Prior(GNTK(2), domain).kernel)                 # gnn_bandits.kernels.Kernel
reveal_type(Prior.kernel(GNTK(2).gram(domain)))            # gnn_bandits.priors.Prior
belief = Prior.gntk(domain).start(0.1).observe([0, 1], [0.5, 1.])
reveal_type(belief.mean)                                   # torch._tensor.Tensor
reveal_type(campaign.policy)                               # gnn_bandits.logbook.CampaignPolicy
class Mine(Kernel):
    def encode(self, X: GraphDomain) -> GraphDomain: return X
    def between(self, a: GraphDomain, b: GraphDomain) -> str: return ""  # error [override]
belief.observe([0], ["high"])                              # error [list-item]
campaign.ask("two")                                        # error [arg-type]
campaign.asks(2)                                           # error [attr-defined]
GraphDomain.from_networkx([], feature="x")                 # error [call-arg]
run_bandit(alg, domain, 5)                                 # error [arg-type]
from gnn_bandits import Nothing                            # error [attr-defined]
'''


def test_users_see_types(tmp_path):
    "In an environment where the package is installed as the wheel has it"
    pytest.importorskip("mypy", reason="mypy is not installed: the types that users see are not "
                                       "checked; install the extra `dev`")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path/"venv"], check=True)
    python = tmp_path/"venv/bin/python"
    place = Path(subprocess.run([python, "-c", "import site; print(site.getsitepackages()[0])"],
                                capture_output=True, text=True, check=True).stdout.strip())
    (place/"others.pth").write_text("\n".join(p for p in sys.path if p.endswith("-packages")))
    subprocess.run([sys.executable, "setup.py", "-q", "build", "--build-base", tmp_path/"build",
                    "--build-lib", place], cwd=ROOT, check=True, capture_output=True)
    assert (place/"gnn_bandits/py.typed").exists() and (place/"gnn_bandits/campaigns.pyi").exists()
    (tmp_path/"program.py").write_text(PROGRAM)
    run = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--config-file=",
                          "--python-executable", python, "program.py"],
                         cwd=tmp_path, capture_output=True, text=True,
                         env={k: v for k, v in os.environ.items() if "PYTHONPATH" not in k})
    found = dict(re.findall(r"program\.py:(\d+): (?:error|note): (.*)", run.stdout)[::-1])
    wanted = {str(i): line.split(" # ")[1].strip() for i, line in
              enumerate(PROGRAM.splitlines(), 1) if " # " in line}
    for i, text in wanted.items():
        assert found.pop(i).endswith(text.replace("error ", "") if text.startswith("error") else
                                     f'"{text}"'), (i, text, run.stdout)
    assert not found, run.stdout
    shutil.rmtree(tmp_path/"venv")
