"""From run directories to tables, figures and one page that shows them."""

from fedkl.report.page import write_report
from fedkl.report.runs import load_runs
from fedkl.report.table import print_table

__all__ = ["load_runs", "print_table", "write_report"]
