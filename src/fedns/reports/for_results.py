"""What a result asks of reports: its pages, and what they say of the machine."""

from fedns.reports.fit_page import notebook, report
from fedns.reports.page import versions
from fedns.reports.run_page import write_report
from fedns.reports.what_left import write_what_left

__all__ = ["notebook", "report", "versions", "write_report", "write_what_left"]
