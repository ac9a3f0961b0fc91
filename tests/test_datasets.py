"The paper's data sets: names, hashes, files, action sets, refusals."
import dataclasses
import io

import numpy as np
import pytest
import torch

from gnn_bandits.core import pack_arrays, unpack_arrays
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.paper.datasets import (DATASETS, PAPER_REWARD, RELEASED_REWARD, Dataset,
                                        DatasetSpec, action_set, dataset)

rng = np.random.default_rng
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", DATASETS)
def test_datasets(name):
    spec = DATASETS[name]
    assert spec.n == 10_000 and spec.name == name and DatasetSpec.from_json(spec.to_json()) == spec
    data = dataset(name, n=8)
    assert data.domain.h.shape == (8, spec.N, spec.d) and data.f.isfinite().all()
    assert torch.equal(dataset(name, n=6).domain.h, data.domain.h[:6])


def test_dataset_hashes():
    "Pinned: a change of the stream or of the spec is a change of the data sets"
    assert len(DATASETS) == 17 and "N100_p0.05_d100" not in DATASETS
    spec = DatasetSpec(5, 0.05, 10, n=6)
    assert DatasetSpec(5, 0.05, 10, n=7).hash != spec.hash
    domains = {dataset(DatasetSpec(5, 0.2, 3, n=5, seed=s, reward=r)).domain_hash()
               for s in (0, 1) for r in (PAPER_REWARD, RELEASED_REWARD)}
    assert len(domains) == 2
    assert dataset(spec).domain_hash() == PINNED["domain"]
    assert DATASETS["N20_p0.2_d10"].hash == PINNED["spec"]


PINNED = dict(domain="aa1462d7816a34760effcba4f834ec4ed17fb00db70c0a08d9525ba9d4e80fa1",
              spec="f3b478ab2b605efc206dacb92c206f26f7d66368d3c5c76cfce07ce69e0bfa75")


def test_save_and_load(tmp_path):
    for reward in (PAPER_REWARD, RELEASED_REWARD):
        data = dataset("N5_p0.2_d10", n=7, seed=2, reward=reward)
        file = data.save(tmp_path/"sub"/"x.npz")
        back = Dataset.load(file)
        assert back.spec == data.spec and torch.equal(back.f, data.f)
        assert torch.equal(back.domain.h, data.domain.h) and data.agrees(back)
        assert not data.agrees(dataclasses.replace(back, f=back.f + 1e-6))
        assert file.read_bytes() == data.save(file).read_bytes()
    with pytest.raises(FileNotFoundError): Dataset.load(tmp_path/"none.npz")


def test_damaged_forged_and_foreign_files_are_refused(tmp_path):
    "Each with a ValueError that says what is wrong, so that a store makes the data set again"
    data, file = dataset("N5_p0.2_d10", n=7, seed=2), tmp_path/"x.npz"
    meta, arrays = unpack_arrays(data.save(file))
    other = dict(meta, spec=meta["spec"].replace('"seed":2', '"seed":3'))
    huge = dict(meta, spec=meta["spec"].replace('"n":7', '"n":1000000000'))
    without = lambda *names: {k: v for k, v in arrays.items() if k not in names}
    buffer = io.BytesIO()
    np.savez(buffer, spec=np.zeros(3, np.uint8), checksum=np.zeros(3, np.uint8)) # former format
    for content, said in ((pack_arrays(meta, **arrays | {"f": arrays["f"][:-1]}), "do not belong"),
                          (pack_arrays(other, **arrays), "other bits"),
                          (pack_arrays(dict(meta, domain="x"), **arrays), "other bits"),
                          (pack_arrays(huge, **arrays), "fewer graphs"),
                          (pack_arrays(meta, **without("labels")), "no 'labels' in it"),
                          (pack_arrays({}, **arrays), "no 'spec' in it"),
                          (pack_arrays(dict(meta, spec=3), **arrays), "not the spec"),
                          (pack_arrays(meta, **arrays)[:-30], "not a zip"),
                          (buffer.getvalue(), "another kind"), (b"", "not a zip")):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=f"cannot read a data set.*{said}"): Dataset.load(file)
    parts = dict(np.load(io.BytesIO(pack_arrays(meta, **arrays))))
    np.savez(file, **{**parts, "f": parts["f"] + 1})
    with pytest.raises(ValueError, match="checksum"): Dataset.load(file)


def test_too_many_graphs_are_refused_before_work():
    "Seen before: a traceback from numpy after gigabytes had been taken"
    with pytest.raises(ValueError, match="100000000 graphs of 20 nodes .* ask for fewer graphs"):
        dataset("N20_p0.2_d10", n=100_000_000)


def test_action_set():
    X, f = GraphDomain.erdos_renyi(14, 5, 0.4, 4, rng(0)), torch.arange(14.)
    G, g, arms = action_set(X, f, 14, rng(0))
    assert sorted(arms.tolist()) == list(range(14))
    assert torch.equal(G.h, X.h[arms]) and torch.equal(g, arms.double())
    assert torch.equal(action_set(X, f, 5, rng(1))[2], action_set(X, f, 5, rng(1))[2])
    good = dict(domain=X, f=f, size=3, rng=rng(0))
    for bad, said in ((dict(size=15), "at most 14"), (dict(size=1.5), "size"),
                      (dict(rng=1), "Generator"), (dict(f=f[:3]), "14 arms and 3 rewards")):
        with pytest.raises(ValueError, match=said): action_set(**{**good, **bad})


def test_unknown():
    for bad in ("N20_p0.2_d11", "", 3, None):
        with pytest.raises(ValueError, match="expected a DatasetSpec or one of"): dataset(bad)
    with pytest.raises(ValueError, match="RewardOptions"): dataset("N5_p0.2_d10", n=6, reward="x")
    with pytest.raises(ValueError, match="expected n"): dataset("N5_p0.2_d10", n=-6)
    names = {f"N{N}_p{p}_d{d}" for N in (5, 20, 100) for p in (0.05, 0.2, 0.95) for d in (10, 100)}
    assert set(DATASETS) == names - {"N100_p0.05_d100"}
