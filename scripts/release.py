"""Build what is released, the same bytes every time.

    python scripts/release.py dist            sdist and wheel of the tracked files, into dist/
    python scripts/release.py dist --twice    the same; built again elsewhere, and compared

Times are those of the last commit, names are sorted and owners left out, so that anybody can build
a release again and compare checksums. The environment needs setuptools and wheel, no network.
"""
import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def git(*words):
    "What git says about this project"
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True,
                          text=True).stdout


def copied(folder):
    "The tracked files as they are in the working tree, in an empty folder"
    for name in git("ls-files", "-z").split("\0"):
        if not name or not (ROOT/name).is_file(): continue
        (folder/name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT/name, folder/name)


def repacked(path, when):
    "Rewrite a source archive with sorted names, one time and no owners"
    with tarfile.open(path) as old:
        files = {m.name: old.extractfile(m).read() for m in old.getmembers() if m.isfile()}
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, when) as zipped, \
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as new:
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(files[name]), when, 0o644
            new.addfile(info, io.BytesIO(files[name]))


def build(out):
    "sdist and wheel of the working tree; name -> checksum"
    when = int(git("log", "-1", "--format=%ct"))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        source = Path(home)/"source"
        copied(source)
        for kind in ("sdist", "wheel"):
            call = f"from setuptools import build_meta; build_meta.build_{kind}({str(home)!r})"
            done = subprocess.run([sys.executable, "-c", call], cwd=source, capture_output=True,
                                  text=True, env=os.environ | {"SOURCE_DATE_EPOCH": str(when)})
            if done.returncode: sys.exit(f"the {kind} could not be built: {done.stderr}")
        made = sorted(p for p in Path(home).iterdir() if p.is_file())
        for path in made:
            if path.suffix == ".gz": repacked(path, when)
            shutil.copyfile(path, out/path.name)
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in made}


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("out", type=Path, help="folder for the files")
    cli.add_argument("--twice", action="store_true", help="build again and compare")
    args = cli.parse_args()
    first = build(args.out)
    for name, checksum in first.items(): print(checksum, name)
    if args.twice:
        with tempfile.TemporaryDirectory() as other: second = build(Path(other))
        if first != second: sys.exit(f"built again, the checksums are others: {second}")
        print(f"built twice: {len(first)} files with the same checksums")
