"""The tests, the notebooks and the stored campaigns under simulated processors.

    python scripts/processors.py                 every configuration, one factor at a time
    python scripts/processors.py --only generic  some of them, by setting or factor
    python scripts/processors.py --quick         a few minutes: kernels, posteriors, campaigns and
                                                 claims on one processor other than this one
    python scripts/processors.py --list          what there is, and what this machine can execute

Compilers and libraries choose other loops for other processors. numba is told a processor by
NUMBA_CPU_NAME, torch by ATEN_CPU_CAPABILITY, OpenBLAS (numpy, scipy) by OPENBLAS_CORETYPE, and
MKL (torch) by MKL_CBWR. What this machine cannot execute is found out in a process of its own and
skipped by name. A finished configuration is a row of the table, known by the source it was run
on, so a run that was stopped goes on where it was. Ends with 1 if something failed or a stored
campaign asked for something else."""
import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT/"build"/"processors"
TABLE = ROOT/"nbs"/"results"/"processors.csv"
COLUMNS = ("factor setting machine suite passed failed skipped notebooks notebooks_failed asks "
           "asks_differ minutes commit source note").split()

def numba_cpu(name): return {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ""}

def threads(k):
    names = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"
    return dict.fromkeys(names, str(k))

PLAIN = {**numba_cpu("generic"), "ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Nehalem",
         "MKL_CBWR": "COMPATIBLE", **threads(1)}
# (factor, setting) -> environment; one factor at a time, and all of them at their plainest
CONFIGURATIONS = {
    ("machine", "as it is"): {},
    **{("numba", name): numba_cpu(name) for name in ("generic", "haswell", "skylake-avx512",
                                                     "znver4")},
    **{("torch", name): {"ATEN_CPU_CAPABILITY": name} for name in ("default", "avx2", "avx512")},
    **{("openblas", name): {"OPENBLAS_CORETYPE": name} for name in ("Nehalem", "Haswell",
                                                                    "SkylakeX")},
    ("mkl", "COMPATIBLE"): {"MKL_CBWR": "COMPATIBLE"},
    **{("threads", str(k)): threads(k) for k in (1, 2)},
    ("all", "plainest"): PLAIN}
OURS = sorted({name for env in CONFIGURATIONS.values() for name in env})

# What cannot depend on the processor: pages, files, imports, timings, kills
TESTS_LEFT_OUT = ("site", "pages", "workflows", "bench", "journal", "campaign_faults",
                  "campaign_storage", "robustness", "checks",
                  "stored")                          # the stored campaigns are counted apart
NOTEBOOKS_LEFT_OUT = ("43_journal", "44_intake", "28_troubleshooting", "37_glossary", "36_bench",
                      "52_site", "38_api", "index")
QUICK = ("core", "gntk", "ntk", "features", "relations", "posterior", "surrogate", "campaigns",
         "claims")

PROBE = """
import json, numpy as np, torch, scipy.linalg
from threadpoolctl import threadpool_info
from llvmlite import binding
from gnn_bandits.gntk import gntk
from gnn_bandits.graphs import GraphDomain
X = GraphDomain.erdos_renyi(20, 5, 0.5, 3, np.random.default_rng(0))
A = gntk(X) @ gntk(X, L=12) + np.eye(20) @ gntk(X).numpy()
np.linalg.cholesky(A.numpy() @ A.numpy().T + np.eye(20)), torch.linalg.eigh(A), scipy.linalg.qr(A)
libraries = {p["architecture"] for p in threadpool_info() if p["internal_api"] == "openblas"}
print(json.dumps(dict(torch=torch.backends.cpu.get_cpu_capability().lower(),
                      openblas=sorted(libraries), threads=str(torch.get_num_threads()),
                      numba=binding.get_host_cpu_name())))
"""


def environment(setting, cache):
    "The environment of a configuration: ours and nothing else that chooses loops."
    env = {k: v for k, v in os.environ.items() if k not in OURS}
    path = os.pathsep.join(filter(None, (str(ROOT), env.get("PYTHONPATH"))))
    env |= dict(PYTHONPATH=path, NUMBA_CACHE_DIR=str(cache), MPLBACKEND="Agg",
                REQUIRE_BROWSER="0", OMP_WAIT_POLICY="PASSIVE")     # no spinning beside others
    return env | setting


def probe(env):
    "What the libraries say of themselves under an environment, or a sentence why it cannot be."
    run = subprocess.run([sys.executable, "-c", PROBE], env=env, cwd=ROOT, capture_output=True,
                         text=True)
    if run.returncode == 0: return json.loads(run.stdout.splitlines()[-1])
    if run.returncode < 0: return f"not executable here ({signal.Signals(-run.returncode).name})"
    return f"not executable here ({run.stderr.strip().splitlines()[-1][:100]})"


