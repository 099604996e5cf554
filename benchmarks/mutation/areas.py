"""What is mutated: for each area its source files, and the tests that mirror them, cheap ones first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Area:
    """Patterns of files, below src/fedns and below tests."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]

    def source_files(self, root: Path) -> list[str]:
        return _files(root, "src/fedns", self.sources)

    def test_files(self, root: Path) -> list[str]:
        return _files(root, "tests", self.tests)


AREAS = {
    "guard": Area(
        (
            "federation/site/guard.py",
            "federation/rules/*.py",
            "federation/site/levels.py",
            "federation/site/concentration*.py",
            "federation/site/explain.py",
            "federation/permissions.py",
            "federation/site/secret_seed.py",
            "federation/site/rehearsal.py",
        ),
        ("federation/site/test_*.py", "attacks/test_*.py", "studies/inference/test_refusals.py"),
    ),
    "budget": Area(
        (
            "federation/site/budget.py",
            "federation/site/service.py",
            "federation/site/answering.py",
            "federation/site/memory.py",
            "federation/site/metrics.py",
        ),
        (
            "federation/site/test_*.py",
            "federation/test_full_disk.py",
            "federation/coordinator/test_opening.py",
            "federation/coordinator/test_resume.py",
            "attacks/test_requests.py",
            "attacks/test_opening.py",
            "attacks/test_differencing.py",
        ),
    ),
    "schema": Area(
        (
            "studies/design/*.py",
            "studies/handshake/*.py",
            "studies/questions/*.py",
            "studies/tables/column_rule.py",
            "studies/tables/recognition.py",
            "studies/tables/transforms/*.py",
            "studies/checking.py",
            "studies/serving/*.py",
            "studies/site_lines.py",
        ),
        (
            "studies/handshake/test_*.py",
            "studies/questions/test_*.py",
            "studies/test_study.py",
            "studies/test_tables.py",
            "studies/test_fit.py",
            "studies/design/test_*.py",
            "studies/tables/test_*.py",
            "studies/serving/test_*.py",
            "studies/test_draft.py",
            "studies/test_federated.py",
            "cli/test_study_commands.py",
            "studies/fitting/test_*.py",
            "reports/test_what_left.py",
            "attacks/test_opening.py",
        ),
    ),
    "transports": Area(
        ("federation/transports/**/*.py", "federation/protocol/*.py", "federation/coordinator/link.py"),
        (
            "federation/transports/**/test_*.py",
            "federation/coordinator/test_link.py",
            "federation/coordinator/test_opening.py",
            "federation/coordinator/test_bad_messages.py",
            "federation/coordinator/test_absence.py",
            "federation/test_engines_alike.py",
            "federation/test_provision.py",
            "federation/test_keys.py",
            "federation/test_troubles.py",
            "attacks/test_nvflare_administration.py",
        ),
    ),
    "command-line": Area(
        (
            "cli/*.py",
            "federation/doctor.py",
            "federation/site_command.py",
            "federation/config.py",
            "studies/outputs.py",
            "reports/page.py",
            "runs/results.py",
        ),
        (
            "cli/test_*.py",
            "reports/test_escapes.py",
            "studies/test_reference_levels.py",
            "federation/test_config.py",
            "federation/test_doctor.py",
            "federation/coordinator/test_endings.py",
            "reports/test_fit_page.py",
            "reports/test_what_left.py",
            "federation/test_troubles.py",
        ),
    ),
    "meter": Area(
        (
            "core/messages/ledger.py",
            "core/cohort.py",
            "core/history.py",
            "core/run.py",
            "models/evaluation.py",
            "federation/coordinator/cohort.py",
            "reports/run_page.py",
            "simulation/answering.py",
        ),
        (
            "core/test_*.py",
            "simulation/test_simulator.py",
            "simulation/test_memory.py",
            "federation/coordinator/test_report.py",
            "federation/coordinator/test_cohort.py",
            "federation/coordinator/test_absence.py",
            "federation/coordinator/test_endings.py",
            "federation/coordinator/test_watching.py",
            "studies/test_fit.py",
        ),
    ),
}


def _files(root: Path, folder: str, patterns: tuple[str, ...]) -> list[str]:
    found = [path for pattern in patterns for path in sorted((root / folder).glob(pattern))]
    return list(dict.fromkeys(path.relative_to(root).as_posix() for path in found))
