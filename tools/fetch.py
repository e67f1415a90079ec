"""Programs that tests and benchmarks use and no Python package brings: a browser, axe-core, promtool, Redis.

They come from Debian's packages, which apt-get checks, and from npm, by a hash that stands here. Where one
can't be had, that is said with what it means.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from tools.environments import PRIVATE, TOOLS, fail, quietly, say

BROWSERS = ("chromium-headless-shell", "chromium")
"""Debian's packages with a browser, and the commands that they install: the one that takes less CPU first."""
AXE = PRIVATE / "tools" / "axe"
AXE_VERSION = "4.14.0"
AXE_SHA512 = "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ=="
REDIS = PRIVATE / "tools" / "redis"
TORTURED = PRIVATE / "tools" / "npm"
"""Where the servers of `tools/torture/npm` are, which are written in JavaScript."""


def chromium() -> int:
    """Install Debian's Chromium unless there is one; return 1 and say what to do where that can't be."""
    for program in (os.environ.get("HOLDFAST_BROWSER"), *map(shutil.which, BROWSERS)):
        if program:
            say(f"the browser is {program}")
            return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        say("chromium is missing, and only root can install it, with apt-get. NO TEST WILL OPEN A BROWSER.")
        say("install chromium yourself, or set HOLDFAST_BROWSER to the path of a Chromium.")
        return 1
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with contextlib.suppress(SystemExit):  # an older list may do
        quietly("asking Debian for its list of packages", ["apt-get", "update"], env)
    for package in BROWSERS:
        install = ["apt-get", "install", "--yes", "--no-install-recommends", package, "fonts-dejavu-core"]
        with contextlib.suppress(SystemExit):
            quietly(f"installing Debian's package {package}", install, env)
            return 0
    say("chromium can't be installed here. NO TEST WILL OPEN A BROWSER.")
    return 1


def axe() -> int:
    """Fetch axe-core, which looks for obstacles to people with disabilities, and check its hash."""
    if (AXE / "stamp").exists() and (AXE / "stamp").read_text() == AXE_SHA512:
        return 0
    if shutil.which("npm") is None:
        say("npm is missing, so axe-core can't be fetched. NO TEST WILL CHECK THE PAGES FOR ACCESSIBILITY.")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        try:
            npm = ["npm", "pack", "--silent", "--pack-destination", folder, f"axe-core@{AXE_VERSION}"]
            quietly(f"fetching axe-core {AXE_VERSION}", npm, where=folder)
        except SystemExit:
            say("axe-core can't be fetched. NO TEST WILL CHECK THE PAGES FOR ACCESSIBILITY.")
            return 1
        [archive] = Path(folder).glob("axe-core-*.tgz")
        if base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() != AXE_SHA512:
            fail("the archive of axe-core does not have the hash that is expected; nothing of it was kept.")
        AXE.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as files:
            for name in ("axe.min.js", "LICENSE"):
                content = files.extractfile(f"package/{name}")
                assert content is not None
                (AXE / name).write_bytes(content.read())
    (AXE / "stamp").write_text(AXE_SHA512)
    return 0


def tortured_servers() -> int:
    """Install the servers that `./dev torture` compares ours with, as their lock file pins them."""
    wanted = TOOLS / "torture" / "npm"
    lock = (wanted / "package-lock.json").read_text()
    if (TORTURED / "stamp").exists() and (TORTURED / "stamp").read_text() == lock:
        return 0
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            say(
                f"{program} is missing. SERVERS THAT ARE WRITTEN IN JAVASCRIPT WILL BE LEFT OUT OF THE TABLE."
            )
            return 1
    TORTURED.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(wanted / name, TORTURED / name)
    try:
        command = ["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
        quietly("installing servers that are written in JavaScript", command, where=str(TORTURED))
    except SystemExit:
        say("they can't be installed, and WILL BE LEFT OUT OF THE TABLE.")
        return 1
    (TORTURED / "stamp").write_text(lock)
    return 0


def promtool() -> int:
    """Fetch promtool, with which the suite tests the alerting rules."""
    place = PRIVATE / "tools" / "bin"
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            fail(f"there is no {program} here; put promtool on the PATH by yourself.")
    with tempfile.TemporaryDirectory() as folder:
        _unpack("prometheus", folder)
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(folder) / "usr" / "bin" / "promtool", place / "promtool")
    say(f"promtool is in {os.path.relpath(place)}")
    return 0


def redis() -> None:
    """Fetch redis-server, unless there is one, for the benchmark to compare with; say if it can't be had."""
    if shutil.which("redis-server") is not None or REDIS.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            if os.geteuid() == 0:
                quietly("asking Debian for its list of packages", ["apt-get", "update"])
            for package in ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1"):
                _unpack(package, folder)
        except (OSError, SystemExit):
            say("there is no redis-server and none can be fetched: the benchmark leaves Redis out")
            return
        shutil.copytree(Path(folder) / "usr", REDIS, symlinks=True, dirs_exist_ok=True)


def _unpack(package: str, folder: str) -> None:
    """Download a package of Debian's and put its files into a folder; nothing is installed or started."""
    quietly(f"downloading Debian's package {package}", ["apt-get", "download", package], where=folder)
    [archive] = Path(folder).glob(f"{package}_*.deb")
    quietly("unpacking it", ["dpkg", "-x", str(archive), folder])
    archive.unlink()
