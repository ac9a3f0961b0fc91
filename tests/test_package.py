"The installed package as a whole: light imports, the command line, files that agree with each other."
import json
import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(p.stem for p in (ROOT/"gnn_bandits").glob("*.py") if not p.stem.startswith("_"))
HEAVY = {"matplotlib", "jax", "rdkit", "dask", "networkx", "sphinx", "nbdev", "sklearn", "pandas", "torch_geometric"}


def python(code, **env):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **env})


def program(*argv, cwd=ROOT):
    code = "import sys; from gnn_bandits.cli import main; sys.exit(main())"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, cwd=cwd, env=env)


@pytest.mark.parametrize("name", [None, *MODULES])
def test_imports_are_light(name):
    module = f"gnn_bandits.{name}" if name else "gnn_bandits"
    run = python(f"import sys, json, {module}; print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))")
    assert run.returncode == 0, run.stderr
    heavy = HEAVY | ({"torch", "numpy"} if name is None else set())       # the bare package imports nothing at all
    assert not heavy & set(json.loads(run.stdout)), module


def test_import_does_not_touch_global_random_state():
    code = ("import numpy as np, torch; a = np.random.get_state()[1].copy(); b = torch.get_rng_state(); "
            f"import {', '.join('gnn_bandits.' + m for m in MODULES)}; "
            "assert (np.random.get_state()[1] == a).all() and torch.equal(torch.get_rng_state(), b)")
    run = python(code)
    assert run.returncode == 0, run.stderr


def test_version_is_one_number():
    config = ConfigParser()
    config.read(ROOT/"settings.ini")
    version = config["DEFAULT"]["version"]
    assert f'__version__ = "{version}"' in (ROOT/"gnn_bandits/__init__.py").read_text()
    assert f"version: {version}" in (ROOT/"CITATION.cff").read_text()
    assert f"## {version}" in (ROOT/"CHANGELOG.md").read_text()
    assert program("--version").stdout == f"gnn_bandits {version}\n"


def test_every_requirement_is_pinned():
    config = ConfigParser()
    config.read(ROOT/"settings.ini")
    wanted = {re.split(r"[\[<>=]", r)[0].lower().replace("_", "-") for key, value in config["DEFAULT"].items()
              if key.endswith("requirements") for r in value.split()}
    lines = [x for x in (ROOT/"constraints.txt").read_text().splitlines() if x and not x.startswith("#")]
    pinned = {x.split("==")[0].lower().replace("_", "-") for x in lines}
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", x) for x in lines)
    assert wanted <= pinned, wanted - pinned


def test_reproduce_writes_pictures_and_tables(tmp_path):
    run = program("reproduce", "--quick", "--out", "here", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    files = {p.name for p in (tmp_path/"here").iterdir()}
    assert {"ntk.png", "ntk.csv", "domains.png", "domains.csv"} <= files
    again = program("reproduce", "--quick", "--out", "there", cwd=tmp_path)
    assert again.returncode == 0
    for f in (tmp_path/"here").glob("*.csv"):
        if f.name != "cost.csv": assert f.read_bytes() == (tmp_path/"there"/f.name).read_bytes()      # costs are times
    for f in (ROOT/"nbs/results/quick").glob("*.csv"):                                                # digits: `make reproduce` tells
        assert f.read_text().count("\n") == (tmp_path/"here"/f.name).read_text().count("\n")


@pytest.mark.parametrize("argv", [["nope"], ["reproduce", "--figure", "nope"], ["reproduce", "--seedz", "1"], ["reproduce", "--out"],
                                  ["bench", "--repeats", "0"], ["bench", "--repeats", "x"], ["bench", "--rows", "nope"]])
def test_bad_arguments_get_one_line_and_code_2(argv, tmp_path):
    run = program(*argv, cwd=tmp_path)
    assert run.returncode == 2 and run.stdout == "" and run.stderr.count("\n") == 1, run
    assert not list(tmp_path.iterdir())


def test_bench_runs_and_saves(tmp_path):
    run = program("bench", "--rows", "aggregation", "--repeats", "1", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    report = json.loads((tmp_path/"bench.json").read_text())
    assert {r["who"] for r in report["rows"][0]["results"]} == {"gnn_bandits", "networkx loop"}
    assert report["machine"]["versions"]["torch"]


def test_nothing_names_this_machine():
    names = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout.split()
    roots = ("/tmp/", "/root/", "/home/", "/work/")
    for name in names:
        if name.startswith("tests/") or not (ROOT/name).exists(): continue
        text = (ROOT/name).read_bytes().decode("utf-8", "ignore")
        assert not any(r in text for r in roots), name
