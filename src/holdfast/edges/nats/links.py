"""The connections of the service to NATS: login, errors, reconnecting, and one for each link of plugins.

The user's settings are checked before anything is sent, and an error names the setting. An established
connection reconnects by itself.

A server configured by `holdfast nats config` distinguishes plugins and projects, and sends the requests of
each to a numbered link. The service subscribes to each link over one of several connections. So a flood fills
only one of them: if the server cuts that one off, the others are unaffected. Only the server determines the
number of links. The service asks it periodically, because its configuration may have changed. Once served, a
link stays served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from holdfast import extras, masking
from holdfast.bus.connection import Connection
from holdfast.bus.errors import BusError, LoginRefused, Lost, Untrusted, Violation, violation
from holdfast.bus.login import Login
from holdfast.bus.protocol import Message
from holdfast.errors import HoldfastError, PermissionDenied, Unavailable, ValidationError
from holdfast.wire.subjects import LINKS_TOLD, MOST_LINKS, SERVICE_INBOX, links_question

if TYPE_CHECKING:
    from holdfast.edges.nats.service import NatsService
    from holdfast.edges.settings.table import Config

CONNECT_SECONDS: Final = 10.0
"""Time limit for establishing a connection."""
_CREDS: Final = ("BEGIN NATS USER JWT", "BEGIN USER NKEY SEED")

_log = logging.getLogger("holdfast.nats")


class Link:
    """A connection of the service, used as an `async with` block.

    Args:
        url: The servers, separated by commas.
        config: The login settings.
        name: The name of the connection in the server's lists and in the log.
        rest: See `Session`.

    Raises:
        ValidationError: A login setting is missing or invalid.
        Unavailable: No server can be reached, or none can be trusted.
        PermissionDenied: The server rejects the login.
    """

    def __init__(self, url: str, config: Config, *, name: str, rest: float = 0.0) -> None:
        masking.require_escaped(url)
        if "?" in url:
            raise ValidationError(
                "nats takes no options after '?': use the separate settings, such as nats_tls_ca",
                field="nats",
            )
        self._where = masking.shown(url)
        self._servers = [one if "://" in one else f"nats://{one}" for one in map(str.strip, url.split(","))]
        self._login = login(config)
        self._name = name
        self._denied: list[str] = []
        self.inbox_denied = False
        """Whether the server has refused a subject of the service's own inbox."""
        self._refused = ""
        self.client = Connection(
            name=name,
            inbox=SERVICE_INBOX,
            on_error=self._on_error,
            on_disconnected=self._on_disconnected,
            on_reconnected=self._on_reconnected,
            rest=rest,
        )

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self.client.reach(self._servers, self._login)
        except (OSError, BusError) as error:
            where = self._where
            if isinstance(error, LoginRefused):
                raise PermissionDenied(f"the NATS server at {where} does not let the service in") from None
            raise Unavailable(_unreached(where, error)) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.close()

    @property
    def is_connected(self) -> bool:
        """Whether the connection is up."""
        return self.client.is_connected

    @property
    def reconnects(self) -> int:
        """The number of reconnects."""
        return self.client.reconnects

    def require_listening(self) -> None:
        """Raise `PermissionDenied` if the server has refused a subscription."""
        if self._denied:
            raise PermissionDenied(
                f"the NATS server does not let the service listen at {', '.join(self._denied)}: "
                "log in as the service"
            )

    def _on_error(self, error: Exception) -> None:
        denied = violation(error)
        if denied is not None and denied.subject.upper().startswith(f"{SERVICE_INBOX}."):
            self._on_inbox_denied(denied)
            return
        if denied is not None and denied.kind == "subscription":
            self._denied.append(denied.subject)
        if self.client.is_connected:
            _log.warning("the NATS connection %r reports: %s", self._name, error)
        elif isinstance(error, (Untrusted, LoginRefused)) and str(error) != self._refused:
            self._refused = str(error)
            _log.warning("the NATS server can't be used: %s", error)
        else:
            _log.debug("the NATS server can't be reached: %s", error)

    def _on_inbox_denied(self, denied: Violation) -> None:
        """Log once that instances can't tell each other how they are. Everything else works without it."""
        if not self.inbox_denied:
            _log.warning(
                "the NATS server denies the service a %s at %s, so the console lists this instance alone: "
                "allow the service's user to publish and to subscribe to %s.>, or make the server's "
                "configuration anew with holdfast nats config, and restart the service",
                denied.kind,
                denied.subject,
                SERVICE_INBOX,
            )
        self.inbox_denied = True

    def _on_disconnected(self) -> None:
        self._refused = ""
        _log.warning("lost the connection %r to NATS; reconnecting", self._name)

    def _on_reconnected(self) -> None:
        _log.info("reconnected to NATS (%r)", self._name)


