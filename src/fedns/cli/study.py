"""The commands of a study. Whatever is heavy is imported inside the command that needs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedns.cli.arguments import FEDERATION, MODEL, SITE, STUDY, TABLE, TABLES, expect
from fedns.cli.options import Overwrite, Quiet, make_console, option
from fedns.core.errors import ConfigError, unknown

if TYPE_CHECKING:
    from fedns.studies.tables.files.frames import Frame

SiteColumn = Annotated[str | None, option("Column that names the site of each row, in one table of all.")]
SmallestCount = Annotated[int, option("Smaller groups are neither named nor counted in the handshake.", 5)]
study_app = typer.Typer(help="Draft a study.", no_args_is_help=True)


@study_app.command()
def init(
    tables: Annotated[list[Path], typer.Argument(hidden=True)],
    outcome: Annotated[str | None, option("Column of the outcome.")] = None,
    site_column: SiteColumn = None,
    out: Annotated[Path, option("The file to write.", "study.toml", "--out", "-o")] = Path("study.toml"),
) -> None:
    """Draft a study from tables at hand.

    TABLES are files (.csv, .tsv, .parquet, .arrow, .feather), one for each site, or a folder of them. The draft fits as it
    is; its comments say what somebody has to decide.
    """
    from fedns.core.files import write_whole
    from fedns.studies.draft import draft_study, draft_text

    expect("study init", *((table, TABLES) for table in tables))
    if out.exists():
        raise ConfigError(f"{out} is there already: choose another file with --out")
    draft = draft_study(_frames(tables, site_column), outcome)
    write_whole(out, draft_text(draft), durable=False)
    typer.echo(f"{out}: {draft.study.formula}")
    for name, why in draft.left_out.items():
        typer.echo(f"  left out: {name}: {why}")
    for remark in draft.remarks:
        typer.echo(f"  decide: {remark}")


@study_app.command()
def example(folder: Annotated[Path, typer.Argument(hidden=True)] = Path("hospitals"), overwrite: Overwrite = False) -> None:
    """Write the tables of four made-up hospitals into FOLDER, as untidy as tables are."""
    from fedns.studies.example import write_example

    for path in write_example(folder, overwrite=overwrite):
        typer.echo(path)


def check(
    study: Annotated[Path, typer.Argument(hidden=True)],
    table: Annotated[Path, typer.Argument(hidden=True)],
    site: Annotated[Path | None, option("The site's file: what do the limits in it say?")] = None,
) -> None:
    """Look at one table through a study, at its site; nothing leaves.

    STUDY is the study's TOML file, TABLE the site's table. Says which rows are used and why others are not, what each column
    holds, what would leave, what the owner's limits say to that, and what stands in the way.
    """
    from fedns.federation.config import SiteConfig
    from fedns.numerics.backends.devices import on_device
    from fedns.studies.checking import check_table
    from fedns.studies.study import Study
    from fedns.studies.tables.files.frames import read_frame

    expect("check", (study, STUDY), (table, TABLE))
    if site is not None:
        expect("check --site", (site, SITE))
    config = None if site is None else SiteConfig.read(site)
    if config is not None and config.device is not None:
        on_device(config.device)
    found = check_table(Study.read(study), read_frame(table), None if config is None else config.permit)
    for heading, lines in (found.sections | ({"in the way": found.reasons} if found.reasons else {})).items():
        typer.echo(heading)
        for line in lines:
            typer.echo(f"  {line}")
    if found.reasons:
        raise typer.Exit(1)
    typer.echo(f"{table.name} fits the study")


def fit(
    study: Annotated[Path, typer.Argument(hidden=True)],
    tables: Annotated[list[Path] | None, typer.Argument(hidden=True)] = None,
    federation: Annotated[Path | None, option("Folder of `fedns init-federation`: fit over its sites instead.")] = None,
    site_column: SiteColumn = None,
    smallest_count: SmallestCount = 5,
    out: Annotated[Path, option("Folder of the results.", "runs/fit")] = Path("runs/fit"),
    standard_errors: Annotated[str, option("model, HC0 or HC1 (robust), or site (clustered by site).", "model")] = "model",
    unconverged: Annotated[
        bool, option("Standard errors and p values also of a fit that has not converged.", False, "--unconverged")
    ] = False,
    resume: Annotated[bool, option("Go on with the fit over sites that was interrupted.", False, "--resume")] = False,
    metrics_port: Annotated[int | None, option("Of a fit over sites: serve metrics on this loopback port.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Fit a study over tables on this machine, each a site of its own; or over real sites.

    STUDY is the study's TOML file. TABLES are one file for each site, a folder of them, or one table with --site-column.
    """
    from fedns.federation.coordinator.state import needing_disk
    from fedns.studies.federated import forget_fit
    from fedns.studies.fit import fit_study
    from fedns.studies.inference.estimates import KINDS
    from fedns.studies.outputs import refuse_earlier_fit, write_fit
    from fedns.studies.study import Study

    if (federation is None) == (not tables):
        raise ConfigError("give either tables, or --federation with the folder of a federation")
    if resume and federation is None:
        raise ConfigError("--resume is for fits over real sites: a fit on this machine is started again")
    expect("fit", (study, STUDY), *((table, TABLES) for table in tables or []))
    if standard_errors not in KINDS:  # which is better known before a fit over sites than after it
        raise ConfigError(unknown("kind of standard errors", standard_errors, KINDS))
    replaces = overwrite or resume  # what was interrupted may have begun to write
    refuse_earlier_fit(out, overwrite=replaces)
    if federation is not None:
        expect("fit --federation", (federation, FEDERATION))
        from fedns.cli.federation_commands import fit_over_sites

        found = fit_over_sites(
            Study.read(study),
            federation,
            out,
            resume=resume,
            overwrite=overwrite,
            metrics_port=metrics_port,
            quiet=quiet,
            console=make_console(),
        )
    else:
        found = fit_study(Study.read(study), _frames(tables or [], site_column), smallest_count=smallest_count)
    if unconverged:
        found = found.although_unconverged()
    with needing_disk(out):  # a fit over sites goes on from its checkpoint, until its results are written
        path = write_fit(found, out, standard_errors, overwrite=replaces)
    if federation is not None:
        forget_fit(out)
    if not quiet:
        typer.echo(found.summary(standard_errors))
        typer.echo(f"report: {path}")
    if not found.converged or found.caveats:
        raise typer.Exit(1)


