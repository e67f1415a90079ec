"""Bugs in the connection to NATS and in the service: the protocol, the reply guard, the intake, the answers.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_PROTOCOL: Final = ("tests/bus/test_protocol.py",)
_BUS: Final = ("tests/bus/test_session.py", "tests/bus")
_GUARD: Final = ("tests/edges/nats/test_reply_guard.py",)
_LINKS: Final = ("tests/edges/nats/test_links.py",)
_INTAKE: Final = (
    "tests/edges/nats/test_intake.py",
    "tests/edges/nats/test_order.py",
    "tests/edges/nats/test_lines.py",
)
_SERVICE: Final = (
    "tests/edges/nats/test_verbs.py",
    "tests/edges/nats/test_events.py",
    "tests/edges/nats/test_errors.py",
)

PLANTS: Final = (
    Plant(
        "a line is taken apart at any white space",
        "bus/protocol.py",
        'words = data[position:end].decode().split(" ")',
        "words = data[position:end].decode().split()",
        _PROTOCOL,
    ),
    Plant(
        "a message ends wherever its size says",
        "bus/protocol.py",
        "if start <= after <= last and data.startswith(_CRLF, after):",
        "if start <= after <= last:",
        _PROTOCOL,
    ),
    Plant(
        "a message may have less than no headers",
        "bus/protocol.py",
        "if not 0 <= head <= size <= LARGEST_MESSAGE:",
        "if not head <= size <= LARGEST_MESSAGE:",
        _PROTOCOL,
    ),
    Plant(
        "a line may grow without end",
        "bus/protocol.py",
        "if len(line) > LONGEST_LINE:",
        "if len(line) > LARGEST_MESSAGE:",
        _PROTOCOL,
    ),
    Plant(
        "an unreadable message is not counted",
        "bus/protocol.py",
        "                self.unreadable += 1\n",
        "                pass\n",
        _PROTOCOL,
    ),
    Plant(
        "headers are taken for a part of the payload",
        "bus/protocol.py",
        "reply, data[body:after], data[start:body]",
        "reply, data[start:after], data[start:body]",
        _PROTOCOL,
    ),
    Plant(
        "a size in a header counts characters",
        "bus/protocol.py",
        "len(head), len(head) + len(payload), head, payload)",
        "len(head), len(payload), head, payload)",
        _PROTOCOL,
    ),
    Plant(
        "a ping of the watch is not waited for",
        "bus/session.py",
        "        self._pongs.append(answered)\n",
        "        if answered is not None:\n            self._pongs.append(answered)\n",
        _BUS,
    ),
    Plant(
        "a silent server is given one more ping",
        "bus/session.py",
        "if self._silent >= MOST_SILENT:",
        "if self._silent > MOST_SILENT:",
        _BUS,
    ),
    Plant(
        "a server that speaks is taken for silent",
        "bus/session.py",
        '        """Deliver the messages of a piece, in order."""\n        self._silent = 0\n',
        '        """Deliver the messages of a piece, in order."""\n',
        _BUS,
    ),
    Plant(
        "a ping after the end is said to be answered",
        "bus/session.py",
        "        if self.over:\n            answered.set_result(False)",
        "        if self.over:\n            answered.set_result(True)",
        _BUS,
    ),
    Plant(
        "what a server does not take is not bounded",
        "bus/outgoing.py",
        "self._unsent_bytes = self._transport.get_write_buffer_size() + kept",
        "self._unsent_bytes = 0",
        (*_BUS, "tests/edges/nats/test_lines.py"),
    ),
    Plant(
        "what is sent after the end seems to be sent",
        "bus/outgoing.py",
        "if unsent > most or self.over:",
        "if unsent > most:",
        _BUS,
    ),
    Plant(
        "a taker that fails ends the reading",
        "bus/session.py",
        "                    except Exception as defect:  # reading must continue\n"
        "                        self._owner.complain(defect)",
        "                    except Exception:  # reading must continue\n                        return",
        _BUS,
    ),
    Plant(
        "subscriptions are forgotten with the connection",
        "bus/connection.py",
        "        for one in self._subscriptions.values():\n            session.write",
        "        for one in list(self._subscriptions.values())[1:]:\n            session.write",
        _BUS,
    ),
    Plant(
        "a drain does not wait for what is on its way",
        "bus/connection.py",
        "                session.write(unsub(subscription.sid))\n                await session.ping()\n",
        "                session.write(unsub(subscription.sid))\n",
        _BUS,
    ),
    Plant(
        "two clients have one inbox",
        "bus/connection.py",
        "{secrets.token_hex(11)}",
        "{secrets.token_hex(0)}holdfast",
        (*_BUS, "tests/engines/test_remote.py"),
    ),
    Plant(
        "a server that refuses is told as one that is away",
        "bus/connection.py",
        "enumerate((LoginRefused, Untrusted, BusError)):",
        "enumerate((Untrusted, BusError)):",
        _BUS,
    ),
    Plant(
        "a lost server is tried first",
        "bus/servers.py",
        "key=lambda one: one == self.latest)",
        "key=lambda one: one != self.latest)",
        _BUS,
    ),
    Plant(
        "a mapped reply may have anything behind it",
        "edges/nats/reply_guard.py",
        "mapped.fullmatch(reply)",
        "mapped.match(reply)",
        _GUARD,
    ),
    Plant(
        "a mapped reply may begin otherwise",
        "edges/nats/reply_guard.py",
        r"_R_\.{_TOKENS}",
        r"_R_.{_TOKENS}",
        _GUARD,
    ),
    Plant(
        "an inbox may have anything behind it",
        "edges/nats/reply_guard.py",
        "rest.fullmatch(reply[len(inbox) :])",
        "rest.match(reply[len(inbox) :])",
        _GUARD,
    ),
    Plant(
        "a plugin's inbox is that of longer names too",
        "edges/nats/reply_guard.py",
        "{owner.replace('/', '.')}.\"",
        "{owner.replace('/', '.')}\"",
        _GUARD,
    ),
    Plant(
        "trusted callers reach the operators' inbox",
        "edges/nats/reply_guard.py",
        'if inbox == "_INBOX." and reply.startswith(_RESERVED):',
        "if not inbox and reply.startswith(_RESERVED):",
        _GUARD,
    ),
    Plant(
        "a reply may go to the system",
        "edges/nats/reply_guard.py",
        'never = ("$", *(f"{prefix}." for prefix in prefixes))',
        'never = tuple(f"{prefix}." for prefix in prefixes)',
        _GUARD,
    ),
    Plant(
        "a reply may go to our own subjects",
        "edges/nats/reply_guard.py",
        'not f"{name}.".startswith(never)',
        "not name.startswith(never)",
        _GUARD,
    ),
    Plant(
        "a reply may go to a wildcard",
        "edges/nats/reply_guard.py",
        r'r"[^\s.*>]+(?:\.[^\s.*>]+)*"',
        r'r"[^\s.]+(?:\.[^\s.]+)*"',
        _GUARD,
    ),
    Plant(
        "every caller is trusted with any inbox",
        "edges/nats/service.py",
        "not self._guard(message.reply, route.owner)",
        'not self._guard(message.reply, "")',
        ("tests/security/test_isolation.py", *_GUARD),
    ),
    Plant(
        "a line takes one request too many",
        "edges/intake/lines.py",
        "len(line.waiting) >= limits.waiting",
        "len(line.waiting) > limits.waiting",
        _INTAKE,
    ),
    Plant(
        "what waits is not bounded in bytes",
        "edges/intake/lines.py",
        "or line.waiting_bytes + size > limits.waiting_bytes",
        "or line.waiting_bytes + size < 0",
        _INTAKE,
    ),
    Plant(
        "a write passes a read of the same plugin",
        "edges/intake/lines.py",
        "(line.reading and line.waiting[0].writes)",
        "(line.reading and not line.waiting[0])",
        _INTAKE,
    ),
    Plant(
        "what is done stays under way",
        "edges/intake/lines.py",
        "        self._under_way -= 1\n        self._queue(line)\n",
        "        self._queue(line)\n",
        _INTAKE,
    ),
    Plant(
        "one plugin has every turn",
        "edges/intake/lines.py",
        "if line.begun >= OWN_STARTED or",
        "if line.begun < 0 or",
        _INTAKE,
    ),
    Plant(
        "large requests count as small ones",
        "edges/intake/lines.py",
        "weight = 1 + (size >> LARGE)",
        "weight = 1",
        _INTAKE,
    ),
    Plant(
        "every link is served over the common connection",
        "edges/nats/links.py",
        "        if not self._most:\n",
        "        if self._most:\n",
        _LINKS,
    ),
    Plant(
        "a link that comes to be is not served",
        "edges/nats/links.py",
        "            self._told = max(self._told, int(told[:4]))",
        "            self._told = self._told or int(told[:4])",
        _LINKS,
    ),
    Plant(
        "a request is answered over the common connection",
        "edges/nats/replies.py",
        "self._send(request.client, request.reply, payload, error, dialect, warning=request.warning)",
        "self._send(self._client, request.reply, payload, error, dialect, warning=request.warning)",
        _LINKS,
    ),
    Plant(
        "events go over the common connection",
        "edges/nats/callers.py",
        "            self._answers.over.keep(namespace, client)",
        "            pass",
        _LINKS,
    ),
    Plant(
        "a link takes what operators ask",
        "edges/nats/subscriptions.py",
        "if family in (*families.OF_PLUGINS, families.SEMANTIC)",
        "if family",
        _LINKS,
    ),
    Plant(
        "a flood is read without a pause",
        "bus/session.py",
        "        if full:\n            self._pause(began)\n",
        "",
        ("tests/bus/test_pieces.py",),
    ),
    Plant(
        "a large message is read in small pieces",
        "bus/session.py",
        "        if missing <= READ_BYTES:",
        "        if missing:",
        ("tests/bus/test_pieces.py",),
    ),
    Plant(
        "what waited goes out of order",
        "bus/outgoing.py",
        "                self._unsent = unsent[number:]",
        "                self._unsent = unsent[:number]",
        ("tests/bus/test_pieces.py",),
    ),
    Plant(
        "a turn's time stands still",
        "pace.py",
        "            asyncio.get_running_loop().call_soon(self._end)\n",
        "",
        ("tests/unit/test_pace.py",),
    ),
    Plant(
        "an answer too large for the server is sent",
        "edges/nats/replies.py",
        "        if len(payload) > most:\n            error = error",
        "        if len(payload) > 64 * most:\n            error = error",
        _SERVICE,
    ),
    Plant(
        "events of all namespaces go to one subject",
        "wire/subjects.py",
        "return f\"{prefix}.event.{namespace.replace('/', '.')}.{op}\"",
        "return f\"{prefix}.event.{namespace.partition('/')[0]}.{op}\"",
        _SERVICE,
    ),
)
