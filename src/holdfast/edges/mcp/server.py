"""The MCP server: the SDK's protocol in front of tools, resources, subscriptions and prompts.

This module only translates. Whoever builds a server says who the caller of a request is; a request whose
caller is not known never gets here. The result of a tool is structured content for programs, and the same as
text for models. A refusal is data: it has the code and the fields that every door sends, and a sentence that
says what to do next. A lost race is an ordinary outcome, so it does not count as an error of the tool;
everything else that was refused does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import mcp_types as types
import msgspec
from mcp.server import Server, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError

import holdfast
from holdfast import rules, tracing
from holdfast.edges.mcp import resources
from holdfast.edges.mcp.bypass import SdkBypass
from holdfast.edges.mcp.callers import ToolCaller
from holdfast.edges.mcp.prompts import PROMPTS, Prompt
from holdfast.edges.mcp.resources import Subscriptions
from holdfast.edges.mcp.schemas import input_schema, output_schema
from holdfast.edges.mcp.tools import TOOLS, Tool, allowed
from holdfast.errors import HoldfastError
from holdfast.wire.errors import error_fields

Context = ServerRequestContext[Any, Any]

NAME: Final = "holdfast"
INSTRUCTIONS: Final = (
    "Holdfast is a shared store of entries with versions. Other agents and programs read and write it while "
    "you work. Read an entry before you change it, and pass the version that you read as expected_version, "
    "so that you never overwrite what you have not seen. Take a lock before work that only one agent may "
    "do, and give its token as the fence of your writes. Save checkpoints, so that another agent can go on "
    "where you stopped. Every result has success; if it is false, do what next says."
)
LOST_RACES: Final = frozenset({"VERSION_CONFLICT", "CONDITION_FAILED", "FENCED"})
"""Codes of outcomes that a caller meets when others write too."""

_CORRECT: Final = "Correct what the message names, and call the tool again."
_LATER: Final = "Nothing was written. Wait a moment, then call the tool again with the same arguments."
_GIVE_UP: Final = "Do not repeat the call. Tell your user what the message says."
NEXT: Final[dict[str, str]] = {
    "INVALID_JSON": _CORRECT,
    "MISSING_FIELD": _CORRECT,
    "INVALID_SUBJECT": _CORRECT,
    "INVALID_PLUGIN_NAME": _CORRECT,
    "VALIDATION_ERROR": _CORRECT,
    "VALUE_TOO_LARGE": "Store less under one key, or split the value over several keys.",
    "KEY_NOT_FOUND": "Create the key, or go on without it; it may have expired.",
    "CONDITION_FAILED": "Look at current, and decide again from it.",
    "FENCED": "Another caller has taken the lock since. Stop the work that it protects; acquire the lock "
    "again before you write.",
    "TABLE_NOT_FOUND": "Call table_list to see the tables that there are.",
    "TABLE_EXISTS": "Use the table that is there.",
    "ITEM_NOT_FOUND": "Go on without the item; it may have expired.",
    "INDEX_NOT_FOUND": "Call table_list to see the indexes that there are.",
    "TTL_NOT_CONFIGURED": _GIVE_UP,
    "QUOTA_EXCEEDED": "Delete what is no longer needed, or ask your user to raise the quota.",
    "PERMISSION_DENIED": _GIVE_UP,
    "UNSUPPORTED": _GIVE_UP,
    "TOO_EXPENSIVE": "Ask for less at a time: a narrower prefix or a smaller limit.",
    "VERSION_CONFLICT": "Another writer was faster. Decide again from current, then call the tool with its "
    "version as expected_version, or leave the entry as it is.",
    "RATE_LIMITED": _LATER,
    "BUSY": _LATER,
    "TIMEOUT": _LATER,
    "UNAVAILABLE": _LATER,
    "STORAGE_FULL": "Tell your user that the disk is full. Reading and deleting still work.",
    "OUTCOME_UNKNOWN": "It may have been written or not. Read the entry, or repeat the call if it had a "
    "request_id.",
    "DATABASE_ERROR": _GIVE_UP,
    "INTERNAL_ERROR": _GIVE_UP,
}
"""Advice for an agent, by error code."""
_REUSED: Final = "Another call has used this request_id. Call again with a new one."
_GONE: Final = (
    "The entry is gone. Call the tool with expected_version 0 to create it anew, or leave it; history says "
    "what happened to it."
)


class Handlers:
    """The handlers of a server's requests.

    Args:
        caller_of: Returns the caller of a request.
    """

    def __init__(self, caller_of: Callable[[Context], ToolCaller]) -> None:
        self._caller = caller_of
        self.subscriptions = Subscriptions()

    def close(self) -> None:
        """End all subscriptions."""
        self.subscriptions.close()

    def server(self) -> Server[Any]:
        """Return the server."""
        server: Server[Any] = Server(
            NAME,
            version=holdfast.__version__,
            title="Holdfast",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=_input_schema_of,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        follow_traces(server)
        return server

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[shown(tool) for tool in allowed(self._caller(ctx)).values()])

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        caller = self._caller(ctx)
        tool = allowed(caller).get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, _no_tool(caller, params.name))
        try:
            payload = caller.bypass.arguments(params.arguments or {})
            answer = await tool.run(caller, payload, caller.writer or client_name(ctx))
        except HoldfastError as error:
            return refusal(caller.bypass, error)
        return success(caller.bypass, answer)

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        caller, cursor = self._caller(ctx), None if params is None else params.cursor
        uris = resources.ResourceUris(caller.kv)
        try:
            keys, following = await resources.page_of(caller, cursor)
        except HoldfastError as error:
            raise _protocol_error(error) from None
        listed = [types.Resource(name=key, uri=uris.uri(key), mime_type=resources.MIME) for key in keys]
        if cursor is None:
            listed.insert(0, _root(uris, caller))
        return types.ListResourcesResult(resources=listed, next_cursor=following)

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            name="entry",
            title="An entry by its key",
            uri_template=resources.ResourceUris(self._caller(ctx).kv).template,
            description="The value of a key with its version, deadline, last writer and purpose.",
            mime_type=resources.MIME,
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        try:
            text = await resources.content_of(self._caller(ctx), params.uri)
        except HoldfastError as error:
            raise _protocol_error(error) from None
        if text is None:
            raise _no_resource(params.uri)
        content = types.TextResourceContents(uri=params.uri, mime_type=resources.MIME, text=text)
        return types.ReadResourceResult(contents=[content])

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        try:
            subscribed = await self.subscriptions.subscribe(self._caller(ctx), ctx, params.uri)
        except HoldfastError as error:
            raise _protocol_error(error) from None
        if not subscribed:
            raise _no_resource(params.uri)
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self.subscriptions.unsubscribe(self._caller(ctx), ctx, params.uri)
        return types.EmptyResult()

    async def _listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        try:
            return await self.subscriptions.listen(self._caller(ctx), ctx, params)
        except HoldfastError as error:
            raise _protocol_error(error) from None

    async def _list_prompts(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[_prompt(one) for one in self._prompts(ctx).values()])

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        prompt = self._prompts(ctx).get(params.name)
        if prompt is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name[:60]!a}")
        try:
            text = prompt.filled(params.arguments or {})
        except HoldfastError as error:
            raise _protocol_error(error) from None
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(description=prompt.help, messages=[message])

    def _prompts(self, ctx: Context) -> dict[str, Prompt]:
        """Return the prompts whose tools the caller may use."""
        tools = allowed(self._caller(ctx)).keys()
        return {name: prompt for name, prompt in PROMPTS.items() if tools >= set(prompt.tools)}


@cache
def shown(tool: Tool) -> types.Tool:
    """Return a tool as clients see it."""
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.help,
        input_schema=input_schema(tool.arguments),
        output_schema=output_schema(tool.reply),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=not tool.writes,
            destructive_hint=tool.destroys,
            idempotent_hint=tool.idempotent or not tool.writes,
            open_world_hint=False,
        ),
    )


def _input_schema_of(name: str) -> dict[str, Any] | None:
    tool = TOOLS.get(name)
    return None if tool is None else shown(tool).input_schema


def follow_traces(server: Server[Any]) -> None:
    """Make the calls of each request belong to its trace.

    This takes the place of what the SDK does about traces: that would log what is illegal in the `_meta` of a
    caller, and put a span of its own around ours.
    """
    server.middleware[:] = [_traced]


async def _traced(ctx: Context, call_next: CallNext) -> HandlerResult:
    with tracing.use(tracing.of_meta(ctx.meta)):
        return await call_next(ctx)


def client_name(ctx: Context) -> str | None:
    """Return the name that the client gives itself, if it can be that of a writer."""
    client = ctx.session.client_params
    try:
        return None if client is None else rules.identity(client.client_info.name, field="last_writer")
    except HoldfastError:
        return None


def _no_tool(caller: ToolCaller, name: str) -> str:
    if name in TOOLS:
        return f"the tool {name} is not available to you for {caller.owner}"
    return f"there is no tool {name[:60]!a}"


def _root(uris: resources.ResourceUris, caller: ToolCaller) -> types.Resource:
    return types.Resource(
        name=f"keys of {caller.owner}",
        uri=uris.root,
        description="The first keys, in order. Subscribe to it to hear of every change.",
        mime_type=resources.MIME,
    )


def _prompt(prompt: Prompt) -> types.Prompt:
    arguments = [
        types.PromptArgument(name=one.name, description=one.help, required=one.required)
        for one in prompt.arguments
    ]
    return types.Prompt(name=prompt.name, title=prompt.title, description=prompt.help, arguments=arguments)


def _no_resource(uri: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, "there is no such resource", {"uri": uri})


def _protocol_error(error: HoldfastError) -> MCPError:
    """Return the error for a request that has no result to put a refusal into."""
    code = types.INTERNAL_ERROR if error.retryable else types.INVALID_PARAMS
    return MCPError(code, error.message, error_fields(error))


def success(bypass: SdkBypass, fields: dict[str, Any]) -> types.CallToolResult:
    """Return the result of a call that was done."""
    return _result(bypass, {"success": True, **fields}, error=False)


def refusal(bypass: SdkBypass, error: HoldfastError) -> types.CallToolResult:
    """Return the result of a call that was refused."""
    fields = {"success": False, **error_fields(error)}
    return _result(bypass, {**fields, "next": _next(fields)}, error=error.code not in LOST_RACES)


def _next(fields: dict[str, Any]) -> str:
    if fields["error_code"] == "VERSION_CONFLICT":
        if "reason" in fields:
            return _REUSED
        if fields["current"] is None:
            return _GONE
    return NEXT[fields["error_code"]]


def _result(bypass: SdkBypass, fields: dict[str, Any], *, error: bool) -> types.CallToolResult:
    text, structured = bypass.result(msgspec.json.encode(fields))
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=structured, is_error=error
    )
