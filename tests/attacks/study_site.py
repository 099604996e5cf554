"""A site with a table of people, which anybody may open studies over."""

import hashlib
import json

import numpy as np
import pandas as pd
from tests.attacks.attacker import Refused
from tests.federation.in_process import run_of

from fedns.cli.serving import site_service
from fedns.core.messages.encoding import WIRE_PRECISIONS, Envelope, decode, encode
from fedns.federation.config import DataSource, SiteConfig
from fedns.federation.protocol.packets import ANSWER, ASK, OPEN, Packet
from fedns.studies.design.agreement import Agreement
from fedns.studies.questions.asking import Point
from fedns.studies.questions.information import Information
from fedns.studies.study import Study

ROWS, COLUMNS = 60, ("age", "dose", "weight")


class StudySite:
    """People with a number each, which is what an attacker knows of them; all were seen for a year."""

    def __init__(self, folder, permissions):
        folder.mkdir()
        random = np.random.default_rng(4)
        self.table = pd.DataFrame({name: random.normal(size=ROWS) for name in COLUMNS})
        self.table["number"] = np.arange(1, ROWS + 1)
        self.table["ward"] = np.arange(ROWS) % 6  # ten people each
        self.table["bed"] = np.minimum(np.arange(ROWS) // 4, 14)  # four people each
        self.table["days"] = 365.0
        self.table.to_csv(folder / "rows.csv", index=False)
        self.people, self.runs = self.table[list(COLUMNS)].to_numpy(), 0
        self.folder, self.mark = folder, hashlib.sha256((folder / "rows.csv").read_bytes()).hexdigest()[:32]
        self.config = SiteConfig("site-0", "flower", folder, DataSource("rows.csv"), permit=permissions)
        self.restart()

    def restart(self):
        self.service = site_service(self.config)

    def study(self, formula, **changes):
        return json.dumps({"formula": f"{formula} ~ age + dose + weight", **changes})

    def gradient_at_zero(self, text, width):
        """Of a study's mean loss, times its rows, with an agreement of the attacker's own."""
        agreed = Agreement(Study.from_json(text).digest, centres=dict.fromkeys(COLUMNS, (0.0, 1.0))).to_json()
        self.open(text, agreed)
        point = encode(Point(np.zeros(width)), Envelope(1, handler="information"), WIRE_PRECISIONS["float64"])
        return ROWS * np.asarray(decode(Information, self.send(ASK, point, 2))[0].gradient)

    def open(self, text, agreed="", method="gd"):
        self.runs += 1
        self.send(OPEN, run_of(method, 1, loss="squared", study=text, agreement=agreed).agreed(), 1)

    def send(self, kind, body, exchange):
        run = self.runs.to_bytes(16, "big")
        reply = Packet.decode(self.service.answer(Packet(kind, run, 0, exchange, 0, 1, body).encode()))
        if reply.kind != ANSWER:
            raise Refused(reply.body.decode())
        return reply.body


def binomial(site, column, values):
    event = [str(value) for value in values]
    others = [str(value) for value in sorted(set(site.table[column])) if str(value) not in event]
    text = site.study(column, family="binomial", outcome={"event": event, "non_event": others})
    return site.gradient_at_zero(text, 4)
