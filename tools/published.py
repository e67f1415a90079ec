"""Source packages that other projects publish, fetched from the package index by version and hash.

Nothing is unpacked whose hash is not the expected one, and nothing of a package is run here. It needs
nothing but the standard library and pip's own settings, which name the index.
"""

from __future__ import annotations

import hashlib
import html
import re
import ssl
import subprocess
import sys
import tarfile
import urllib.request
from io import BytesIO
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

_ASK_PIP: Final = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


def fetch(file: str, sha256: str, place: Path) -> Path:
    """Return the folder of an unpacked source package, after fetching it if it is not there yet.

    Args:
        file: The name of the package's file, such as `limits-5.8.0.tar.gz`.
        sha256: The hash of that file.
        place: The folder to unpack it in.
    """
    folder = place / file.removesuffix(".tar.gz")
    if not (folder / ".whole").exists():
        data = _read(_address(file))
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise SystemExit(f"{file} has the hash {found}, but {sha256} is expected. NOTHING WAS RUN.")
        with tarfile.open(fileobj=BytesIO(data)) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 has it
            archive.extractall(place)
        (folder / ".whole").touch()
    return folder


def _address(file: str) -> str:
    """Return the address of a file, from the index's page of its project."""
    project = file.rpartition("-")[0].replace("_", "-").lower()
    index = _settings().get("index-url") or _python("-c", _ASK_PIP).strip()
    page = f"{index.rstrip('/')}/{project}/"
    links = re.findall(r'<a[^>]*href="([^"#]+)[^"]*"[^>]*>\s*([^<]+?)\s*</a>', _read(page).decode())
    for address, name in links:
        if name == file:
            return urljoin(page, html.unescape(address))
    raise SystemExit(f"the package index has no {file}. NOTHING WAS RUN.")


def _read(address: str) -> bytes:
    certificates = ssl.create_default_context(cafile=_settings().get("cert"))
    request = urllib.request.Request(address, headers={"Accept": "text/html, */*"})
    with urllib.request.urlopen(request, context=certificates, timeout=60) as answer:
        data: bytes = answer.read()
        return data


def _settings() -> dict[str, str]:
    """Return the settings of pip, each from the strongest place that has it."""
    settings: dict[str, str] = {}
    for place in ("global", "install", ":env:"):
        found = re.findall(rf"^{place}\.(\S+?)='(.*)'$", _python("-m", "pip", "config", "list"), re.MULTILINE)
        settings.update(found)
    return settings


def _python(*arguments: str) -> str:
    """Run the Python that has pip, and return what it prints."""
    python = str(getattr(sys, "_base_executable", None) or sys.executable)
    return subprocess.run([python, *arguments], capture_output=True, text=True, check=False).stdout
