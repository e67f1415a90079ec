"""Dockerfile, compose files and systemd unit: they say what Holdfast understands, and give away little.

Whatever a file says about Holdfast is held against the table of settings, the project's description or a
running service. What only Docker or systemd can judge is judged by them where they are installed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest

from holdfast.edges.cli.output import exit_code
from holdfast.edges.settings.read import read_config
from holdfast.edges.settings.table import SETTINGS
from holdfast.errors import ValidationError
from holdfast.registry import engine_for
from tests.deploy.files import (
    COMPOSE,
    DEPLOY,
    ROOT,
    compose,
    dockerfile,
    health_command,
    image,
    image_variables,
    unit,
)
from tests.distribution.conftest import uv
from tests.distribution.environments import Uv, build
from tests.distribution.test_contents import project
from tests.edges.running import holdfast_up
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.edges.settings.table import Config

OLDEST: Final = {"nats": (2, 14), "postgres": (14,)}
"""The oldest releases that Holdfast works with."""
VARIABLES: Final = {name for setting in SETTINGS.values() for name in setting.variables}


LOCKS: Final = ("deploy/build.lock", "deploy/image.lock")
"""What builds the wheel of the image, and what the image runs."""
__all__ = ["uv"]


def locked(path: Path) -> dict[str, frozenset[str]]:
    """Return the hashes of each pinned package of a lock file."""
    parts = re.split(r"^(?=[a-z0-9])", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {part.split()[0]: frozenset(re.findall(r"--hash=(\S+)", part)) for part in parts if "==" in part}


def extra(name: str) -> set[str]:
    """Return what an extra asks for, with the extras that it includes."""
    found: set[str] = set()
    for one in project()["optional-dependencies"][name]:
        inner = re.fullmatch(r"holdfast-kv\[(.*)\]", one)
        found |= {one} if inner is None else set().union(*map(extra, inner[1].split(",")))
    return found


def recipe() -> list[list[str]]:
    """Return the commands that fill the image."""
    [told] = [one.text for one in dockerfile()[0] if one.name == "RUN"]
    return [part.split() for part in told.split("&&")]


def context_of(folder: Path) -> Path:
    """Copy what the ignore file lets through."""
    rules = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in rules
    for name in [rule[1:] for rule in rules if rule.startswith("!")]:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def settings(variables: Mapping[str, str]) -> Config:
    """Return what Holdfast makes of variables: each of its own must be known, and legal."""
    own = {name: value for name, value in variables.items() if name.startswith("HOLDFAST_")}
    assert own.keys() <= VARIABLES
    return read_config(environment=own)


def test_the_image_runs_as_an_ordinary_user() -> None:
    """The service is not root, has one folder of its own, and stops on the signal that it understands."""
    user, _, group = image()["USER"].partition(":")
    assert int(user) >= 10_000
    assert int(group) >= 10_000
    [made] = [one.text for one in dockerfile()[-1] if one.name == "RUN"]
    assert f"--uid {user} " in made
    assert settings(image_variables()).data_dir == image()["VOLUME"] == image()["WORKDIR"]
    assert f"chmod 0700 {image()['VOLUME']}" in made
    assert (image()["ENTRYPOINT"], image()["CMD"], image()["STOPSIGNAL"]) == (
        '["holdfast"]',
        '["up"]',
        "SIGTERM",
    )


def test_the_image_is_made_of_what_is_tested() -> None:
    """Its Python is a classifier, and every package has the version and the hashes that are tested."""
    version = re.fullmatch(r"python:(3\.\d+)-slim(?: AS \w+)?", dockerfile()[0][0].text)
    assert version is not None
    assert dockerfile()[-1][0].text == f"python:{version[1]}-slim"
    assert f"Programming Language :: Python :: {version[1]}" in project()["classifiers"]
    tested = locked(ROOT / "requirements.lock")
    for name in LOCKS:
        found = locked(ROOT / name)
        assert found
        known = {pin: hashes for pin, hashes in found.items() if not pin.startswith("setuptools==")}
        assert known.items() <= tested.items(), f"{name}: run ./dev lock"
    needed = {re.split(r"[^a-z0-9-]", one.lower())[0] for one in extra("server") | extra("postgres")}
    assert needed <= {pin.partition("==")[0] for pin in locked(ROOT / LOCKS[1])}


def test_the_image_takes_nothing_without_its_hash() -> None:
    """What comes from an index must have a hash of a lock file, and builds take nothing else from there."""
    pips = [words for words in recipe() if words[0].endswith("/pip")]
    fetching = [words for words in pips if "--no-index" not in words]
    assert [words[words.index("--requirement") + 1] for words in fetching] == list(LOCKS)
    assert all("--require-hashes" in words for words in fetching)
    for words in pips:
        assert "--no-deps" in words
        assert "--no-build-isolation" in words or "--only-binary" in words or "--no-index" in words


@pytest.mark.timeout(600)
def test_the_recipe_of_the_image_works(uv: Uv, tmp_path: Path) -> None:
    """Where a registry answers, the recipe makes a program that runs, and a wrong hash ends it."""
    places = {"/opt/": f"{tmp_path}/opt/", "/tmp/wheels": f"{tmp_path}/wheels"}
    source = context_of(tmp_path / "context")

    def done(words: list[str]) -> subprocess.CompletedProcess[str]:
        command = " ".join(words)
        for name, place in places.items():
            command = command.replace(name, place)
        return subprocess.run(
            command, shell=True, cwd=source, capture_output=True, text=True, timeout=300, check=False
        )

    for words in recipe():
        if words[:3] == ["python", "-m", "venv"]:
            place = words[3].replace("/opt/", places["/opt/"])
            made = uv("venv", "--seed", "--python", sys.executable, place)
        else:
            made = done(words)
        assert made.returncode == 0, made.stderr
    said = done(["/opt/holdfast/bin/holdfast", "--version"])
    assert (said.returncode, said.stdout.strip() != "") == (0, True), said.stderr
    for name in LOCKS:
        lock = source / name
        lock.write_text(re.sub(r"sha256:[0-9a-f]{8}", "sha256:00000000", lock.read_text(encoding="utf-8")))
    for words in recipe():
        if "--require-hashes" in words:
            refused = done([*words[:2], "--ignore-installed", *words[2:]] if words[1] == "install" else words)
            assert refused.returncode != 0
            assert "HASHES" in refused.stderr


def test_the_context_is_enough_to_build(tmp_path: Path) -> None:
    """What the ignore file lets through is all that the wheel is built from."""
    context = context_of(tmp_path / "context")
    [wheel] = build(context, tmp_path / "dist", "wheel")
    assert wheel.name.startswith("holdfast_kv-")
    for name in LOCKS:
        assert (context / name).is_file()


async def test_the_health_check_asks_the_service(tmp_path: Path) -> None:
    """The command of the image succeeds where the service is ready, and fails where none answers."""
    config, command = settings(image_variables()), health_command()
    asked = f"http://127.0.0.1:{config.http_port}/readyz"
    assert any(asked in word for word in command)
    assert image()["EXPOSE"] == str(config.http_port)
    assert config.http_host == "0.0.0.0"

    def healthy(port: int) -> bool:
        words = [word.replace(f":{config.http_port}/", f":{port}/") for word in command[1:]]
        return subprocess.run([sys.executable, *words], capture_output=True, check=False).returncode == 0

    async with holdfast_up(tmp_path) as up:
        assert healthy(up.http_port)
    assert not healthy(free_port())


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_says_what_holdfast_understands(name: str) -> None:
    """Every setting is legal; store and bus are services of the file, in releases that are new enough."""
    services: dict[str, Any] = compose(name)["services"]
    holdfast = services["holdfast"]
    config = settings(image_variables() | holdfast["environment"])
    assert config.nats is not None
    hosts = [urlsplit(url).hostname for url in (config.nats, config.db) if "://" in url]
    assert set(hosts) == services.keys() - {"holdfast"} == holdfast["depends_on"].keys()
    engine_for(config.db)
    for other, oldest in OLDEST.items():
        if other in services:
            [release] = re.findall(rf"^{other}:([\d.]+)-alpine$", services[other]["image"])
            assert tuple(map(int, release.split("."))) >= oldest
    assert (DEPLOY / holdfast["build"]["context"] / holdfast["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_gives_away_little(name: str) -> None:
    """Ports are open to this machine alone; the service has no rights, no writable root and time to stop."""
    services: dict[str, Any] = compose(name)["services"]
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    for service in ("holdfast", "nats"):
        found = services[service]
        assert (found["read_only"], found["cap_drop"]) == (True, ["ALL"])
        assert found["security_opt"] == ["no-new-privileges:true"]
        assert found["restart"] == "unless-stopped"
    assert services["holdfast"]["stop_grace_period"] == "60s"
    assert services["holdfast"]["init"] is True


def test_one_writer_for_a_file_and_several_for_a_database() -> None:
    """SQLite has one instance and a volume; PostgreSQL has several and wants a password."""
    alone, shared = (compose(name) for name in COMPOSE)
    service = alone["services"]["holdfast"]
    assert "deploy" not in service
    [volume] = service["volumes"]
    assert volume.partition(":")[0] in alone["volumes"]
    assert settings(service["environment"]).db.startswith(f"{volume.partition(':')[2]}/")
    assert volume.partition(":")[2] == image()["VOLUME"]
    assert shared["services"]["holdfast"]["deploy"]["replicas"] == 2
    assert "ports" not in shared["services"]["holdfast"]  # two of them can't have the same
    text = (DEPLOY / COMPOSE[1]).read_text(encoding="utf-8")
    assert text.count("${HOLDFAST_POSTGRES_PASSWORD:?") == 2


def test_the_unit_says_what_holdfast_understands() -> None:
    """Its command and its variable are Holdfast's, and its folders are those that systemd makes for it."""
    service = unit()["Service"]
    variable, _, folder = service["Environment"].partition("=")
    assert settings({variable: folder}).data_dir == f"/var/lib/{service['StateDirectory']}"
    assert folder == service["WorkingDirectory"]
    program, verb, option, file = shlex.split(service["ExecStart"])
    assert (program.rpartition("/")[2], verb, option) == ("holdfast", "up", "--config")
    assert file.startswith(f"/etc/{service['ConfigurationDirectory']}/")
    assert service["RestartPreventExitStatus"] == str(exit_code(ValidationError("a setting is wrong")))
    assert (service["KillMode"], service["Type"], service["Restart"]) == ("mixed", "exec", "on-failure")


