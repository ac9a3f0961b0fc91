"""Write codecheck.yml: every table of results with the command that makes it, the last commit that
changed it, when, and its checksum; in the form of a CODECHECK manifest.

    python scripts/codecheck.py            write codecheck.yml, and nbs/results/provenance.csv, from
                                           which pages read commands and commits
    python scripts/codecheck.py --check    say what does not agree with the files; exit code 1 if
                                           something does not

Tables have to be committed first, since the manifest names their commits. It knows the commands
from where they are defined: scripts/tables.py, the stages of `gnn_bandits reproduce`, the long
measurements of `gnn_bandits bench`; `OTHERS` below has the rest.
"""
import argparse, hashlib, json, subprocess, sys

import pandas as pd
import yaml
from tables import RESULTS, ROOT, registry

from gnn_bandits.core import write_atomically, write_table
from gnn_bandits.paper.figures import STAGES
from gnn_bandits.project.bench import LONG

MANIFEST, PROVENANCE = ROOT/"codecheck.yml", RESULTS/"provenance.csv"
FOLDER = ("published", "released_published", "released_first") # Need digitised curves
OTHERS = {"bench.json": "make bench", "processors.csv": "make processors",
          "boiling_points.csv": "by hand, boiling points at normal pressure as in handbooks",
          "mutants.csv": "make mutants",
          "faults.csv": "python scripts/faults.py --part faults",
          "power.csv": "python scripts/faults.py --part power",
          "robustness.csv": "python scripts/faults.py --part files calls kills",
          "scale_steps.csv": "gnn_bandits bench --long million_steps",
          "tells.csv": "gnn_bandits bench --long many_tells",
          "paper_sections.csv": "by hand, from the headings of the paper",
          "verdicts_before.csv": "by hand, from nbs/results/claims.csv of two earlier commits"}
NOTEBOOKS = {"claims.csv": "claims", "claims_panels.csv": "claims", "errata.csv": "errata",
             "selected.csv": "population"} # Pages


def command(file):
    "How a table is made, or nothing if nobody said it; the file is named from nbs/results"
    name, page = file.partition(".")[0], NOTEBOOKS.get(file)
    if file.startswith("quick/"): return "gnn_bandits reproduce --quick"
    if file in OTHERS: return OTHERS[file]
    if file in LONG: return f"gnn_bandits bench --long {LONG[file][0].__name__.partition('_')[0]}"
    if page:
        notebook, = (ROOT/"nbs").glob(f"*_{page}.ipynb")
        return f"jupyter nbconvert --to notebook --inplace --execute nbs/{notebook.name}"
    if name in registry():
        more = " --folder FOLDER" if name in FOLDER else ""
        return f"python scripts/tables.py {name}{more}"
    if name in STAGES: return "gnn_bandits reproduce" + f" --figure {name}"*bool(STAGES[name].draw)


def outputs():
    "The tables of results, in order"
    found = (p for p in RESULTS.rglob("*") if p.is_file() and p != PROVENANCE)
    return {p.relative_to(RESULTS).as_posix(): p for p in sorted(found)}


def checksum(path): return hashlib.sha256(path.read_bytes()).hexdigest()


def git(*words):
    "What git says"
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout.strip()


def made():
    "A row for each table; stops if one has no command or is not committed"
    rows = []
    for file, path in outputs().items():
        if not (how := command(file)): sys.exit(f"how is {file} made? OTHERS in {__file__} says it")
        if git("status", "--porcelain", "--", str(path)): sys.exit(f"commit {file} first")
        commit, when = git("log", "-1", "--format=%H %aI", "--", str(path)).split()
        rows.append(dict(file=file, command=how, commit=commit, time=when, sha256=checksum(path)))
    return rows


def manifest(rows):
    "What codecheck.yml says"
    citation = yaml.safe_load((ROOT/"CITATION.cff").read_text())
    paper, who = citation["preferred-citation"], [a["name"] for a in citation["authors"]]
    machine = json.loads((RESULTS/"bench.json").read_text())["machine"]
    return {
        "version": "https://codecheck.org.uk/spec/config/1.0/",
        "paper": {"title": paper["title"], "authors": [
            {"name": f"{a['given-names']} {a['family-names']}"} for a in paper["authors"]]},
        "repository": citation["repository-code"],
        "codechecker": [{"name": name} for name in who],
        "check_time": max(r["time"] for r in rows),
        "summary": "A check by those who wrote the code; nobody else has signed it. The developers "
                   "ran each command and committed its table at the time given. A table may have "
                   "grown over several runs of its command. constraints.txt has the versions, and "
                   f"times were measured on {machine['cpu']}, {machine['cores']} cores, "
                   f"{machine['system']}.",
        "manifest": [{"file": f"nbs/results/{r['file']}"} | {k: r[k] for k in r if k != "file"}
                     for r in rows]}


def differences():
    "What codecheck.yml and provenance.csv say of files that is not so"
    said = {r["file"]: r for r in yaml.safe_load(MANIFEST.read_text())["manifest"]}
    there = {f"nbs/results/{k}": p for k, p in outputs().items()}
    out = [f"{k} is not in {MANIFEST.name}" for k in there if k not in said]
    out += [f"{k} is not there" for k in said if k not in there]
    out += [f"{k} has another checksum" for k, p in there.items()
            if k in said and checksum(p) != said[k]["sha256"]]
    rows = pd.read_csv(PROVENANCE, dtype=str).to_dict("records")
    same = {f"nbs/results/{r['file']}": r["commit"] for r in rows} == {
        k: r["commit"] for k, r in said.items()}
    return out + [f"{PROVENANCE.name} and {MANIFEST.name} disagree"]*(not same)


def main(argv=None):
    "Write or check; the exit code"
    cli = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    if cli.parse_args(argv).check:
        for line in (found := differences()): print(line)
        return int(bool(found))
    rows = made()
    write_table(PROVENANCE, pd.DataFrame(rows))
    text = yaml.safe_dump(manifest(rows), sort_keys=False, allow_unicode=True, width=100)
    write_atomically(MANIFEST, f"# Made by `python scripts/codecheck.py`.\n---\n{text}")
    print(f"{len(rows)} tables, made between {min(r['time'] for r in rows)} and "
          f"{max(r['time'] for r in rows)}")
    return 0


if __name__ == "__main__": sys.exit(main())
