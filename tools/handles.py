"""The asynchronous handles, as their source describes them, for the generator of `holdfast.sync`.

Nothing is imported, so that a module is read as it is, even where the generated files don't fit it.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "src"
STORE: Final = ("holdfast.store", "Store")
HANDLES: Final = ("holdfast.handles", "holdfast.operators")
"""Where the classes of handles are. What other modules define is data, and is the same for both kinds."""
FOR_EDGES: Final = frozenset(
    {
        *("start", "aclose", "tables_in", "pipeline", "measure", "rescues", "announce", "outage", "overdue"),
        *("survey", "examine", "key_trouble", "bind_keys", "suspected_audits", "require_able", "may_move"),
        *("capabilities", "now", "ready"),
    }
)
"""Methods of a store that programs do not call; `close` replaces `aclose`."""
SPECIAL: Final = ("__aenter__", "__aexit__", "__aiter__", "__getitem__", "__iter__", "__len__")
"""The special methods that a facade has too."""
INTERNAL: Final = ("from holdfast.rows ", "from holdfast.commands ", "from holdfast.pipeline.")
"""Where the arguments come from that only edges have: a method that takes one is not for programs."""
STREAMS: Final = frozenset({"AsyncGenerator", "AsyncIterable", "AsyncIterator"})


Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """A source file: its classes and functions, and where its names come from."""

    name: str
    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)

    @property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The classes by name."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    def aliases(self, name: str) -> list[ast.AnnAssign]:
        """Return the assignments, at most one, that make a name an alias of a type."""
        return [
            node
            for node in self.tree.body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == name
        ]


def module(name: str) -> Module:
    """Read a module."""
    path = SOURCE / (name.replace(".", "/") + ".py")
    if not path.exists():
        path = SOURCE / name.replace(".", "/") / "__init__.py"
    return _parsed(name, path.read_text())


@functools.cache
def _parsed(name: str, text: str) -> Module:
    found = Module(name, ast.parse(text))
    for node in ast.walk(found.tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.col_offset in (0, 4):
            for alias in node.names:
                shown = alias.asname or alias.name
                as_name = f" as {alias.asname}" if alias.asname else ""
                found.imports[shown] = f"from {node.module} import {alias.name}{as_name}"
        elif isinstance(node, ast.Import) and node.col_offset in (0, 4):
            for alias in node.names:
                found.imports[alias.name] = f"import {alias.name}"
    return found


@dataclass
class Handle:
    """A class to generate: where it is defined, its members with those it inherits, and its file."""

    module: Module
    node: ast.ClassDef
    members: list[tuple[Module, ast.AST]]
    file: str
    bases: list[str] = field(default_factory=list)
    """The classes of `holdfast.sync` that it shares methods with."""

    @property
    def name(self) -> str:
        """The name, the same in both kinds."""
        return self.node.name


def file_of(name: str, class_name: str) -> str:
    """Return the file of `holdfast.sync` for a class of the handles in a module."""
    parts = name.split(".")
    if class_name == "KeyWrites":  # a file of its own, which both the handles and the recipes import
        return "key_writes"
    if name == STORE[0]:
        return "store"
    if parts[1] == "operators":
        return "operators"
    if "recipes" in parts:
        return "recipes"
    families = {"table": "tables", "blob": "blobs"}
    return families.get(parts[2].partition("_")[0], parts[2])


def bases_of(of: Module, node: ast.ClassDef) -> list[tuple[Module, ast.ClassDef]]:
    """Return the bases of a class among the handles, the nearest first, each once."""
    bases: list[tuple[Module, ast.ClassDef]] = []
    for base in node.bases:
        name = ast.unparse(base)
        source = of.imports.get(name, f"from {of.name} import {name}" if name in of.classes else "")
        if source.startswith(tuple(f"from {package}" for package in HANDLES)):
            beneath = module(source.split()[1])
            bases += [(beneath, beneath.classes[name]), *bases_of(beneath, beneath.classes[name])]
    return list({node.name: (of, node) for of, node in bases}.values())


def members_of(
    of: Module, node: ast.ClassDef, but: frozenset[str] = frozenset()
) -> list[tuple[Module, ast.AST]]:
    """Return the members of a class and of its bases among the handles, the nearest first.

    Args:
        of: The module of the class.
        node: The class.
        but: The bases whose members are left out.
    """
    members: list[tuple[Module, ast.AST]] = [(of, member) for member in node.body]
    for beneath, base in bases_of(of, node):
        if base.name not in but:
            known = {member.name for _, member in members if isinstance(member, Function)}
            members += [(beneath, member) for member in base.body if getattr(member, "name", "") not in known]
    return members


def discover() -> dict[str, Handle]:
    """Find every class of handles that can be reached from a store by what its methods return.

    A base that several of them share is a class of its own, so that its methods are written once.
    """
    handles = _reached()
    bases = {name: bases_of(handle.module, handle.node) for name, handle in handles.items()}
    users = Counter(node.name for found in bases.values() for _, node in found)
    shared = frozenset(name for name, count in users.items() if count > 1)
    for name, found in bases.items():
        handle = handles[name]
        handle.bases = [node.name for _, node in found if node.name in shared]
        handle.members = members_of(handle.module, handle.node, shared)
        for of, node in found:
            if node.name in shared and node.name not in handles:
                file = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower()
                handles = {**handles, node.name: Handle(of, node, members_of(of, node, shared), file)}
    return handles


def _reached() -> dict[str, Handle]:
    handles: dict[str, Handle] = {}
    waiting = [STORE]
    while waiting:
        name, class_name = waiting.pop(0)
        of = module(name)
        node = of.classes.get(class_name)
        if class_name in handles or node is None or not (name == STORE[0] or _waits(of, node)):
            continue
        handles[class_name] = Handle(of, node, members_of(of, node), file_of(name, class_name))
        for where, member in handles[class_name].members:
            if not isinstance(member, Function) or not public(where, member, class_name):
                continue
            for found in names(member.returns):
                source = where.imports.get(found, f"from {where.name} import {found}")
                if source.startswith(tuple(f"from {package}" for package in HANDLES)):
                    waiting.append((source.split()[1], found))
    return handles


def _waits(of: Module, node: ast.ClassDef) -> bool:
    return any(isinstance(member, ast.AsyncFunctionDef) for _, member in members_of(of, node))


def public(where: Module, member: Function, class_name: str) -> bool:
    """Return True if programs call a member of a class of handles."""
    if class_name == "Store" and member.name in FOR_EDGES:
        return False
    taken = [*member.args.args, *member.args.kwonlyargs]
    sources = (where.imports.get(name, "") for one in taken for name in names(one.annotation))
    if not member.name.startswith("_") and any(source.startswith(INTERNAL) for source in sources):
        return False
    return member.name in SPECIAL or not member.name.startswith("_")


def names(node: ast.AST | None) -> set[str]:
    """Return the names in an expression."""
    return set() if node is None else {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}


def streams(where: Module, node: ast.AST | None) -> bool:
    """Return True if an annotation allows an asynchronous iterator, also by an alias of the handles."""
    found = names(node)
    if found & STREAMS:
        return True
    for name in found:
        source = where.imports.get(name, "")
        if source.startswith(f"from {HANDLES[0]}"):
            of = module(source.split()[1])
            if any(streams(of, alias.value) for alias in of.aliases(name)):
                return True
    return False


def yields(member: Function) -> bool:
    """Return True if a function is a generator."""
    return any(isinstance(node, ast.Yield) for node in ast.walk(member))