def test_the_unit_is_hardened() -> None:
    """An ordinary user's process: it writes to its own folder, uses the network, and does little else."""
    service = unit()["Service"]
    assert service["User"] not in ("", "root")
    assert (service["CapabilityBoundingSet"], service["ProtectSystem"]) == ("", "strict")
    assert (service["UMask"], service["StateDirectoryMode"]) == ("0077", "0700")
    for name in (
        *(
            "NoNewPrivileges",
            "ProtectHome",
            "PrivateTmp",
            "PrivateDevices",
            "PrivateUsers",
            "RestrictNamespaces",
        ),
        *("ProtectKernelModules", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectControlGroups"),
        *(
            "MemoryDenyWriteExecute",
            "LockPersonality",
            "RestrictSUIDSGID",
            "RestrictRealtime",
            "ProtectClock",
        ),
    ):
        assert service[name] == "yes", name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """Every line is known to systemd, and it finds the service little exposed."""
    path = tmp_path / "holdfast.service"
    text = (DEPLOY / "holdfast.service").read_text(encoding="utf-8")
    path.write_text(text.replace("/opt/holdfast/bin/holdfast", sys.executable))
    for check in (["verify"], ["security", "--offline=true", "--threshold=25", "--no-pager"]):
        done = subprocess.run(
            ["systemd-analyze", *check, str(path)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.parametrize(
    ("page", "files"),
    [
        ("run-in-a-container.md", ["deploy/Dockerfile"]),
        ("run-with-compose.md", [f"deploy/{name}" for name in COMPOSE]),
        ("run-under-systemd.md", ["deploy/holdfast.service"]),
    ],
)
def test_each_file_has_a_page(page: str, files: list[str]) -> None:
    """A reader of the docs finds each file with what to type."""
    text = (ROOT / "docs" / "howto" / page).read_text(encoding="utf-8")
    assert all(file in text for file in files)
