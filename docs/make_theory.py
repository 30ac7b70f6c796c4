"""Prints the table of claims of theory.md: `python docs/make_theory.py`.

It is what `fedkl theory verify --families 2000` finds, in half a minute.
"""

from fedkl.tabular.verification import Result, verify

FAMILIES = 2000


def row(result: Result) -> str:
    """A claim and what was found, as a line of the table."""
    claim = result.claim
    tight = "" if result.tightest is None else f"{result.tightest:.2f} / {result.typical:.1f}"
    seed = "" if result.counterexample is None else f" (seed {result.counterexample})"
    cells = [f"`{claim.name}`", claim.source, f"{result.checks:,}", f"{result.violations:,}"]
    return "| " + " | ".join([*cells, tight, f"{result.verdict}{seed}"]) + " |"


def table() -> str:
    """The whole table."""
    header = "| claim | source | checks | violations | penalty / gap | verdict |"
    return "\n".join([header, "|---|---|---|---|---|---|", *map(row, verify(FAMILIES))])


if __name__ == "__main__":
    print(table())
