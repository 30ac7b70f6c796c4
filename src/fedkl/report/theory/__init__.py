"""The page on theory: every claim checked, and what follows from it, in figures and examples."""

from fedkl.report.theory.page import write_theory_report

__all__ = ["write_theory_report"]
