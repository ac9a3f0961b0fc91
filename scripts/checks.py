"""Checks around commands, for the Makefile.

    checks.py steps COMMAND ... -- STEP ...        run `COMMAND STEP` for every step, also after one
                                                   has failed, and list those that failed
    checks.py unchanged PATH ... -- COMMAND ...    run a command and fail if it changes files below
                                                   the paths, also in a tree with uncommitted edits
"""
import hashlib
import subprocess
import sys
from pathlib import Path


def steps(command, names):
    "Run all steps in order; one failure does not hide another."
    failed = {}
    for step in names:
        print(f"== {step}", flush=True)
        if code := subprocess.run([*command, step]).returncode: failed[step] = code
    if not failed: return print(f"== all {len(names)} checks passed")
    print(f"== {len(failed)} of {len(names)} checks failed:", flush=True)
    for step, code in failed.items(): print(f"   {' '.join(command)} {step}    (code {code})")
    sys.exit(1)


def contents(paths):
    "The hash of every file below `paths`, byte code and checkpoints left out"
    below = [f for p in map(Path, paths) for f in (p.rglob("*") if p.is_dir() else [p])]
    files = [f for f in below if f.is_file()]
    return {f: hashlib.sha256(f.read_bytes()).hexdigest() for f in files
            if not {"__pycache__", ".ipynb_checkpoints"} & set(f.parts)}


def unchanged(paths, command):
    "Run a command that should write what is there already."
    before = contents(paths)
    subprocess.run(command, check=True)
    after = contents(paths)
    changed = sorted(str(f) for f in before.keys() | after.keys() if before.get(f) != after.get(f))
    if changed:
        sys.exit(f"`{' '.join(command)}` changed {', '.join(changed)}; commit what it wrote")


def main(argv):
    what, *words = argv or [""]
    known = dict(steps=steps, unchanged=unchanged)
    if what not in known or "--" not in words or words[-1] == "--": sys.exit(__doc__)
    at = words.index("--")
    known[what](words[:at], words[at + 1:])


if __name__ == "__main__":
    try: main(sys.argv[1:])
    except KeyboardInterrupt: sys.exit(130)
