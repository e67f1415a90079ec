"""A worker that writes reports with LangGraph: start two, or ten, on one SQLite file.

    pip install 'holdfast-kv[langgraph]'
    python examples/workers/langgraph_worker.py ada
    python examples/workers/langgraph_worker.py grace

Start the last two at the same time. Together they write each report once. One of them prints such as

    ada: research report-1
    ada: write report-1
    ada: research report-3

If a worker is killed, another one goes on with its report, after the step that was done last. `HOLDFAST_URL`
names another store, `langgraph_worker.db` in this folder if it is not set.
"""

import asyncio
import contextlib
import operator
import os
import sys
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

import holdfast
from holdfast.integrations.langgraph import HoldfastSaver

REPORTS = [f"report-{number}" for number in range(1, 7)]
LEASE = 3  # seconds after which another worker takes over from one that was killed
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.1"))


class State(TypedDict):
    """What a report consists of so far."""

    title: str
    steps: Annotated[list[str], operator.add]


def graph_of(name: str, saver: HoldfastSaver) -> Any:
    """A graph of two steps, each of which stands for calls of a model."""

    async def step(what: str, state: State) -> dict[str, list[str]]:
        print(f"{name}: {what} {state['title']}", flush=True)
        await asyncio.sleep(STEP_SECONDS)
        return {"steps": [f"{what} by {name}"]}

    async def research(state: State) -> dict[str, list[str]]:
        return await step("research", state)

    async def write(state: State) -> dict[str, list[str]]:
        return await step("write", state)

    builder = StateGraph(State)
    builder.add_node("research", research)
    builder.add_node("write", write)
    builder.add_edge(START, "research")
    builder.add_edge("research", "write")
    builder.add_edge("write", END)
    return builder.compile(checkpointer=saver)


async def finish(graph: Any, title: str) -> None:
    """Begin a report, or go on with it, unless it is written."""
    thread = {"configurable": {"thread_id": title}}
    state = await graph.aget_state(thread)
    if not state.values:
        await graph.ainvoke({"title": title, "steps": []}, thread, durability="sync")
    elif state.next:
        await graph.ainvoke(None, thread, durability="sync")


async def main(name: str) -> None:
    """Work until all reports are written, by this worker and by others."""
    async with holdfast.open(os.environ.get("HOLDFAST_URL", "langgraph_worker.db")) as store:
        graph, kv = graph_of(name, HoldfastSaver(store)), store.kv("reports")
        for patience in (0, None):  # first what nobody is writing, then what others have not finished
            for title in REPORTS:
                with contextlib.suppress(holdfast.Busy):
                    async with kv.lock(title, ttl=LEASE, owner=name, timeout=patience):
                        await finish(graph, title)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
