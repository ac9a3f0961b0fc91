"""Write nbs/results/ntk_oracle.csv: values of neural-tangents at cosines u for L hidden layers.

Needs the `oracle` extra. The committed table stands in for the library where it is not installed;
tests/oracle checks that the library still says the same.
"""
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
from neural_tangents import stax  # noqa: E402

from gnn_bandits.core import write_table  # noqa: E402

COSINES = np.unique(np.concatenate([np.linspace(-1, 1, 21), [-0.999, 0.99, 0.999, 0.999999]]))
TABLE = Path(__file__).parent.parent/"nbs"/"results"/"ntk_oracle.csv"

def kernel_fn(L, d):
    "The infinite network of L hidden ReLU layers in the paper's parametrisation, d inputs"
    dense = lambda scale: stax.Dense(1, W_std=np.sqrt(scale), b_std=None, parameterization="ntk")
    layers = [dense(d)]
    for _ in range(L): layers += [stax.Relu(), dense(2)]
    return stax.serial(*layers)[2]

def neural_tangents(u, L):
    "Its tangent kernel at cosines u, not normalised"
    u = np.asarray(u, dtype=np.float64)
    y = np.stack([u, np.sqrt(1 - u**2)], 1)
    return np.asarray(kernel_fn(L, 2)(np.array([[1.0, 0.0]]), y, "ntk"))[0]

if __name__ == "__main__":
    rows = [dict(u=u, L=L, ntk=v) for L in (1, 2, 3, 4)
            for u, v in zip(COSINES.tolist(), neural_tangents(COSINES, L).tolist())]
    write_table(TABLE, rows, digits=None)