def why_not(key, found, own):
    "Why a configuration need not or cannot be run; None if it can."
    if isinstance(found, str): return found
    factor, setting = key
    said = found.get(factor)
    if factor == "numba" and setting == said: return "what the machine does by itself"
    if factor == "openblas": said = " ".join(said)
    if factor not in ("torch", "openblas", "threads"): return None
    if said.lower() != setting.lower(): return f"not to be had here: {factor} says {said}"
    return "what the machine does by itself" if found[factor] == own[factor] else None


def source_hash():
    "A number for everything that a result can depend on."
    h = hashlib.sha256()
    files = [p for d, end in (("gnn_bandits", "*.py"), ("nbs", "*.ipynb"), ("tests", "*"),
                              ("nbs/results", "*.csv*"))
             for p in (ROOT/d).rglob(end) if p.is_file() and "__pycache__" not in p.parts]
    for p in sorted({*files, ROOT/"constraints.txt"} - {TABLE}):
        h.update(str(p.relative_to(ROOT)).encode() + p.read_bytes())
    return h.hexdigest()[:12]


def commit():
    "The commit, with a plus if files were changed since."
    git = lambda *a: subprocess.run(["git", *a], cwd=ROOT, capture_output=True, text=True).stdout
    changed = [f for f in git("status", "--porcelain").splitlines() if TABLE.name not in f]
    return git("rev-parse", "--short", "HEAD").strip() + "+"*bool(changed)


def machine():
    "The processor as it calls itself, and as the compiler does."
    from llvmlite import binding
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    return f"{names[0].strip() if names else sys.platform} ({binding.get_host_cpu_name()})"


