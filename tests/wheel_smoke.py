"Run against the installed wheel, outside the source tree: the public API in a few lines."
import numpy as np
import gnn_bandits
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.ntk import ntk

assert "site-packages" in gnn_bandits.__file__, gnn_bandits.__file__
X = GraphDomain.erdos_renyi(5, 4, 0.5, 3, np.random.default_rng(0))
K = ntk((X.h @ X.h.mT).clamp(-1, 1), L=2)
assert K.shape == (5, 4, 4) and ntk(1.0, L=2) == 1
print(f"gnn_bandits {gnn_bandits.__version__} from the wheel: {X}")
