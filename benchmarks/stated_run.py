"""Make a finished sweep the stated run of `fedns methods` and docs/methods.md.

fedns run configs/every_method.toml
python benchmarks/stated_run.py runs/every_method
fedns methods --markdown > docs/methods.md
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import fedns
from fedns.lab.comparison.method_pages import MEASURED_FILE

COMMAND = "fedns run configs/every_method.toml"


def main() -> None:
    with (Path(sys.argv[1]) / "table.csv").open(encoding="utf-8") as file:
        heading, *rows = list(csv.reader(file))
    target = Path(fedns.__file__).parent / "lab" / "comparison" / MEASURED_FILE
    stated = {"command": COMMAND, "cases": heading[1:], "cells": {row[0]: row[1:] for row in rows}}
    target.write_text(json.dumps(stated, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