def predict(
    model: Annotated[Path, typer.Argument(hidden=True)],
    table: Annotated[Path, typer.Argument(hidden=True)],
    out: Annotated[Path, option("File of the predictions.", "predictions.csv")] = Path("predictions.csv"),
    standard_errors: Annotated[str, option("model, HC0 or HC1 (robust), or site (clustered by site).", "model")] = "model",
    site: Annotated[str | None, option("Of a Cox model: survival with the baseline hazard of this site.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Predict the outcomes of new rows, with intervals; a row that the model cannot speak of is refused by itself.

    MODEL is the model.json of a fit. TABLE is a file with its columns; the outcome is not needed.
    """
    from fedns.core.files import write_whole
    from fedns.runs.results import Results
    from fedns.studies.inference.table import reference_pairs
    from fedns.studies.prediction import Model

    expect("predict", (model, MODEL), (table, TABLE))
    results = Results(out.parent, f"prediction {out.name}")
    results.refuse([out.name], overwrite=overwrite)
    loaded = Model.load(model)
    if loaded.not_converged:
        typer.echo(f"the model's fit has not converged: {loaded.not_converged}")
    found = loaded.predict(table, kind=standard_errors) if site is None else loaded.survival(table, site)
    results.begin([out.name])
    write_whole(out, found.to_csv(), durable=False)
    refused = [(row, reason) for row, reason in enumerate(found.refusals, start=1) if reason]
    for row, reason in refused[:10]:
        typer.echo(f"row {row}: {reason}")
    for pair in reference_pairs(loaded.design):
        typer.echo("  ".join(pair))
    typer.echo(f"{len(found.refusals) - len(refused)} of {len(found.refusals)} rows predicted: {out}")
    if refused:
        raise typer.Exit(1)


def what_left(
    config: Annotated[Path, typer.Argument(hidden=True)],
    out: Annotated[Path, option("Folder of the page.", ".")] = Path(),
    overwrite: Overwrite = False,
) -> None:
    """Say in plain words what has left a site so far, from its own ledger, and write it as a page.

    CONFIG is the site's TOML file.
    """
    from fedns.federation.config import SiteConfig
    from fedns.federation.site.service import LEDGER_FILE
    from fedns.reports.what_left import RESULTS, what_left_text, write_what_left
    from fedns.runs.results import Results
    from fedns.studies.site_lines import WHAT_LEFT_FILE, read_lines

    expect("what-left", (config, SITE))
    site, results = SiteConfig.read(config), Results(out, RESULTS)
    results.refuse([WHAT_LEFT_FILE], overwrite=overwrite)
    found = read_lines(site.folder / site.state / LEDGER_FILE, site.name)
    for name, lines in found.sites.items():
        typer.echo(what_left_text(name, lines))
    results.begin([WHAT_LEFT_FILE])
    typer.echo(f"page: {write_what_left(found, out, 'All runs so far', results)}")


def _frames(tables: list[Path], site_column: str | None) -> dict[str, Frame]:
    """The table of each site, by the name of its file or the value in the column of sites."""
    from fedns.studies.tables.files.frames import read_frame, split_frame

    paths = [path for table in tables for path in (_inside(table) if table.is_dir() else [table])]
    if site_column is not None:
        if len(paths) != 1:
            raise ConfigError(f"--site-column is for one table of all sites, {len(paths)} were given")
        return split_frame(read_frame(paths[0]), site_column)
    names = [path.name.split(".")[0] for path in paths]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(
            f"two tables are called '{twice[0]}': a site is named after its file, so files need different names"
        )
    return {name: read_frame(path) for name, path in zip(names, paths, strict=True)}


def _inside(folder: Path) -> list[Path]:
    from fedns.studies.tables.files.frames import SUFFIXES

    found = sorted(path for path in folder.iterdir() if SUFFIXES & set(path.suffixes))
    if not found:
        raise ConfigError(f"the folder {folder} holds no table: expected {', '.join(sorted(SUFFIXES))}")
    return found


COMMANDS = (check, fit, predict, what_left)
