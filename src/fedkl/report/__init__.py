"""From run directories to tables, figures and one page that shows them.

`load_runs` reads runs and comparisons once; `write_report`, `print_table` and `records` show what
it read: on a page, to people and to machines.
"""

from fedkl.report.page import write_report
from fedkl.report.runs import load_runs
from fedkl.report.table import print_table, records

__all__ = ["load_runs", "print_table", "records", "write_report"]