def _unreached(where: str, error: Exception) -> str:
    if isinstance(error, BusError):
        advice = (
            "; name the authority that signed it with nats_tls_ca" if isinstance(error, Untrusted) else ""
        )
        return f"the NATS server at {where} can't be used: {error}{advice}"
    return f"no NATS server can be reached at {where}; name another with --nats"


def login(config: Config) -> Login:
    """Return the login for the servers. With any TLS setting the connection is encrypted or not made."""
    return Login(
        user=config.nats_user,
        password=config.nats_password,
        token=config.nats_token,
        creds_file=_creds(config.nats_creds),
        nkey=_seed(config.nats_nkey),
        tls=_tls(config),
        tls_first=config.nats_tls_first,
    )


def _creds(path: str | None) -> str | None:
    """Return the path after checking the contents of the file."""
    if path is not None and not all(part in _text(path, field="nats_creds") for part in _CREDS):
        raise ValidationError(f"nats_creds: {path} does not hold a JWT and its seed", field="nats_creds")
    return path


def _seed(path: str | None) -> str | None:
    if path is None:
        return None
    with extras.needed("nats", "nats_nkey"):
        # late: optional driver
        import nkeys  # type: ignore[import-untyped]

    seed = _text(path, field="nats_nkey").strip()
    try:
        nkeys.from_seed(seed.encode())
    except (nkeys.NkeysError, ValueError):
        raise ValidationError(
            f"nats_nkey: {path} does not hold the seed of an nkey", field="nats_nkey"
        ) from None
    return seed


def _tls(config: Config) -> ssl.SSLContext | None:
    if not config.nats_tls_ca and not config.nats_tls_cert:
        return None
    try:
        context = ssl.create_default_context(cafile=config.nats_tls_ca)
    except OSError:
        raise ValidationError(
            f"nats_tls_ca: {config.nats_tls_ca} can't be read as certificates", field="nats_tls_ca"
        ) from None
    if config.nats_tls_cert:
        try:
            context.load_cert_chain(config.nats_tls_cert, config.nats_tls_key)
        except OSError:
            raise ValidationError(
                f"nats_tls_cert: {config.nats_tls_cert} and its key can't be read", field="nats_tls_cert"
            ) from None
    return context


def _text(path: str, *, field: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        raise ValidationError(f"{field}: {masking.shown_path(path)} can't be read", field=field) from None


ASK_SECONDS: Final = 5.0
"""Interval in seconds at which the service asks the server for new links."""
REST: Final = 5.0
"""Pause after reading a full chunk from such a connection, as a multiple of the time its processing took. A
connection that sends more than the service can handle therefore gets a sixth of the loop's time."""


class Links:
    """Serves all links that the server announces, within an `async with` block.

    Args:
        links: The open connections. The first is the common one; newly opened connections are appended.
        service: The service that answers requests.
        opened: Creates a connection with the given name.
        most: Maximum number of connections to open; with 0 every link is served over the common one.
        prefix: The prefix of event subjects.
    """

    def __init__(
        self,
        links: list[Link],
        service: NatsService,
        opened: Callable[[str], Link],
        *,
        most: int,
        prefix: str,
    ) -> None:
        self._links = links
        self._common = links[0].client
        self._service = service
        self._opened = opened
        self._most = most
        self._question = links_question(prefix)
        self._own: list[Link] = []
        self._announced = 0
        self._served = 0
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._common.listen(f"{LINKS_TOLD}.*", self._hear)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def serve(self) -> None:
        """Serve the links that are not served yet.

        Raises:
            Unavailable: A connection cannot be made.
            PermissionDenied: The server rejects the login or a subscription.
        """
        with contextlib.suppress(Lost):  # it is reconnecting; the next call asks again
            self._common.send(self._question, b"")
            await self._common.flush()
        while self._served < self._announced:
            link = await self._link_of(self._served)
            self._service.serve_links(link.client, [self._served])
            self._served += 1
        for link in self._own:
            with contextlib.suppress(Lost):
                await link.client.flush()
            link.require_listening()

    async def keep(self) -> None:
        """Serve new links as they appear, until cancelled."""
        while True:
            await asyncio.sleep(ASK_SECONDS)
            try:
                await self.serve()
            except HoldfastError as error:
                _log.warning("serving a plugin's link failed; retrying: %s", error.message)

    async def _link_of(self, number: int) -> Link:
        """Return the connection that serves a link, opening it if necessary."""
        if not self._most:
            return self._links[0]
        place = number % self._most
        if place == len(self._own):
            link = await self._stack.enter_async_context(self._opened(f"holdfast link {place}"))
            self._own.append(link)
            self._links.append(link)
        return self._own[place]

    def _hear(self, message: Message) -> None:
        """Record the number of links. The server maps the question, from any instance, to this subject."""
        number = message.subject.rpartition(".")[2]
        if number.isascii() and number.isdigit() and int(number[:4]) <= MOST_LINKS:
            self._announced = max(self._announced, int(number[:4]))
