"""A provider of OpenFeature: the flags of a namespace, kept in memory and in step with the store.

An evaluation never waits and never raises. While the store is away it goes on with the last known values
and says so in its reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Unavailable, ValidationError
from holdfast.extras import imported
from holdfast.handles.kv import KV

with imported("openfeature", "holdfast.integrations.openfeature"):
    from openfeature.event import ProviderEventDetails
    from openfeature.exception import ErrorCode, ProviderNotReadyError
    from openfeature.flag_evaluation import FlagResolutionDetails, Reason
    from openfeature.provider import AbstractProvider, Metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from openfeature.evaluation_context import EvaluationContext
    from openfeature.flag_evaluation import FlagValueType

    import holdfast.sync.kv
    import holdfast.sync.recipes
    from holdfast.handles.recipes.flags import FollowedFlags
    from holdfast.model import Entry

_SIMPLE: Final = (bool, int, float, str)


class HoldfastProvider(AbstractProvider):
    """Evaluates the flags of a namespace, which `kv.flag` sets.

    With an asynchronous handle, use it as an asynchronous context manager around the time in which it is the
    provider. With a handle of `holdfast.sync`, OpenFeature starts it and shuts it down.

    Args:
        kv: The handle, from `Store.kv` of either kind.
        stale_after: Seconds without news from the store after which evaluations have the reason `STALE`.

    Example:
        `openfeature.api.set_provider(HoldfastProvider(holdfast.sync.open("state.db").kv("shop")))`
    """

    def __init__(self, kv: KV | holdfast.sync.kv.KV, *, stale_after: float = 30) -> None:
        super().__init__()
        self._stale_after = stale_after
        self._stale = False
        self._waiting: FollowedFlags | None = None
        self._plain: holdfast.sync.recipes.FollowedFlags | None = None
        self._flags: FollowedFlags | holdfast.sync.recipes.FollowedFlags | None = None
        if isinstance(kv, KV):
            self._waiting = kv.flags().all(on_change=self._tell)
        else:
            self._plain = kv.flags().all(on_change=self._tell)

    async def __aenter__(self) -> Self:
        if self._waiting is None:
            raise ValidationError("a provider with a handle of holdfast.sync is started by OpenFeature")
        self._flags = await self._waiting.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._waiting is not None
        self._flags = None
        await self._waiting.__aexit__(kind, error, trace)

    def initialize(self, evaluation_context: EvaluationContext) -> None:
        """Load the flags; OpenFeature calls this.

        Raises:
            ProviderNotReadyError: The handle is asynchronous, and the provider's block has not begun.
        """
        if self._plain is not None:
            self._flags = self._plain.__enter__()
        elif self._flags is None:
            raise ProviderNotReadyError("enter the provider with 'async with' before you set it")

    def shutdown(self) -> None:
        """Stop following the flags; OpenFeature calls this."""
        if self._plain is not None and self._flags is not None:
            self._flags = None
            self._plain.__exit__(None, None, None)

    def get_metadata(self) -> Metadata:
        """Get the name of this provider."""
        return Metadata(name="Holdfast")

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[bool]:
        """Evaluate a flag that is true or false."""
        return self._resolved(flag_key, default_value)

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[str]:
        """Evaluate a flag that is text."""
        return self._resolved(flag_key, default_value)

    def resolve_integer_details(
        self, flag_key: str, default_value: int, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[int]:
        """Evaluate a flag that is a whole number."""
        return self._resolved(flag_key, default_value)

    def resolve_float_details(
        self, flag_key: str, default_value: float, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[float]:
        """Evaluate a flag that is a number."""
        return self._resolved(flag_key, float(default_value))

    def resolve_object_details(
        self,
        flag_key: str,
        default_value: Sequence[FlagValueType] | Mapping[str, FlagValueType],
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Sequence[FlagValueType] | Mapping[str, FlagValueType]]:
        """Evaluate a flag that is a list or an object."""
        found: FlagResolutionDetails[Any] = self._resolved(flag_key, default_value)
        if isinstance(found.value, list | dict) or found.error_code is not None:
            return found
        return _failed(default_value, ErrorCode.TYPE_MISMATCH, f"flag {flag_key!r} is no object and no list")

    def _resolved(self, name: str, default: Any) -> FlagResolutionDetails[Any]:
        try:
            if self._flags is None:
                raise Unavailable("the provider has not been started")
            state = self._flags.state(name, default)
            stale = self._is_stale(self._flags.stale_for)
        except ValidationError as error:
            return _failed(default, ErrorCode.FLAG_NOT_FOUND, error.message)
        except Unavailable as error:
            return _failed(default, ErrorCode.PROVIDER_NOT_READY, error.message)
        if state.reason == "missing":
            return _failed(default, ErrorCode.FLAG_NOT_FOUND, f"flag {name!r} is not set")
        if state.reason == "wrong_type":
            return _failed(default, ErrorCode.TYPE_MISMATCH, f"flag {name!r} holds another type")
        known = {key: part for key, part in state.metadata.items() if isinstance(part, _SIMPLE)}
        reason = Reason.STALE if stale else Reason.STATIC
        return FlagResolutionDetails(
            value=state.value, reason=reason, variant=state.variant, flag_metadata=known
        )

    def _is_stale(self, age: float) -> bool:
        """Return whether the values are too old, and emit an event when that has changed."""
        stale = age > self._stale_after
        if stale != self._stale:
            self._stale = stale
            if stale:
                message = f"no news from the store for {age:.0f} seconds"
                self.emit_provider_stale(ProviderEventDetails(message=message))
            else:
                self.emit_provider_ready(ProviderEventDetails(message="the store answers again"))
        return stale

    def _tell(self, name: str, entry: Entry | None) -> None:
        self.emit_provider_configuration_changed(ProviderEventDetails(flags_changed=[name]))


def _failed(default: Any, code: ErrorCode, message: str) -> FlagResolutionDetails[Any]:
    return FlagResolutionDetails(value=default, reason=Reason.ERROR, error_code=code, error_message=message)
