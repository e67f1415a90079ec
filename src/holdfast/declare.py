"""Verbs, each declared by the class of its command, and everything that is derived from a declaration.

A field of a command that callers give is annotated with a `Says`: the rule that checks it, one line of help,
and its name in messages where that is another. From these come the struct that a message is decoded into, the
function that makes the command of it, the fields that a client sends, and the schema of a request.

The names and the order of a command's fields are a stored format: a remembered request is the digest of the
command's JSON. So a declaration adds to the fields of a command and never changes them.

Messages are decoded without types. The rules check what callers give, so that their messages, which name the
field and the limit, are the only ones; the types are for schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, inspect

from holdfast.errors import MissingField, ValidationError
from holdfast.forms import RULES, CallFields, unsaid
from holdfast.origin import Origin
from holdfast.rules import MAX_BATCH

C = TypeVar("C", bound=type[Struct])

DECLARED: Final[dict[str, Declaration]] = {}
"""The declared verbs of keys by name."""
PARTS: Final[dict[str, Declaration]] = {}
"""The declarations that a batch may be made of, by the name of the field that tells them apart."""


class Wire(Struct, frozen=True):
    """A field of messages that no command has, such as a second name of another."""

    name: str
    form: Any
    required: bool = False


class Says(Struct, frozen=True, kw_only=True):
    """What a declaration says of a field.

    Args:
        rule: Takes what a caller gave and returns the legal form. Text names a method of the caller, who
            knows the namespace. A field without a rule is filled by that of another.
        help: One sentence, unless the form has it.
        unsaid: What else is refused, where a JSON schema can't say it.
        form: The type in messages, if it is not that of the command's field.
        wire: The name in messages, if it is another.
        takes: Further fields of a message that the rule takes, by name.
        fills: Further fields of the command that the rule returns, in their order.
        otherwise: What the rule takes if the field is not given, where that depends on the caller.
        nullable: Whether null is a value. Elsewhere it means that the field is not given.
        of_origin: Whether the rule takes the origin of the call, too.
        flag: Whether it is sent only if it is true.
        needed: Whether schemas say that it must be given, where only the policy of a namespace decides.
        required: Whether it must be given, though another verb of the class does without it.
        sent: Makes the field of a message of the command's, unless that is None or unset.
    """

    rule: Callable[..., Any] | str | None = None
    help: str = ""
    unsaid: str = ""
    form: Any = None
    wire: str = ""
    takes: tuple[str | Wire, ...] = ()
    fills: tuple[str, ...] = ()
    otherwise: Any = UNSET
    nullable: bool = False
    of_origin: bool = False
    flag: bool = False
    needed: bool = False
    required: bool = False
    sent: Callable[[Any], Any] | None = None


class Part(Struct, frozen=True):
    """How a command is named among the writes of a batch.

    Args:
        name: The field that tells it apart from the others.
        of: The command's field that has this name there; if none has, the field is `true`.
        help: One sentence; that of the command's field if not given.
    """

    name: str
    of: str = ""
    help: str = ""


class Members(Struct, dict=True, eq=False):
    """The form of a list whose members have the fields of other declarations.

    Args:
        name: Name of the schema of a member.
        kind: The class that a member becomes; if none, one of those that may be a part of a batch.
        help: One sentence on the list.
        help_of_one: One sentence on a member.
        instead: The forms of fields that have another one here.
        rules: What holds for the fields of a member together, as parts of a JSON schema.
    """

    name: str
    kind: Any = None
    help: str = ""
    help_of_one: str = ""
    instead: Mapping[str, Any] = {}
    rules: tuple[dict[str, Any], ...] = ()

    @cached_property
    def _fields(self) -> dict[str, tuple[Any, Any]]:
        if self.kind is not None:
            own: dict[str, tuple[Any, Any]] = self.kind.declaration.own
            return own
        fields: dict[str, tuple[Any, Any]] = {}
        for declaration in PARTS.values():
            assert declaration.part is not None
            fields |= declaration.own_as(declaration.part)
        return {name: (self.instead.get(name, form), absent) for name, (form, absent) in fields.items()}

    @cached_property
    def names(self) -> frozenset[str]:
        """The names that a member may have."""
        return frozenset(self._fields)

    @cached_property
    def nested(self) -> tuple[str, ...]:
        """The names of fields that hold objects."""
        return tuple(name for name, (form, _) in self._fields.items() if holds_objects(form))

    @cached_property
    def message(self) -> Any:
        """The struct of a member, without types."""
        fields: list[Any] = [(name, Any, absent) for name, (_, absent) in self._fields.items()]
        return msgspec.defstruct(self.name, fields, kw_only=True, gc=False, forbid_unknown_fields=True)

    @cached_property
    def request(self) -> type[Struct]:
        """The struct of a member with its types, for schemas."""
        needed = () if self.kind is None else self.kind.declaration.needed
        return _typed(self.name, self._fields, needed, self.rules, help=self.help_of_one)

    @property
    def list(self) -> Any:
        """The form of the whole list, for schemas."""
        members: Any = list[self.request]  # type: ignore[name-defined]
        return Annotated[members, Meta(description=self.help, max_length=MAX_BATCH)]

    def of(self, member: Any, *, field: str) -> Any:
        """Return a member that was decoded or given as an object. Its unknown names are left out.

        Raises:
            ValidationError: It is no object.
        """
        message = self.message
        if type(member) is message:
            return member
        if type(member) is not dict and not isinstance(member, Mapping):
            raise ValidationError(f"each of {field} must be an object", field=field)
        try:
            return message(**member)
        except TypeError:
            names = self.names
            return message(**{name: member[name] for name in member if name in names})


class Field(Struct, frozen=True):
    """A field of a command that callers give."""

    name: str
    wire: str
    says: Says
    form: Any
    required: bool
    default: Any

    @property
    def absent(self) -> Any:
        """What a message has where the field is not given.

        That is None only where the command has None, too. Otherwise a null that counts as given, as in a
        Python call or in a member of a list, could not be told from absence.
        """
        if self.says.rule is None:
            return None
        return None if self.default is None and not self.required and not self.says.nullable else UNSET

    @property
    def needed(self) -> bool:
        """Whether it must be given. One whose rule takes other fields may be given by those."""
        says = self.says
        return self.required and says.rule is not None and not says.takes and says.otherwise is UNSET


class Declaration(Struct, dict=True, eq=False):
    """A verb: its name, effects and reply, and what is derived from the class of its command.

    It decorates that class, which may have several.

    Args:
        name: Its name in subjects, metrics and permissions; empty for a mere part of a batch.
        reply: A struct with the fields of a successful reply.
        options: The struct of the fields that it has in common with other verbs.
        help: Its effect, in one sentence; the first line of the class's docstring if not given.
        in_order: Whether it is handed over before the next request of its connection starts, so that it takes
            effect in the order in which requests were sent.
        writes: Whether it may change anything.
        destroys: Whether it may remove existing data.
        walks: Whether it may read many rows. It then has a higher threshold for counting as slow.
        part: How it is named among the writes of a batch, if it may be one.
        without: Fields of the command that callers of this verb do not give, with what they are.
        instead: What this verb says of fields that another verb of the class gives otherwise.
        wires: Further fields of messages, for a verb whose command is made by a method.
        maker: Name of the caller's method that makes the command of a message and an origin.
        sent: Makes the fields of a message of such a command.
        several: The field whose members are judged one by one.
        order: The names of all fields in messages, where it is not that of the command.
        rules: What holds for its fields together, as parts of a JSON schema.
        among: The verbs of its family, by name, of which it becomes one.
        schema: Name of the schema of a request, where a verb of another family has the usual one.
        kind: The class that was declared.
    """

    name: str
    reply: type[Struct] | None
    options: type[Struct] = CallFields
    help: str = ""
    in_order: bool = False
    writes: bool = False
    destroys: bool = False
    walks: bool = False
    part: Part | None = None
    without: Mapping[str, Any] = {}
    instead: Mapping[str, Says] = {}
    wires: tuple[Wire, ...] = ()
    maker: str = ""
    sent: Callable[[Any], dict[str, Any]] | None = None
    several: str = ""
    order: tuple[str, ...] = ()
    rules: tuple[dict[str, Any], ...] = ()
    among: dict[str, Declaration] = msgspec.field(default_factory=lambda: DECLARED)
    schema: str = ""
    kind: type[Struct] = Struct

    def __call__(self, kind: C) -> C:
        """Declare a class of commands."""
        self.kind = kind
        self.help = self.help or (kind.__doc__ or "").partition("\n")[0]
        self.writes = self.writes or self.in_order
        self.schema = self.schema or f"{self.name.title().replace('_', '')}Fields"
        kind.declaration = self  # type: ignore[attr-defined]
        if self.name:
            self.among[self.name] = self
        if self.part is not None:
            PARTS[self.part.name] = self
        return kind

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The fields that callers give, in the order in which messages have them."""
        fields = []
        for field in msgspec.structs.fields(self.kind):
            says = self.instead.get(field.name) or _said(field.type)
            if says is not None and field.name not in self.without:
                default = None if field.required else field.default
                form = _bare(field.type) if says.form is None else says.form
                if says.help and not isinstance(form, Members):
                    also = unsaid(says.unsaid) if says.unsaid else None
                    form = Annotated[form, Meta(description=says.help, extra_json_schema=also)]
                wire = says.wire or field.name
                fields.append(Field(field.name, wire, says, form, field.required or says.required, default))
        if self.order:
            fields.sort(key=lambda field: self.order.index(field.wire))
        return tuple(fields)

    @cached_property
    def own(self) -> dict[str, tuple[Any, Any]]:
        """The names of a message's own fields, each with its form and with what stands for its absence."""
        own: dict[str, tuple[Any, Any]] = {}
        for field in self.fields:
            own[field.wire] = (field.form, field.absent)
            for taken in field.says.takes:
                if isinstance(taken, Wire):
                    own[taken.name] = (taken.form, None)
        for wire in self.wires:
            own[wire.name] = (wire.form, None)
        return own

    def own_as(self, part: Part) -> dict[str, tuple[Any, Any]]:
        """The same among the writes of a batch, where null is the absence of what tells them apart."""
        own = {part.name if name == part.of else name: field for name, field in self.own.items()}
        form, absent = own.get(part.name, (Literal[True], None))
        form = Annotated[form, Meta(description=part.help)] if part.help else form
        return own | {part.name: (form, absent if self._nullable(part.of) else None)}

    def _nullable(self, wire: str) -> bool:
        return any(field.says.nullable for field in self.fields if field.wire == wire)

    @cached_property
    def needed(self) -> frozenset[str]:
        """The names of fields that must be given."""
        needed = frozenset(field.wire for field in self.fields if field.needed or field.says.needed)
        return needed | {wire.name for wire in self.wires if wire.required}

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all fields of a message."""
        return frozenset(self.own) | frozenset(self.options.__struct_fields__)

    @cached_property
    def has_value(self) -> bool:
        """Whether callers give the values of the entries that this leaves."""
        items = any(isinstance(form, Members) for form, _ in self.own.values())
        return "value" in self.own or (bool(self.several) and items)

    @cached_property
    def message(self) -> type[Struct]:
        """The struct of a message, without types but for the members of a list."""
        fields: list[Any] = [(name, _decoded(form), absent) for name, (form, absent) in self.own.items()]
        fields += [(name, Any, None) for name in self.options.__struct_fields__ if name not in self.own]
        name = f"{self.kind.__name__}Message"
        return msgspec.defstruct(name, fields, kw_only=True, gc=False, forbid_unknown_fields=True)

    @cached_property
    def decode(self) -> Callable[[bytes], Any]:
        """Decodes a message all of whose names are known, and raises for any other."""
        return msgspec.json.Decoder(self.message).decode

    @cached_property
    def nested(self) -> dict[str, tuple[str, ...]]:
        """The fields of a message with objects whose names its decoding does not look at.

        Of a list of members, these are the objects in the fields that are named.
        """
        nested: dict[str, tuple[str, ...]] = {}
        forms = {name: form for name, (form, _) in self.own.items()}
        forms |= {field.encode_name: field.type for field in msgspec.structs.fields(self.options)}
        for name, form in forms.items():
            if not isinstance(form, Members):
                nested |= {name: ()} if holds_objects(form) else {}
            elif form.nested:
                nested[name] = form.nested
        return nested

    def inner(self, message: Any) -> dict[str, Any]:
        """Return such objects of a decoded message."""
        inner: dict[str, Any] = {}
        for name, within in self.nested.items():
            value = getattr(message, name)
            if value is None or value is UNSET:
                continue
            if not within:
                inner[name] = value
            elif any(getattr(member, one) is not None for member in value for one in within):
                inner[name] = [{one: getattr(member, one) for one in within} for member in value]
        return inner

    def of_fields(self, fields: Mapping[str, Any]) -> Any:
        """Return the message that has some fields. Unknown ones are left out."""
        names = self.names
        return self.message(**{name: field for name, field in fields.items() if name in names})

    @cached_property
    def make(self) -> Callable[[Any, Any, Origin | None], Any]:
        """The function that makes the command of a caller, a message and an origin, which a read may lack.

        For a verb whose members are judged one by one it returns these, too, as `Several`.
        """
        return self._maker(_Source(self.kind, "caller, message, origin"))

    @cached_property
    def make_part(self) -> Callable[[Any, Any, Origin], Any]:
        """The same for a member of a list, in which null is what was given, and a field has another name."""
        return self._maker(_Source(self.kind, "caller, message, origin", null_is_given=True), self.part)

    @cached_property
    def call(self) -> Callable[..., Any]:
        """The same of a caller and the arguments of a Python call, in which None is what was given."""
        fields = [f"{name}={'UNSET' if absent is UNSET else None}" for name, (_, absent) in self.own.items()]
        known = _PROVENANCE if "request_id" in self.names else _VIEWING
        if "origin" in self.kind.__struct_fields__:
            fields += [f"{name}=None" for name in known if name not in self.own]
        parameters = ", ".join(["caller", *(["*", *fields] if fields else [])])
        source = _Source(self.kind, parameters, given="", null_is_given=True)
        if "origin" in self.kind.__struct_fields__:
            provenance = ", ".join(name if name in known else "None" for name in _ORIGIN)
            source.lines += [
                " if timeout is not None: deadline = caller.deadline(timeout)",
                f" origin = caller.origin_by({provenance}, deadline)",
            ]
        return self._maker(source)

    def origin_of(self, caller: Any, message: Any, deadline: int | None) -> Origin | None:
        """Return the origin of a message, whose deadline the service has computed; None if it has none."""
        if "request_id" in self.names:
            origin: Origin = caller.origin_of(message, deadline)
            return origin
        if "last_writer" in self.names and "origin" in self.kind.__struct_fields__:
            viewed: Origin = caller.origin_by(None, message.last_writer, None, None, None, deadline)
            return viewed
        return None

    def _maker(self, source: _Source, part: Part | None = None) -> Callable[..., Any]:
        if self.maker:
            return _method(self.maker)
        renamed = {part.of: part.name} if part is not None and part.of else {}
        for field in self.fields:
            if field.needed:
                source.require(field, renamed.get(field.wire, field.wire))
        filled = {name for field in self.fields for name in field.says.fills}
        for field in self.fields:
            if field.name not in filled:
                source.fill(field, renamed.get(field.wire, field.wire), several=field.name == self.several)
        for name, preset in self.without.items():
            source.preset(name, preset)
        return source.function(several=bool(self.several))

    @cached_property
    def fields_of(self) -> Callable[[Any], dict[str, Any]]:
        """The function that returns the fields of the message that says what a command says.

        The origin of the command is not among them. A field that is None or unset is not sent.
        """
        if self.sent is not None:
            return self.sent
        names: dict[str, Any] = {"UNSET": UNSET}
        lines = ["def fields_of(command):", " fields = {}"]
        for field in self.fields:
            lines.append(f" field = command.{field.name}")
            names[f"sent_{field.name}"] = field.says.sent
            sent = "field" if field.says.sent is None else f"sent_{field.name}(field)"
            if field.says.flag:
                lines.append(f" if field is True: fields[{field.wire!r}] = True")
            elif field.required:
                lines.append(f" fields[{field.wire!r}] = {sent}")
            else:
                lines.append(f" if field is not None and field is not UNSET: fields[{field.wire!r}] = {sent}")
        return _executed([*lines, " return fields"], names, "fields_of")

    def part_of(self, command: Any) -> dict[str, Any]:
        """Return the same as one of the writes of a batch."""
        assert self.part is not None
        sent = self.fields_of(command)
        if not self.part.of:
            return sent | {self.part.name: True}
        return {self.part.name if name == self.part.of else name: field for name, field in sent.items()}

    def member(self, name: str, *, help: str, shared: tuple[str, ...] = ()) -> type[Struct]:
        """Return the struct of an object that holds its own fields, for schemas of calls with several.

        Fields that are shared may be given beside the objects instead.
        """
        return _typed(name, self.own, self.needed.difference(shared), self.rules, help=help)

    @cached_property
    def request(self) -> type[Struct]:
        """The struct of a request with its types, for schemas."""
        if not self.own:
            return self.options
        return _typed(
            self.schema,
            self.own,
            self.needed,
            self.rules,
            base=self.options,
            help=f"The fields of `{self.name}`.",
        )


_ORIGIN: Final = ("request_id", "writer", "spec_ref", "fence", "once")
_PROVENANCE: Final = (*_ORIGIN, "timeout", "deadline")
"""The arguments of every Python call that writes."""
_VIEWING: Final = ("writer", "timeout", "deadline")
"""Those of a call that only shows something to a person."""


class _Source:
    """The source of a function that makes commands, as `dataclasses` has one: a loop takes twice as long.

    Args:
        kind: The class of the commands.
        parameters: The parameters of the function.
        given: What stands before the name of a field in the function.
        null_is_given: Whether None is what a caller gave. Otherwise it is the absence of a field.
    """

    def __init__(
        self, kind: type[Struct], parameters: str, *, given: str = "message.", null_is_given: bool = False
    ) -> None:
        self._kind = kind
        self._names: dict[str, Any] = {"kind": kind, "UNSET": UNSET, "missing": missing}
        self._given = given
        self._null_is_given = null_is_given
        known = {"namespace": "namespace=caller.namespace", "origin": "origin=origin"}
        self._made = [made for name, made in known.items() if name in kind.__struct_fields__]
        self.lines = [f"def make({parameters}):"]

    def require(self, field: Field, wire: str) -> None:
        value = self._given + wire
        null = "" if self._null_is_given or field.says.nullable else f" or {value} is None"
        self.lines.append(f" if {value} is UNSET{null}: raise missing({wire!r})")

    def fill(self, field: Field, wire: str, *, several: bool) -> None:
        says, value = field.says, self._given + wire
        taken = [self._given + (one if isinstance(one, str) else one.name) for one in says.takes]
        rule = f"caller.{says.rule}" if isinstance(says.rule, str) else f"rule_{field.name}"
        self._names[f"rule_{field.name}"] = says.rule
        if several:
            origin = ["origin"] if "origin" in self._kind.__struct_fields__ else []
            self.lines.append(f" several = {rule}({', '.join([value, *taken, *origin])})")
            self._made.append(f"{field.name}=tuple(several.legal)")
            return
        first = value
        if says.otherwise is not UNSET:
            self._names[f"otherwise_{field.name}"] = says.otherwise
            null = "" if self._null_is_given else f" or {value} is None"
            first = f"(otherwise_{field.name} if {value} is UNSET{null} else {value})"
        elif taken and field.required and not self._null_is_given:
            first = f"(UNSET if {value} is None else {value})"  # as absence, which the rule tells from null
        filled = (field.name, *says.fills)
        targets = ", ".join(f"made_{name}" for name in filled)
        arguments = ", ".join([first, *taken, *(["origin"] if says.of_origin else [])])
        if field.required:
            self.lines.append(f" {targets} = {rule}({arguments})")
        else:
            absent = [f"{one} is None" for one in (value, *taken)]
            if field.absent is UNSET:
                null = "" if self._null_is_given else f" or {value} is None"
                absent[0] = f"({value} is UNSET{null})"
            defaults = {one.name: one.default for one in msgspec.structs.fields(self._kind)}
            self._names |= {f"default_{name}": defaults[name] for name in filled}
            self.lines += [
                f" if {' and '.join(absent)}:",
                f"  {targets} = {', '.join(f'default_{name}' for name in filled)}",
                f" else: {targets} = {rule}({arguments})",
            ]
        self._made += [f"{name}=made_{name}" for name in filled]

    def preset(self, name: str, preset: Any) -> None:
        self._names[f"preset_{name}"] = preset
        self._made.append(f"{name}=preset_{name}")

    def function(self, *, several: bool) -> Callable[..., Any]:
        command = f"kind({', '.join(self._made)})"
        self.lines.append(f" return ({command}, several)" if several else f" return {command}")
        return _executed(self.lines, self._names, "make")


def _executed(lines: list[str], names: dict[str, Any], name: str) -> Callable[..., Any]:
    """Define a function and return it. Its source has no text from outside of declarations."""
    exec("\n".join(lines), names)
    function: Callable[..., Any] = names[name]
    return function


verb = Declaration
"""The decorator of a class of commands that is a verb."""


def missing(name: str) -> MissingField:
    """Return the error for a required field that is not given."""
    return MissingField(f"Missing required field: {name}", field=name)


def holds_objects(form: Any) -> bool:
    """Return whether a form is an object of known names, or a list of them."""
    return _struct_in(inspect.type_info(form)) is not None


def _struct_in(kind: inspect.Type) -> inspect.StructType | None:
    match kind:
        case inspect.Metadata(type=inner) | inspect.ListType(item_type=inner):
            return _struct_in(inner)
        case inspect.UnionType(types=types):
            return next((struct for one in types if (struct := _struct_in(one)) is not None), None)
        case inspect.StructType():
            return kind
        case _:
            return None


def _typed(
    name: str,
    fields: Mapping[str, tuple[Any, Any]],
    needed: Collection[str],
    rules: tuple[dict[str, Any], ...],
    *,
    base: type[Struct] | None = None,
    help: str = "",
) -> type[Struct]:
    """Make a struct for schemas, and keep what holds for its fields together."""
    typed: list[Any] = []
    for field, (form, _) in fields.items():
        listed = form.list if isinstance(form, Members) else form
        typed.append((field, listed) if field in needed else (field, _optional(listed), UNSET))
    if rules:
        RULES[name] = {"allOf": list(rules)}
    bases = () if base is None else (base,)
    return msgspec.defstruct(name, typed, bases=bases, namespace={"__doc__": help}, kw_only=True)


def _method(name: str) -> Callable[[Any, Any, Origin], Any]:
    return lambda caller, message, origin: getattr(caller, name)(message, origin)


def _said(annotation: Any) -> Says | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((one for one in get_args(annotation) if isinstance(one, Says)), None)


def _bare(annotation: Any) -> Any:
    """Return the type of a command's field without what stands for its absence."""
    kind = get_args(annotation)[0]
    types = [one for one in get_args(kind) if one not in (type(None), UnsetType)]
    return Union[tuple(types)] if types else kind  # noqa: UP007 - of a number that is not known


def _decoded(form: Any) -> Any:
    """Return the type as which a field is decoded: any, but for members, whose names are found faster so."""
    return list[form.message] | None if isinstance(form, Members) else Any


def _optional(form: Any) -> Any:
    inner = get_args(form)[0] if get_origin(form) is Annotated else form
    return form if inner is Any else Union[form, UnsetType]  # noqa: UP007 - a form may be no type
