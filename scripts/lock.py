"""Rewrite constraints.txt: every package of the two environments and of the remaining extras.

Run by `make lock`. To move to newer versions, delete the lines of constraints.txt that hold them
back, `make clean`, `make lock`, then `make test oracle`."""
import json
import re
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parent.parent/"constraints.txt"
HEADER = """\
# Exact versions of this reproduction's own runs; every install of the project uses them (pip -c).
# Written by `make lock`. The ranges that the library itself accepts are in settings.ini.
"""


def frozen(python):
    "What is installed beside `python`"
    command = [python, "-m", "pip", "freeze", "--all", "--exclude-editable"]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split("==") for line in out.stdout.splitlines() if "==" in line]


def planned(python, *requirements):
    "What pip would add for `requirements`"
    command = [python, "-m", "pip", "install", "-q", "--dry-run", "--report", "-",
               "-c", str(CONSTRAINTS), *requirements]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [p["metadata"] for p in json.loads(out.stdout)["install"]]
    return [(p["name"], p["version"]) for p in found]


if __name__ == "__main__":
    main, oracle = sys.argv[1:]
    pins = {}
    extras = planned(main, ".[molecules,qm9,parquet,cluster,release,peers]")
    for name, version in [*frozen(main), *frozen(oracle), *extras]:
        key, version = re.sub(r"[-_.]+", "-", name).lower(), version.split("+")[0]
        if key in ("pip", "gnn-bandits"): continue
        if pins.setdefault(key, version) != version:
            sys.exit(f"{name} has two versions: {pins[key]} and {version}")
    CONSTRAINTS.write_text(HEADER + "".join(sorted(f"{k}=={v}\n" for k, v in pins.items())))
