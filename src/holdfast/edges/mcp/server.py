"""The MCP server: the SDK's protocol in front of tools, resources, subscriptions and prompts.

Law: this module only translates. Whoever builds a server says who the caller of a request is; a request whose
caller is not known never gets here.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp.server import Server
from mcp.shared.exceptions import MCPError

import holdfast
from holdfast import rules
from holdfast.edges.mcp import resources, results
from holdfast.edges.mcp.prompts import PROMPTS, Prompt
from holdfast.edges.mcp.schemas import input_schema, output_schema
from holdfast.edges.mcp.subscriptions import Subscriptions
from holdfast.edges.mcp.tools import TOOLS, Tool, allowed
from holdfast.errors import HoldfastError
from holdfast.wire.errors import error_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server import ServerRequestContext

    from holdfast.edges.mcp.callers import ToolCaller

    Context = ServerRequestContext[Any, Any]

NAME: Final = "holdfast"
INSTRUCTIONS: Final = (
    "Holdfast is a shared store of entries with versions. Other agents and programs read and write it while "
    "you work. Read an entry before you change it, and pass the version that you read as expected_version, "
    "so that you never overwrite what you have not seen. Take a lock before work that only one agent may "
    "do, and give its token as the fence of your writes. Save checkpoints, so that another agent can go on "
    "where you stopped. Every result has success; if it is false, do what next says."
)


class Handlers:
    """The handlers of a server's requests.

    Args:
        caller_of: Returns the caller of a request.
    """

    def __init__(self, caller_of: Callable[[Context], ToolCaller]) -> None:
        self._caller = caller_of
        self.subscriptions = Subscriptions()

    def server(self) -> Server[Any]:
        """Return the server."""
        return Server(
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
            payload = caller.apart.arguments(params.arguments or {})
            answer = await tool.run(caller, payload, caller.writer or _client(ctx))
        except HoldfastError as error:
            return results.refusal(caller.apart, error)
        return results.success(caller.apart, answer)

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        caller, cursor = self._caller(ctx), None if params is None else params.cursor
        uris = resources.ResourceUris(caller.kv)
        try:
            keys, following = await resources.page_of(caller, cursor)
        except HoldfastError as error:
            raise _protocol_error(error) from None
        found = [types.Resource(name=key, uri=uris.uri(key), mime_type=resources.MIME) for key in keys]
        if cursor is None:
            found.insert(0, _root(uris, caller))
        return types.ListResourcesResult(resources=found, next_cursor=following)

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
            found = await self.subscriptions.subscribe(self._caller(ctx), ctx, params.uri)
        except HoldfastError as error:
            raise _protocol_error(error) from None
        if not found:
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
        input_schema=input_schema(tool),
        output_schema=output_schema(tool),
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


def _client(ctx: Context) -> str | None:
    """Return the name that the client gives itself, if it can be that of a writer."""
    told = ctx.session.client_params
    try:
        return None if told is None else rules.identity(told.client_info.name, field="last_writer")
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
