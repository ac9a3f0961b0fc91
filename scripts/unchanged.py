"""Run a command and fail if it changes files: `unchanged.py PATH ... -- COMMAND ...`

It compares contents before and after, so it also works in a tree with uncommitted edits."""
import hashlib
import subprocess
import sys
from pathlib import Path


def contents(paths):
    "The hash of every file below `paths`, byte code and checkpoints left out"
    below = [f for p in map(Path, paths) for f in (p.rglob("*") if p.is_dir() else [p])]
    files = [f for f in below if f.is_file()]
    return {f: hashlib.sha256(f.read_bytes()).hexdigest() for f in files
            if not {"__pycache__", ".ipynb_checkpoints"} & set(f.parts)}


def main(argv):
    if "--" not in argv: sys.exit(__doc__)
    at = argv.index("--")
    paths, command = argv[:at], argv[at + 1:]
    before = contents(paths)
    subprocess.run(command, check=True)
    after = contents(paths)
    changed = sorted(str(f) for f in before.keys() | after.keys() if before.get(f) != after.get(f))
    if changed:
        sys.exit(f"`{' '.join(command)}` changed {', '.join(changed)}; commit what it wrote")


if __name__ == "__main__":
    main(sys.argv[1:])
