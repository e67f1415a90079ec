"""A package that is not installed is named together with the extra that brings it."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast import Unsupported, extras
from holdfast.engines.sql.migrate import downgrade_postgres, downgrade_sqlite

if TYPE_CHECKING:
    from pathlib import Path


def test_a_call_that_lacks_a_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the purpose, the package and the command that installs it."""
    monkeypatch.setitem(sys.modules, "nkeys", None)
    with pytest.raises(Unsupported) as caught, extras.needed("nats", "an nkey"):
        import nkeys  # type: ignore[import-untyped]  # noqa: F401
    assert caught.value.message == "an nkey needs the package nkeys: pip install 'holdfast-kv[nats]'"


def test_an_import_that_lacks_a_package_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that guards an import with `except ImportError` goes on to work."""
    monkeypatch.setitem(sys.modules, "sqlalchemy.orm", None)
    with (
        pytest.raises(
            ModuleNotFoundError, match=r"sqlalchemy: pip install 'holdfast-kv\[compat\]'"
        ) as caught,
        extras.imported("compat", "holdfast.compat"),
    ):
        import sqlalchemy.orm  # noqa: F401
    assert caught.value.name == "sqlalchemy.orm"


@pytest.mark.parametrize("block", [extras.needed, extras.imported])
def test_a_fault_of_ours_is_not_blamed_on_an_extra(block: object) -> None:
    """A module of Holdfast that is missing is told as what it is."""
    assert callable(block)
    with (
        pytest.raises(ModuleNotFoundError, match=r"No module named 'holdfast\.nowhere'"),
        block("nats", "it"),
    ):
        importlib.import_module("holdfast.nowhere")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that is not there yet."""
    if request.param == "sqlite":
        return str(tmp_path / "state.db")
    address: str = request.getfixturevalue("pg_url")
    return address


async def test_an_older_store_without_the_tools_names_the_extra(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening an older store without SQLAlchemy or Alembic says what to install and changes nothing."""
    async with holdfast.open(url) as store:
        await store.kv("jobs").set("k", 1)
    if "://" in url:
        await downgrade_postgres(url, "0001")
    else:
        downgrade_sqlite(url, "0001")
    for package in ("sqlalchemy", "alembic"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            with pytest.raises(Unsupported) as caught:
                async with holdfast.open(url):
                    pass
        assert caught.value.message.startswith("the store's schema is older than ")
        assert caught.value.message.endswith(
            f"migrating it needs the package {package}: pip install 'holdfast-kv[migrate]'"
        )
    async with holdfast.open(url) as store:
        entry = await store.kv("jobs").get("k")
    assert entry is not None
    assert entry.value == 1


def test_going_down_without_the_tools_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking a store back says what to install as well."""
    monkeypatch.setitem(sys.modules, "alembic", None)
    with pytest.raises(
        Unsupported, match=r"older schema needs the package alembic: pip install 'holdfast-kv"
    ):
        downgrade_sqlite(tmp_path / "state.db")
