"""The page of a reproduction: a scoreboard first, and long figures folded."""

from __future__ import annotations

import re

from fedns.lab.paper.part import ClaimVerdict, Part
from fedns.lab.paper.report import write_paper_report

SHORT, LONG = "7 rounds <= 9", "; ".join(f"set {number}: 7 rounds" for number in range(40))
VERDICTS = [
    ClaimVerdict("Table 1, a<b", "<i>x</i>", "does not hold", "", SHORT),
    ClaimVerdict("Fig. 1, claim 1", "it is fast", "holds", "", SHORT),
    ClaimVerdict("Fig. 1, claim 2", "it is small", "holds if", "one looks at digits", LONG),
]
ROWS = [["digits", "1"]]


def test_a_line_for_each_claim_leads_to_its_figures(tmp_path):
    tables = [("few", ["set", "n"], ROWS), ("many", ["set", "n"], ROWS * 30)]
    text = write_paper_report(tmp_path, [Part("Everything", tables=tables, verdicts=VERDICTS)], True, [], 1).read_text(
        "utf-8"
    )
    first, rest = text.split("<h2>", 1)
    marks = re.findall(r'<span class="mark (\w+)">(.*?)</span> <a href="#(.*?)">(.*?)</a>', first)
    assert marks == [
        ("good", "✓ holds", "fig-1-claim-1", "Fig. 1, claim 1"),
        ("partly", "◐ holds in part", "fig-1-claim-2", "Fig. 1, claim 2"),
        ("bad", "✗ does not hold", "table-1-a-b", "Table 1, a&lt;b"),
    ]
    assert re.findall(r"<b>(\d of 3)</b><span>(.*?)</span>", first) == [
        ("1 of 3", "hold"), ("1 of 3", "hold in part"), ("1 of 3", "do not hold"),
    ]  # fmt: skip
    assert all(rest.count(f'id="{anchor}"') == 1 for _, _, anchor, _ in marks)
    folds = "".join(re.findall(r"<details>.*?</details>", rest, re.DOTALL))
    assert LONG in folds and "7 rounds &lt;=" not in folds and "7 rounds &lt;= 9" in rest
    assert "many, 30 rows" in folds and "<h3>few</h3>" in rest
    assert "It holds if one looks at digits." in rest and "<i>x" not in text
