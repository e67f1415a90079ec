"""`./dev soak`: the campaigns that are too long for the suite.

What the suite does in small, this does in large: the same tests with more rounds. Every campaign is bounded
and stops by itself.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Final

CAMPAIGNS: Final = {
    "kill": (
        [
            "tests/robustness/test_kill.py",
            "tests/robustness/test_tables_kill.py",
            "tests/robustness/test_service_kill.py",
            "tests/robustness/test_sweep_killed.py",
            "--timeout=0",
        ],
        {"HOLDFAST_KILL_CYCLES": "{rounds}"},
        500,
    ),
    "shared": (
        ["tests/robustness/test_shared_store.py", "--timeout=0", "-s"],
        {"HOLDFAST_SHARED_ROUNDS": "{rounds}"},
        100,
    ),
    "blobs": (
        ["tests/robustness/test_blobs_kill.py", "--timeout=0"],
        {"HOLDFAST_BLOB_CYCLES": "{rounds}"},
        200,
    ),
    "machine": (
        ["tests/machine", "tests/engines/test_postgres_alike.py", "--timeout=0"],
        {"HOLDFAST_SOAK": "1"},
        1,
    ),
    "conformance": (
        [
            "tests/conformance/every_rule.py",
            "tests/conformance/every_cluster.py",
            "--timeout=0",
            "--numprocesses=2",
        ],
        {},
        1,
    ),
    "cluster": (
        [
            *("tests/cluster_proof", "tests/linear/test_nemesis.py", "tests/robustness/test_cluster.py"),
            *("tests/edges/cli/test_cluster_servers.py", "tests/engines/test_cluster_bootstrap.py"),
            *("--timeout=0", "-s"),
        ],
        {"HOLDFAST_CLUSTER_OPERATIONS": "{rounds}", "HOLDFAST_CLUSTER_SEEDS": "20"},
        100_000,
    ),
    "malformed": (["tests/security/test_malformed.py", "--timeout=0"], {"HOLDFAST_SOAK": "1"}, 1),
    "flood": (
        ["tests/robustness/test_flood.py", "--timeout=0", "-s"],
        {"HOLDFAST_FLOOD_MESSAGES": "{rounds}"},
        1_000_000,
    ),
    "neighbours": (
        ["tests/robustness/test_neighbours.py", "--timeout=0", "-s"],
        {"HOLDFAST_FLOOD_SECONDS": "{rounds}", "HOLDFAST_FLOOD_RATIO": "3"},
        15,
    ),
    "late": (
        ["tests/robustness/test_late.py", "--timeout=0", "-s"],
        {"HOLDFAST_LATE_STOPS": "{rounds}"},
        30,
    ),
    "vanish": (
        ["tests/robustness/test_vanish.py", "tests/edges/cli/test_deep.py", "--timeout=0", "-s"],
        {"HOLDFAST_VANISH_ROUNDS": "{rounds}", "HOLDFAST_CORRUPTION_TRIALS": "{rounds}0"},
        20,
    ),
    "moves": (
        ["tests/robustness/test_moves.py", "--timeout=0", "-s"],
        {"HOLDFAST_MOVE_KILLS": "{rounds}", "HOLDFAST_MOVE_RATE": "560", "HOLDFAST_MOVE_PAUSE": "5"},
        5,
    ),
    "failover": (
        [
            *("tests/robustness/test_failover.py", "tests/robustness/failover_control.py"),
            *("--timeout=0", "-s"),
        ],
        {"HOLDFAST_PROMOTIONS": "{rounds}"},
        50,
    ),
    "memory": (
        ["tests/robustness/test_memory.py", "--timeout=0", "-s"],
        {"HOLDFAST_MEMORY_MINUTES": "{rounds}"},
        30,
    ),
    "linear": (
        ["tests/linear/test_linear.py", "--timeout=0", "-s"],
        {"HOLDFAST_LINEAR_OPERATIONS": "{rounds}"},
        1_000_000,
    ),
    "attacks": (
        [
            *("tests/security/test_wire.py", "tests/security/test_isolation.py"),
            "tests/bus/test_states.py",
            "tests/robustness/test_cost.py",
            "tests/edges/test_http_bounds.py",
            *("tests/security/test_http.py", "tests/security/test_mcp.py", "tests/security/test_types.py"),
            "tests/console/browsing/test_attacks.py",
            "tests/robustness/test_http_flood.py",
            "tests/robustness/test_neighbours.py",
            "tests/security/test_limits.py",
            "tests/robustness/test_quota.py",
            *("tests/security/test_audit_keys.py", "tests/security/test_audit_past.py"),
            "tests/edges/cli/test_audit_anchor.py",
            *("--timeout=0", "-s"),
        ],
        {
            "HOLDFAST_ATTACK_ROUNDS": "{rounds}",
            "HOLDFAST_EVERY_ATTEMPT": "1",
            "HOLDFAST_HALF_SENT": "1500",
            "HOLDFAST_HTTP_ATTACKS": "{rounds}00",
            "HOLDFAST_FLOOD_SECONDS": "15",
            "HOLDFAST_FLOOD_RATIO": "3",
            "HOLDFAST_UNREAD_CONNECTIONS": "60",
            "HOLDFAST_QUOTA_ROUNDS": "{rounds}0",
        },
        500,
    ),
    "console": (
        [
            *("tests/console/flows/test_crowds.py", "tests/console/flows/test_paint.py"),
            *("tests/console/browsing/test_reach.py", "--timeout=0", "-s"),
        ],
        {"HOLDFAST_CONSOLE_KEYS": "{rounds}", "HOLDFAST_CONSOLE_LOADS": "20", "HOLDFAST_SOAK": "1"},
        1_000_000,
    ),
    "cost": (
        [
            *("tests/robustness/test_cost.py", "tests/robustness/test_cost_doors.py"),
            "tests/robustness/test_cost_search.py",
            *("--timeout=0", "-s"),
        ],
        {"HOLDFAST_COST_ROUNDS": "{rounds}"},
        25,
    ),
    "cancellation": (
        ["tests/robustness/test_cancellation.py", "--timeout=0"],
        {"HOLDFAST_CANCELLED_OPERATIONS": "{rounds}"},
        200,
    ),
    "locks": (
        [
            "tests/robustness/test_lock_stopped.py",
            "tests/robustness/test_lock_killed.py",
            "tests/unit/recipes/test_lock_chaos.py",
            "--timeout=0",
        ],
        {"HOLDFAST_LOCK_ROUNDS": "{rounds}", "HOLDFAST_CHAOS_SEEDS": "{rounds}"},
        50,
    ),
    "agents": (
        [
            *("tests/edges/mcp/test_leases.py", "tests/edges/mcp/test_lease_processes.py"),
            *("tests/edges/mcp/real_leases.py", "--timeout=0", "-s"),
        ],
        {"HOLDFAST_AGENT_ROUNDS": "{rounds}"},
        1_000,
    ),
    "clocks": (
        ["tests/clocks", "--timeout=0", "-s"],
        {"HOLDFAST_CLOCK_ROUNDS": "{rounds}", "HOLDFAST_CLOCK_SECONDS": "2"},
        50,
    ),
}

MUTATE: Final = "mutate"
"""The campaign that is no test itself: see `tests.mutate`."""
NAMES: Final = (*CAMPAIGNS, MUTATE)


def main() -> int:
    """Run the campaigns that were asked for; 0 if all passed."""
    parser = argparse.ArgumentParser(prog="./dev soak", description="The suite's own tests, for longer.")
    parser.add_argument("campaign", nargs="*", help=f"any of {', '.join(NAMES)}; without one, all")
    parser.add_argument("--rounds", type=int, help="how many cycles, messages (flood), operations or minutes")
    arguments = parser.parse_args()
    if unknown := set(arguments.campaign) - set(NAMES):
        parser.error(f"unknown campaign: {', '.join(sorted(unknown))}")
    return max(run(name, arguments.rounds) for name in arguments.campaign or NAMES)


def run(name: str, rounds: int | None) -> int:
    """Run one campaign; the exit code of its tests."""
    if name == MUTATE:
        return subprocess.run([sys.executable, "-m", "tests.mutate"], check=False).returncode
    tests, variables, usual = CAMPAIGNS[name]
    settings = {
        key: os.environ[key] if rounds is None and key in os.environ else value.format(rounds=rounds or usual)
        for key, value in variables.items()
    }
    print(f"soak: {name} {settings}", flush=True)
    command = [sys.executable, "-m", "pytest", *tests, "-o", "faulthandler_timeout=0"]
    return subprocess.run(command, env=os.environ | settings, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
