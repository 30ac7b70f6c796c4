"""From run directories to tables, figures and one page that shows them.

`report` does all of it. `load_runs` reads runs and comparisons once; `write_report`, `print_table`
and `records` show what it read: on a page, to people and to machines.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from fedkl.report.api import report
from fedkl.report.page import write_report
from fedkl.report.runs import load_runs
from fedkl.report.table import print_table, records

__all__ = ["load_runs", "print_table", "records", "report", "write_report"]


class _Callable(ModuleType):
    """`fedkl.report` is this package as soon as it is imported, and a function to code that calls
    it."""

    def __call__(self, *arguments: Any, **named: Any) -> Path:
        return report(*arguments, **named)


sys.modules[__name__].__class__ = _Callable