def run_tests(env, log, quick):
    "Passed, failed and skipped tests, and the names of those that failed."
    names = [f"tests/test_{n}.py" for n in QUICK] if quick else ["tests", "--ignore=tests/oracle"]
    names += [] if quick else [f"--ignore=tests/test_{n}.py" for n in TESTS_LEFT_OUT]
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", *names, "-n", "2", "--dist", "loadfile",
               "--no-loadscope-reorder", "-q", f"--junitxml={report}"]
    code = tee(command, env, log)
    if not report.exists(): return 0, 1, 0, [f"pytest ended with code {code}"]
    suite = ElementTree.parse(report).getroot().find("testsuite")
    count = {k: int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped")}
    bad = [f"{c.get('classname', '').split('.')[-1]}::{c.get('name')}" for c in
           suite.iter("testcase") if c.find("failure") is not None or c.find("error") is not None]
    failed = count["failures"] + count["errors"]
    return (count["tests"] - failed - count["skipped"], max(failed, int(code != 0)),
            count["skipped"], bad)


def run_notebooks(env, log):
    "How many notebooks ran, and the names of those that failed."
    skip = "|".join(NOTEBOOKS_LEFT_OUT)
    code = tee([str(Path(sys.executable).parent/"nbdev_test"), "--n_workers", "2", "--do_print",
                "--skip_file_re", rf"^[_.]|^({skip})\.ipynb$"], env, log)
    there = [p.stem for p in (ROOT/"nbs").glob("[!_.]*.ipynb")]
    text = log.read_text(errors="replace").partition("Following Notebooks:")[2]
    bad = re.findall(r"(\w+)\.ipynb", text) or [f"nbdev_test ended with code {code}"]*bool(code)
    return len({*there} - {*NOTEBOOKS_LEFT_OUT}), bad


def run_asks(env, log):
    "How many asks of the stored campaigns were played again, and which came out otherwise."
    code = tee([sys.executable, __file__, "--asks"], env, log)
    found = re.findall(r"^(\d+) asks", log.read_text(errors="replace"), re.M)
    other = re.findall(r"^(.*, event \d+):", log.read_text(errors="replace"), re.M)
    if not found: return 0, [f"the replay ended with code {code}"]
    return int(found[-1]), other


def tee(command, env, log):
    "Run a command, its output to a file and to the screen; returns its code."
    with open(log, "w") as out, subprocess.Popen(command, env=env, cwd=ROOT, text=True,
                                                  stdout=subprocess.PIPE, errors="replace",
                                                  stderr=subprocess.STDOUT) as run:
        for line in run.stdout:
            out.write(line)
            print(line, end="", flush=True)
    return run.returncode


def play(key, setting, quick):
    "Everything under one configuration: a row of the table, without who and when."
    factor, name = key
    place = WORK/f"{factor}-{name}".replace(" ", "_")
    place.mkdir(parents=True, exist_ok=True)
    env, began = environment(setting, cache_of(setting)), time.monotonic()
    passed, failed, skipped, bad = run_tests(env, place/"pytest.log", quick)
    notebooks, broken = (0, []) if quick else run_notebooks(env, place/"notebooks.log")
    asks, other = run_asks(env, place/"asks.log")
    wrong = [*bad, *broken, *other]
    return dict(passed=passed, failed=failed, skipped=skipped, notebooks=notebooks,
                notebooks_failed=len(broken), asks=asks, asks_differ=len(other),
                minutes=round((time.monotonic() - began)/60, 1),
                note="; ".join(wrong[:5]) + (f" and {len(wrong) - 5} more" if wrong[5:] else ""))


def cache_of(setting):
    "A folder for compiled loops, one for each processor that numba is told."
    return WORK/f"numba-{setting.get('NUMBA_CPU_NAME', 'own')}"


def asked(only, quick):
    "The configurations that were asked for."
    if not only: return [("all", "plainest")] if quick else [*CONFIGURATIONS]
    words = sorted({w for k in CONFIGURATIONS for w in k})
    if unknown := {*only} - {*words}:
        sys.exit(f"unknown configuration {', '.join(sorted(unknown))}; there are: "
                 f"{', '.join(words)}")
    return [k for k in CONFIGURATIONS if {*k} & {*only}]


def read(table):
    "The rows that are there."
    if not table.exists(): return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(table, keep_default_na=False)


def write(table, rows):
    "Rows in the order of the configurations."
    order = {k: i for i, k in enumerate(CONFIGURATIONS)}
    at = [order.get((r.factor, str(r.setting)), len(order)) for r in rows.itertuples()]
    rows = rows.iloc[pd.Series(at, dtype=int).argsort(kind="stable")]
    table.parent.mkdir(parents=True, exist_ok=True)
    new = table.with_name(f".{table.name}.new")
    rows.to_csv(new, index=False, lineterminator="\n")
    os.replace(new, table)


def bad_rows(rows):
    "The rows in which something failed or was asked otherwise."
    wrong = ["failed", "notebooks_failed", "asks_differ"]
    return rows[(rows[wrong].apply(pd.to_numeric, errors="coerce").fillna(0) > 0).any(axis=1)]


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--only", nargs="+", metavar="NAME", help="settings or factors")
    p.add_argument("--quick", action="store_true", help="a few tests on one other processor")
    p.add_argument("--again", action="store_true", help="also what has a row already")
    p.add_argument("--table", type=Path, help="the table to write and to go on with")
    p.add_argument("--list", action="store_true", help="say what there is and what can be run")
    p.add_argument("--asks", action="store_true", help=argparse.SUPPRESS)
    given = p.parse_args(argv)
    if given.asks: return play_asks()
    suite = "quick" if given.quick else "full"
    table = given.table or (WORK/"quick.csv" if given.quick else TABLE)
    WORK.mkdir(parents=True, exist_ok=True)
    who = dict(machine=machine(), suite=suite, commit=commit(), source=source_hash())
    keys = asked(given.only, given.quick)
    own = probe(environment({}, cache_of({})))
    if isinstance(own, str): sys.exit(f"the package does not run here: {own}")
    rows, same = read(table), ["factor", "setting", "machine", "suite"]
    for key in keys:
        this = dict(zip(("factor", "setting"), key)) | who
        done = rows[(rows[[*same, "source"]].astype(str)
                     == pd.Series({k: this[k] for k in (*same, "source")})).all(axis=1)]
        if len(done) and not given.again and not given.list:
            print(f"== {' '.join(key)}: there already")
            continue
        env = environment(CONFIGURATIONS[key], cache_of(CONFIGURATIONS[key]))
        reason = why_not(key, probe(env), own) if key[0] != "machine" else None
        print(f"== {' '.join(key)}: {reason or 'can be run'}", flush=True)
        if given.list: continue
        row = dict(note=f"skipped: {reason}") if reason else play(key, CONFIGURATIONS[key],
                                                                 given.quick)
        rows = read(table)                           # another run may have written meanwhile
        old = (rows[same].astype(str) == pd.Series({k: this[k] for k in same})).all(axis=1)
        new = pd.DataFrame([this | row], columns=COLUMNS)
        rows = pd.concat([rows[~old].astype(object), new.astype(object)], ignore_index=True)
        write(table, rows)
        rows = read(table)
    if given.list: return 0
    mine = rows[[(r.factor, str(r.setting)) in keys and r.machine == who["machine"]
                 and r.suite == suite and r.source == who["source"] for r in rows.itertuples()]]
    show = [c for c in COLUMNS if c not in ("machine", "suite", "source", "commit")]
    print(f"== {who['machine']}, {suite}, {who['commit']}")
    print(mine[show].fillna("").to_string(index=False))
    bad = bad_rows(mine)
    if len(bad): print(f"== {len(bad)} of {len(mine)} configurations failed")
    return int(len(bad) > 0)


def play_asks():
    "The stored campaigns, in this process."
    sys.path.insert(0, str(ROOT/"tests"))
    import stored
    return stored.main()


if __name__ == "__main__":
    try: sys.exit(main())
    except KeyboardInterrupt: sys.exit(130)
