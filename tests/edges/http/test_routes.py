"""The paths of the HTTP door: which namespace, key and verb they stand for, without a server."""

from __future__ import annotations

import pytest

from holdfast.edges.calls import FAMILIES
from holdfast.edges.http.requests import WrongMethod, target_of
from holdfast.errors import HoldfastError, InvalidPluginName, InvalidSubject, ValidationError


@pytest.mark.parametrize(
    ("method", "path", "namespace", "name", "key"),
    [
        ("GET", b"/v1/kv/trivia/k", "kv/trivia", "get", "k"),
        ("HEAD", b"/v1/kv/trivia/k", "kv/trivia", "get", "k"),
        ("PUT", b"/v1/kv/trivia/a/b", "kv/trivia", "set", "a/b"),
        ("DELETE", b"/v1/kv/trivia/a%2Fb%3A%C3%A9", "kv/trivia", "delete", "a/b:é"),
        ("GET", b"/v1/kv/trivia/a:get", "kv/trivia", "get", "a:get"),
        ("GET", b"/v1/kv/trivia", "kv/trivia", "list", None),
        ("POST", b"/v1/kv/trivia:incr", "kv/trivia", "incr", None),
        ("HEAD", b"/v1/blob/media/b", "blob/media", "head", "b"),
        ("PUT", b"/v1/blob/media/b", "blob/media", "put", "b"),
        ("POST", b"/v1/table/shop:query", "table/shop", "query", None),
        ("GET", b"/v1/semantic/acme/web/a/b", "semantic/acme/web", "get", "a/b"),
        ("GET", b"/v1/semantic/acme/web", "semantic/acme/web", "list", None),
        ("POST", b"/v1/admin:stats", "", "stats", None),
    ],
)
def test_a_path_stands_for_one_call(
    method: str, path: bytes, namespace: str, name: str, key: str | None
) -> None:
    """A method and a path name a verb of a namespace, and the key that is the rest of the path."""
    target = target_of(method, path)
    assert (target.name, target.key) == (name, key)
    assert target.place.namespace.endswith(namespace.removeprefix("semantic/"))
    assert target.verb is FAMILIES[target.place.family].get(name)


@pytest.mark.parametrize(
    ("method", "path", "error"),
    [
        ("GET", b"/v1/kv/trivia/%ff", ValidationError),
        ("GET", b"/v1/kv/..%2Fother/k", InvalidPluginName),
        ("GET", b"/v1/kv/", InvalidPluginName),
        ("GET", b"/v1/table/shop/k", InvalidSubject),
        ("GET", b"/v1/table/shop", InvalidSubject),
        ("GET", b"/v1/semantic/acme", InvalidSubject),
        ("GET", b"/v1/semantic/acme/%2e%2e/k", ValidationError),
        ("GET", b"/v1/admin", InvalidSubject),
        ("POST", b"/v1/admin/x:stats", InvalidSubject),
        ("GET", b"/v1/dance/x", InvalidSubject),
        ("GET", b"/v1/", InvalidSubject),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(method: str, path: bytes, error: type[HoldfastError]) -> None:
    """Nothing is guessed: neither a namespace nor a verb."""
    with pytest.raises(error):
        target_of(method, path)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", b"/v1/kv/trivia/k", "GET, HEAD, PUT, DELETE"),
        ("PUT", b"/v1/kv/trivia", "GET, HEAD"),
        ("GET", b"/v1/kv/trivia:get", "POST"),
        ("PATCH", b"/v1/blob/media/b", "GET, HEAD, PUT, DELETE"),
    ],
)
def test_a_wrong_method_says_which_are_right(method: str, path: bytes, allowed: str) -> None:
    """The path exists, and the refusal names the methods that it has."""
    with pytest.raises(WrongMethod) as refused:
        target_of(method, path)
    assert refused.value.allowed == allowed


def test_a_verb_that_is_unknown_has_a_path_and_no_meaning() -> None:
    """The service refuses it with the words that it has for unknown verbs at every door."""
    assert target_of("POST", b"/v1/kv/trivia:dance").verb is None
