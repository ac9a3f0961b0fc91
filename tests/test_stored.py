"Campaigns that an earlier version wrote open, and ask for what they asked for then."
import zipfile

import pytest

import stored


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
    asks, wrong = stored.differences(folders[name], tmp_path/name)
    assert asks and wrong == []
