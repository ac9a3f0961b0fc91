"""Rewrite constraints.txt: every package of the two environments and of the remaining extras.

Run by `make lock`. To move to newer versions, delete the lines of constraints.txt that hold them
back, `make clean`, `make lock`, then `make test oracle`.

    python scripts/lock.py --lowest molecules excel    lower ends of all ranges, for `make lowest`
    python scripts/lock.py --newest molecules excel    the same packages, for `make newest`
    python scripts/lock.py --licences                  LICENCES.md, of what the library installs
"""
import configparser
import json
import re
import subprocess
import sys
from importlib import metadata
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


def ranges(extras):
    "Name and lower end of every requirement of the library and of some extras"
    config = configparser.ConfigParser(delimiters=["="])
    config.read(CONSTRAINTS.with_name("settings.ini"), encoding="utf-8")
    keys = ["requirements", *(f"{extra}_requirements" for extra in extras)]
    for wanted in " ".join(config["DEFAULT"][key] for key in keys).split():
        yield re.match(r"([\w.-]+)(?:\[.*\])?>=([\d.]+)", wanted).groups()


def installed(name, found):
    "Everything that a package brings with it, into `found`: its name -> its metadata"
    from packaging.requirements import Requirement
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found: return found
    try: about = metadata.distribution(name)
    except metadata.PackageNotFoundError: return found     # for another system
    found[key] = about.metadata
    for text in about.requires or []:
        wanted = Requirement(text)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            installed(wanted.name, found)
    return found


def licence(about):
    "What a package says about its licence"
    words = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier", [])
             if c.startswith("License ::")]
    return about.get("License-Expression") or "; ".join(words) or about.get("License", "").strip()


def licences():
    "The licences of all that `pip install gnn_bandits` brings with it, as a page"
    rows = [f"| {k} | {licence(v)} |" for k, v in sorted(installed("gnn_bandits", {}).items())]
    what = ("What `pip install gnn_bandits` installs, on Linux, with the licence that each package "
            "states. Written by `make lock`.")
    return "\n".join(["# Licences", "", what, "", "| package | licence |", "|---|---|", *rows, ""])


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    if mode == "--lowest":
        sys.exit(print(*(f"{name}=={low}.*" for name, low in ranges(rest)), sep="\n"))
    if mode == "--newest": sys.exit(print(*(name for name, _ in ranges(rest)), sep="\n"))
    if mode == "--licences":
        sys.exit(CONSTRAINTS.with_name("LICENCES.md").write_text(licences()) and None)
    main, oracle = sys.argv[1:]
    pins = {}
    extras = planned(main, ".[molecules,qm9,parquet,cluster,release,peers]")
    for name, version in [*frozen(main), *frozen(oracle), *extras]:
        key, version = re.sub(r"[-_.]+", "-", name).lower(), version.split("+")[0]
        if key in ("pip", "gnn-bandits"): continue
        if pins.setdefault(key, version) != version:
            sys.exit(f"{name} has two versions: {pins[key]} and {version}")
    CONSTRAINTS.write_text(HEADER + "".join(sorted(f"{k}=={v}\n" for k, v in pins.items())))
