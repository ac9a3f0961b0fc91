"""Twelve campaigns of different kinds and sizes, as an earlier version wrote them (commit 6f9e62f),
with everything they asked for in their journals: does this version ask for the same?"""
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from gnn_bandits.campaigns import Campaign
from gnn_bandits.journal import Journal

ARCHIVE = Path(__file__).parent/"data/campaigns.zip"
# (campaign, event) -> what this version asks for instead, and why
CHANGED = {("events", 6): ([48, 9, 7, 15], "a batch that straddles the random start is split")}


def unpack(to):
    "The stored campaigns as folders; returns their paths in order."
    with zipfile.ZipFile(ARCHIVE) as z: z.extractall(to)
    return sorted(p for p in Path(to).iterdir() if p.is_dir())


def asked_again(folder, to):
    "Each ask of a campaign: event, arms that were asked for, arms that are suggested now."
    shutil.copytree(folder, to)
    (to/"journal.db").unlink()
    stored, rows = Journal.open(folder/"journal.db"), []
    Journal.create(to/"journal.db", stored.header).close()
    with Campaign.open(to) as c:
        for e in stored.events():
            if e.kind == "ask":
                arms = c.suggest(len(e.data["arms"]))["arm"].tolist()
                rows.append((e.seq, e.data["arms"], arms))
            c.journal.append(e.kind, e.data, e.note)   # what happened then happens again
    return rows


def differences(folder, to):
    "How many asks were played again, and those that are neither as then nor as changed since."
    rows = asked_again(folder, to)
    wanted = [CHANGED.get((folder.name, seq), (then,))[0] for seq, then, _ in rows]
    return len(rows), [(seq, want, now) for (seq, _, now), want in zip(rows, wanted) if now != want]


def main():
    "Print what is asked for otherwise, and count it."
    total = other = 0
    with tempfile.TemporaryDirectory() as tmp:
        for folder in unpack(Path(tmp)/"stored"):
            asks, wrong = differences(folder, Path(tmp)/f"again-{folder.name}")
            total, other = total + asks, other + len(wrong)
            for seq, want, now in wrong:
                print(f"{folder.name}, event {seq}: {want} expected, {now} asked for")
    for (name, seq), (_, why) in CHANGED.items(): print(f"changed in {name}: event {seq}, {why}")
    print(f"{total} asks, {other} differ, {len(CHANGED)} changed on purpose")
    return other


if __name__ == "__main__": sys.exit(bool(main()))
