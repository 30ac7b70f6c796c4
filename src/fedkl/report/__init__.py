"""From run directories to tables, figures and one page that shows them.

`load_runs` reads a run or a comparison once; `write_report` and `print_table` show what it read.
"""

from fedkl.report.page import write_report
from fedkl.report.runs import load_runs
from fedkl.report.table import print_table

__all__ = ["load_runs", "print_table", "write_report"]
