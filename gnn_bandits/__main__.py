"`python -m gnn_bandits` is the program `gnn_bandits`."
import sys

from gnn_bandits.cli import main

if __name__ == "__main__": sys.exit(main())
