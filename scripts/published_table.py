"""Write nbs/results/published.csv: the end points of the paper's regret figures, as cited numbers.

Usage: python scripts/published_table.py FOLDER
(FOLDER has the digitised curves: panel, algorithm, t, mean, lower, upper; see nbs/34_figures.ipynb)
"""
import sys
from pathlib import Path

from gnn_bandits.core import write_table
from gnn_bandits.paper.figures import PUBLISHED, published_rows

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"published.csv"

if __name__ == "__main__":
    if len(sys.argv) != 2: sys.exit(__doc__)
    write_table(TABLE, [row for name in PUBLISHED for row in published_rows(name, sys.argv[1])])
