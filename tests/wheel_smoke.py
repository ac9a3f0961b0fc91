"Run against the installed wheel, outside the source tree: own graphs, ask, tell, ask again, watch."
from importlib.metadata import files

import networkx as nx
import numpy as np

from gnn_bandits import GraphDomain, Watch, __file__, __version__, make_algorithm
from gnn_bandits.core import templates

assert "site-packages" in __file__, __file__
assert not [f for f in files("gnn_bandits") if "project" in f.parts], "the wheel has project code"
assert {"py.typed", "__init__.pyi", "campaigns.pyi"} <= {f.name for f in files("gnn_bandits")}
assert "Parameters" in make_algorithm.__doc__ and "Examples" in make_algorithm.__doc__
rng = np.random.default_rng(0)
graphs = [nx.gnp_random_graph(6, 0.4, seed=i) for i in range(30)]
for g in graphs: nx.set_node_attributes(g, {v: rng.standard_normal(3) for v in g}, "x")
domain = GraphDomain.from_networkx(graphs, features="x")
alg = make_algorithm("GNN-UCB", domain, model="gntk", rng=rng)
first = alg.ask()
alg.tell(first, nx.average_clustering(graphs[first]))
second = alg.ask()
assert 0 <= first < 30 and 0 <= second < 30 and alg.t == 1
assert Watch(alg).html.count("<script>") == 1      # templates, styles and scripts are there
pages = {"report.html.jinja", "watch.html.jinja", "ledger.html.jinja", "report.js", "ledger.css"}
assert pages <= set(templates().list_templates()), templates().list_templates()
print(f"gnn_bandits {__version__} from the wheel: {domain}, asked for {first}, then {second}")
