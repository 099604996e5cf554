"""The commands of a federation. Whatever is heavy is imported inside the command that needs it."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from fedns import __version__
from fedns.cli.arguments import EXPERIMENT, SITE, STUDY, expect
from fedns.cli.options import Overwrite, Quiet, log_to_console, make_console, option
from fedns.core.checked import sentence_of
from fedns.federation.transports import BUILT_IN
from fedns.runs.compare import Compare

DEFAULT_ENGINE = BUILT_IN[0].name
Engine = Annotated[str, option(f"{' or '.join(engine.name for engine in BUILT_IN)}.", DEFAULT_ENGINE)]

OWNER_ALONE = 0o077  # the umask of a site and of a coordinator: what they write, answers and keys, nobody else may read


def site(
    config: Annotated[Path, typer.Argument(hidden=True)],
    reset_budget: Annotated[
        bool, option("Forget what has left this site so far, as its owner decides; then stop.", False, "--reset-budget")
    ] = False,
) -> None:
    """Answer a coordinator about this site's rows, within what its file permits, until stopped.

    CONFIG is the site's TOML file; `fedns init-federation` writes one. What its limits mean for the rows is said first.
    """
    expect("site", (config, SITE))
    if not reset_budget:
        log_to_console()
        logging.getLogger("fedns.site").info("fedns %s reads %s", __version__, config)  # what is imported next takes a while
    from fedns.cli.serving import serve_site
    from fedns.federation.site_command import run_site

    if reset_budget:
        from fedns.federation.config import SiteConfig
        from fedns.federation.site.budget import reset_budgets

        own = SiteConfig.read(config)
        print(f"{reset_budgets(own.folder / own.state)} budgets begin anew")
        return
    os.umask(OWNER_ALONE)
    run_site(config, serve_site)


def coordinate(
    config: Annotated[Path, typer.Argument(hidden=True)],
    resume: Annotated[bool, option("Go on with the run that was interrupted.", False, "--resume")] = False,
    metrics_port: Annotated[int | None, option("Serve metrics for Prometheus on this loopback port.")] = None,
    quiet: Quiet = False,
) -> None:
    """Train over the sites of a federation.

    CONFIG is the experiment's TOML file; `fedns init-federation` writes one.
    """
    from fedns.cli.federation_commands import run_coordinator

    expect("coordinate", (config, EXPERIMENT))
    os.umask(OWNER_ALONE)
    raise typer.Exit(run_coordinator(config, resume=resume, metrics_port=metrics_port, quiet=quiet, console=make_console()))


def doctor(config: Annotated[Path, typer.Argument(hidden=True)]) -> None:
    """Look a site or a coordinator over, before any run: what is in order, and what to do about what is not.

    Lines are OK, FIX for what is yours to do, or WAIT for what comes by itself or is somebody else's to do. CONFIG is the
    site's or the experiment's TOML file.
    """
    from fedns.cli.serving import table_of
    from fedns.federation.doctor import examine

    findings = examine(config, table_of)
    for finding in findings:
        typer.echo(f"{finding.state:<4} {finding.what}{': ' if finding.fault else ''}{finding.fault}")
    raise typer.Exit(int(any(finding.state == "FIX" for finding in findings)))


def init_federation(
    folder: Annotated[Path, typer.Argument(hidden=True)],
    sites: Annotated[str, typer.Option(help="Names of the sites, separated by commas.")],
    engine: Engine = DEFAULT_ENGINE,
    server: Annotated[str, option("Host and port that sites connect to.", "localhost:9092")] = "localhost:9092",
    study: Annotated[Path | None, option("A study to fit over the sites' tables; everybody gets a copy.")] = None,
) -> None:
    """Write keys and files for a coordinator and its sites into FOLDER.

    With --study the sites' tables are fitted as it says; without, `fedns coordinate` runs a method over columns as they are.
    """
    from fedns.federation.provision import init_federation as write
    from fedns.studies.study import Study

    text = ""
    if study is not None:
        expect("init-federation --study", (study, STUDY))
        Study.read(study)  # a study that cannot be is better known before everybody has it
        text = study.read_text(encoding="utf-8")
    write(folder, engine, [name.strip() for name in sites.split(",") if name.strip()], server, text)
    typer.echo(f"{folder}: read its README.md for what goes where")


def renew(
    folder: Annotated[Path, typer.Argument(hidden=True)],
    site: Annotated[str | None, option("Make a new key for this site, whose old one is refused from then on.")] = None,
) -> None:
    """Make the certificates of a federation anew, or the key of one site; FOLDER is that of init-federation."""
    from fedns.federation.provision import renew as make_anew

    typer.echo(make_anew(folder, site))


def revoke(
    folder: Annotated[Path, typer.Argument(hidden=True)],
    site: Annotated[str, typer.Option(help="The site that is shut out.")],
) -> None:
    """Take a site's key back: a coordinator that is started afterwards refuses it. FOLDER is that of init-federation."""
    from fedns.federation.provision import revoke as take_back

    typer.echo(take_back(folder, site))


def demo_federation(
    engine: Engine = DEFAULT_ENGINE,
    sites: Annotated[int, option("Sites, each a process of its own.", 3)] = 3,
    methods: Annotated[str, option("Methods, separated by commas, or all.", "auto")] = "auto",
    dataset: Annotated[str, option("Data to give to the sites.", "digits")] = "digits",
    rounds: Annotated[int, option(sentence_of(Compare, "rounds"), 30)] = 30,
    sketch_size: Annotated[int | None, option(sentence_of(Compare, "sketch_size"), "by the effective dimension")] = None,
    wire: Annotated[str, option(sentence_of(Compare, "wire"), "float64")] = "float64",
    out: Annotated[Path | None, option("Folder of the federation.", "runs/federation-ENGINE")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Start a whole federation on this machine, with TLS and keys, train, and compare with the simulator."""
    from fedns.cli.federation_commands import methods_to_show, run_demonstration
    from fedns.lab.comparison.federation_demo import Demo

    folder = out or Path("runs") / f"federation-{engine}"
    demo = Demo(engine, folder, sites, methods_to_show(methods), dataset, rounds, wire, sketch_size, overwrite)
    if not run_demonstration(demo, quiet, make_console()):
        raise typer.Exit(1)


COMMANDS = (site, coordinate, init_federation, renew, revoke, demo_federation, doctor)
