"Campaigns that an earlier version wrote open, and ask for what they asked for then."
import zipfile

import pytest

import stored

# (campaign, event) -> why this version asks for something else, on purpose
CHANGED = {}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {p.name: p for p in stored.unpack(tmp_path_factory.mktemp("stored"))}


def names():
    with zipfile.ZipFile(stored.ARCHIVE) as z: files = z.namelist()
    return sorted({f.split("/")[0] for f in files})


def test_there_are_ten_of_different_kinds():
    assert len(names()) >= 10


@pytest.mark.parametrize("name", names())
def test_a_stored_campaign_asks_for_the_same(folders, tmp_path, name):
    rows = stored.asked_again(folders[name], tmp_path/name)
    assert rows
    other = {(name, seq): (then, now) for seq, then, now in rows if then != now}
    assert {k: v for k, v in other.items() if k not in CHANGED} == {}
    assert {k for k in CHANGED if k[0] == name} <= {*other}, "nothing changed there after all"
