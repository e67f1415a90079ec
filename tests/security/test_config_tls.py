"""`holdfast nats config`: where the server listens, TLS, and what other programs read.

What is written is given to a real nats-server to read.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.edges.nats.server import find
from tests.docs.test_bus_pages import needs_openssl
from tests.edges.test_link import CERTIFICATE, KEY
from tests.security.test_config_command import Said, config

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["config"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a certificate and its key."""
    (tmp_path / "cert.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def accepted(path: Path) -> str:
    """The text of a configuration that the server accepts."""
    loaded = subprocess.run([str(find()), "-t", "-c", str(path)], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr
    return path.read_text()


TLS = ("--tls-cert", "cert.pem", "--tls-key", "key.pem")


def test_the_tls_block_has_absolute_paths(config: Callable[..., Said], files: Path) -> None:
    """Paths are written in full, since the server may be started anywhere; nothing else is asked for."""
    assert config("--plugin", "trivia", *TLS, "--out", "bus").code == 0
    text = accepted(files / "bus/nats-server.conf")
    block = text[text.index("tls: {") : text.index("max_payload")]
    assert f'cert_file: "{files}/cert.pem"' in block
    assert f'key_file: "{files}/key.pem"' in block
    assert "verify" not in block
    assert "handshake_first" not in block


def test_tls_options_for_authority_clients_and_handshake_first(
    config: Callable[..., Said], files: Path
) -> None:
    """An authority, certificates of clients and a handshake before the greeting can be asked for."""
    options = ("--tls-ca", "cert.pem", "--tls-verify", "--tls-first", "--listen", "0.0.0.0:4333")
    said = config("--plugin", "trivia", *TLS, *options, "--out", "bus")
    text = accepted(files / "bus/nats-server.conf")
    for line in ('listen: "0.0.0.0:4333"', "verify: true", "handshake_first: true", "ca_file: "):
        assert line in text
    login = f"--nats-tls-ca {files}/cert.pem --nats-tls-cert CERT --nats-tls-key KEY --nats-tls-first"
    assert login in said.err
    trust = f"tls_ca={files}/cert.pem&tls_cert=CERT&tls_key=KEY&tls_first=true"
    nkey = "nkey=bus/plugins/trivia.nk&inbox=_INBOX.trivia"
    assert f"tls://HOST:4333?{nkey}&{trust}" in said.err
    assert "nothing is encrypted" not in said.err


def test_opening_the_server_to_others_without_tls_warns(config: Callable[..., Said], files: Path) -> None:
    """Who opens the server to others without TLS is told."""
    assert "nothing is encrypted" in config("--plugin", "a", "--listen", "10.0.0.1:4222", "--out", "a").err
    for here in ("127.0.0.1:4333", "[::1]:4222", "localhost:4222"):
        assert "nothing is encrypted" not in config("--plugin", "a", "--listen", here, "--out", here).err


@needs_openssl
def test_a_key_of_another_certificate_is_refused(config: Callable[..., Said], files: Path) -> None:
    """That a key does not belong to its certificate is said before the server would refuse to start."""
    other = ["openssl", "genpkey", "-algorithm", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    made = subprocess.run([*other, "-out", "other.pem"], capture_output=True, check=False)
    assert made.returncode == 0, made.stderr
    said = config("--plugin", "a", "--tls-cert", "cert.pem", "--tls-key", "other.pem", "--out", "bus")
    assert said.code == 2
    assert "cert.pem and other.pem can't be read as a certificate and its key" in said.err
    assert not (files / "bus").exists()


def test_an_authority_file_without_certificates_is_refused(config: Callable[..., Said], files: Path) -> None:
    """A file without certificates is named."""
    said = config("--plugin", "a", *TLS, "--tls-ca", "key.pem")
    assert (said.code, said.out) == (2, "")
    assert "key.pem can't be read as certificates" in said.err


def test_the_json_document_names_files_inboxes_and_urls_without_secrets(
    config: Callable[..., Said], files: Path
) -> None:
    """A script learns the files, the inboxes and the URLs of all users, and no secret."""
    said = config("--plugin", "trivia:read", "--tenant", "acme/web", "--out", "bus", "--json")
    told = json.loads(said.out)
    assert (told["configuration"], told["mode"]) == ("bus/nats-server.conf", "accounts")
    users = {one["user"]: one for one in told["users"]}
    assert list(users) == ["HOLDFAST", "OPERATOR", "trivia:read", "acme/web"]
    assert users["trivia:read"] == {
        "user": "trivia:read",
        "file": "bus/plugins/trivia.only.read.nk",
        "inbox": "_INBOX.trivia.only.read",
        "url": "nats://127.0.0.1:4222?nkey=bus/plugins/trivia.only.read.nk&inbox=_INBOX.trivia.only.read",
    }
    for one in users.values():
        assert Path(one["file"]).read_text().strip() not in said.out + said.err


def test_without_a_folder_the_json_document_has_configuration_and_secrets(
    config: Callable[..., Said], files: Path
) -> None:
    """Without a folder the document holds the configuration and the secrets, and nothing else is printed."""
    said = config("--plugin", "trivia", "--credentials", "passwords", "--json")
    told = json.loads(said.out)
    Path("nats-server.conf").write_text(told["configuration"])
    text = accepted(Path("nats-server.conf"))
    assert said.err == ""
    assert all(f'password: "{one["secret"]}"' in text for one in told["users"])
