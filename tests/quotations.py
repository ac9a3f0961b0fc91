"Is a quotation verbatim? The paper's LaTeX is not in the project; tests read it where it is near."
import os
from pathlib import Path

import pytest


def latex() -> str:
    "The paper's source: the file GNN_BANDITS_PAPER names, or one in a folder shared/paper above."
    named = os.environ.get("GNN_BANDITS_PAPER")
    found = [Path(named)] if named else [file for up in Path(__file__).resolve().parents
                                         for file in sorted((up/"shared"/"paper").glob("*.tex"))]
    if not found: pytest.skip("the paper's LaTeX is not here; GNN_BANDITS_PAPER may name the file")
    return found[0].read_text(encoding="utf-8")


def is_verbatim(source: str, quotation: str, line: int) -> bool:
    "Whether the quotation begins in that line of the source, up to white space."
    first, *more = source.split("\n")[line - 1:line + 5]
    first, words = " ".join(first.split()), " ".join(quotation.split())
    return 0 <= " ".join([first, *" ".join(more).split()]).find(words) < len(first)
