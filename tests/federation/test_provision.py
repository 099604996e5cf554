"""A federation folder: keys, files, and what happens when it is written again."""

import stat

import pytest
from cryptography import x509

from fedns.core.errors import ConfigError
from fedns.federation.config import SiteConfig, read_experiment
from fedns.federation.permissions import Permissions
from fedns.federation.provision import init_federation


def private_keys(folder):
    found = [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    return {path.relative_to(folder): path.read_bytes() for path in found}


def test_the_folder_has_what_everyone_needs_and_its_files_can_be_read(engine, tmp_path):
    init_federation(tmp_path / "f", engine, ["north", "south"], "localhost:9092")
    experiment = read_experiment(tmp_path / "f" / "coordinator" / "experiment.toml")
    assert (
        experiment.sites == ("north", "south") and experiment.engine == engine and (experiment.home / "credentials").is_dir()
    )
    for name in experiment.sites:
        site = SiteConfig.read(tmp_path / "f" / "sites" / name / "site.toml")
        assert site.name == name and site.credentials.is_dir() and site.permit == Permissions()
        assert "fedns site site.toml" in (site.folder / "README.md").read_text()


def test_a_site_is_told_to_install_what_its_engine_needs(tmp_path):
    for engine, wanted in (("flower", ".whl[flower]'"), ("loopback", ".whl'")):
        init_federation(tmp_path / engine, engine, ["north"], "localhost:9092")
        assert wanted in (tmp_path / engine / "sites" / "north" / "README.md").read_text()


def test_with_a_study_everybody_gets_it_and_nobody_chooses_a_method(engine, tmp_path):
    init_federation(tmp_path / "f", engine, ["north", "south"], "localhost:9092", 'formula = "y ~ x"\nfamily = "gaussian"\n')
    folders = [tmp_path / "f" / "coordinator", *(tmp_path / "f" / "sites" / name for name in ("north", "south"))]
    assert all((folder / "study.toml").read_text().startswith('formula = "y ~ x"') for folder in folders)
    assert "method" not in (folders[0] / "experiment.toml").read_text() and read_experiment(folders[0] / "experiment.toml")
    assert "target" not in (folders[1] / "site.toml").read_text() and SiteConfig.read(folders[1] / "site.toml")
    assert "fedns check study.toml" in (folders[1] / "README.md").read_text()
    assert "fedns fit coordinator/study.toml --federation ." in (tmp_path / "f" / "README.md").read_text()


def test_a_site_gets_its_own_private_key_and_nobody_elses(engine, tmp_path):
    init_federation(tmp_path / "f", engine, ["north", "south"], "localhost:9092")
    north, south = (private_keys(tmp_path / "f" / "sites" / name) for name in ("north", "south"))
    assert len(north) == len(south) == 1
    assert set(north.values()).isdisjoint(south.values())
    assert set(north.values()).isdisjoint(private_keys(tmp_path / "f" / "coordinator").values())
    for path in north:
        assert not (tmp_path / "f" / "sites" / "north" / path).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)


def test_written_again_with_another_site_it_keeps_keys_and_edited_files(engine, tmp_path):
    init_federation(tmp_path / "f", engine, ["north"], "localhost:9092")
    before = private_keys(tmp_path / "f" / "sites" / "north")
    edited = tmp_path / "f" / "sites" / "north" / "site.toml"
    edited.write_text(edited.read_text().replace("rounds = 200 ", "rounds = 7 "))
    init_federation(tmp_path / "f", engine, ["north", "south"], "localhost:9092")
    assert private_keys(tmp_path / "f" / "sites" / "north") == before
    assert SiteConfig.read(edited).permit.rounds == 7
    assert (tmp_path / "f" / "sites" / "south" / "site.toml").is_file()


@pytest.mark.parametrize(
    ("sites", "server", "sentence"),
    [
        (["north"], "host:\u00b2", "the server must be given as host:port"),
        ([], "localhost:9092", "needs sites"),
        (["a", "a"], "localhost:9092", "each with its own name"),
        *((["a"], address, "host:port") for address in ("localhost", "host:", ":9000", "host:port", "host:-1", "")),
        (["a/b"], "localhost:9092", "a/b"),
    ],
)
def test_what_cannot_be_provisioned_is_said_in_a_sentence(engine, sites, server, sentence, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        init_federation(tmp_path / "f", engine, sites, server)


def test_a_new_certificate_for_flowers_server_comes_from_the_same_authority(tmp_path):
    pytest.importorskip("flwr")
    folder = tmp_path / "f"
    init_federation(folder, "flower", ["north"], "localhost:9092")
    credentials = folder / "coordinator" / "credentials"
    authority, certificate = (credentials / "authority.crt").read_bytes(), (credentials / "server.crt").read_bytes()
    (folder / "authority" / "coordinator" / "server.crt").unlink()
    init_federation(folder, "flower", ["north"], "elsewhere.example:9092")
    assert (credentials / "authority.crt").read_bytes() == authority != certificate
    assert (credentials / "server.crt").read_bytes() != certificate
    issuer = x509.load_pem_x509_certificate(authority)
    renewed = x509.load_pem_x509_certificate((credentials / "server.crt").read_bytes())
    renewed.verify_directly_issued_by(issuer)
    names = renewed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "elsewhere.example" in names.get_values_for_type(x509.DNSName)
