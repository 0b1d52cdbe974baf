"""Binding processes to cores and memory by numactl, and checking that they are bound.

Cores and nodes are those of the host the module runs on: the plan says the policy, the host says what is host.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import HostError

_NODES = "/sys/devices/system/node"


@dataclass(frozen=True)
class Cores:
    """Cores this host gives to processes, by NUMA node; a kernel without NUMA shows one node."""

    by_node: dict[int, list[int]]

    @property
    def all(self) -> list[int]:
        """Every core, in order of its number."""
        return sorted(core for cores in self.by_node.values() for core in cores)


@dataclass(frozen=True)
class Binding:
    """How a process is started, and what must be seen of it then."""

    policy: str = "none"
    prefix: list[str] = field(default_factory=list)  # numactl and its options, in front of the command line
    cores: list[int] | None = None  # those it may run on; None leaves it all
    memory: str = ""  # its memory policy as /proc/PID/numa_maps writes it; "" is the kernel's default


UNBOUND = Binding()


def host_cores(folder: str = _NODES) -> Cores:
    """The nodes and cores of this host that this process may use."""
    usable = os.sched_getaffinity(0)
    by_node: dict[int, list[int]] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.startswith("node") and name[4:].isdigit():
            with open(os.path.join(folder, name, "cpulist"), encoding="ascii") as file:
                by_node[int(name[4:])] = [core for core in numbers(file.read()) if core in usable]
    return Cores(dict(sorted(by_node.items())) or {0: sorted(usable)})


def numbers(text: str) -> list[int]:
    """`0-2,5` as [0, 1, 2, 5], the form in which the kernel writes sets of cores and nodes."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def ranges(values: Sequence[int]) -> str:
    """[0, 1, 2, 5] as `0-2,5`."""
    parts: list[list[int]] = []
    for value in sorted(values):
        if parts and value == parts[-1][1] + 1:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)


def bindings(numa: dict[str, Any], names: Sequence[str], data_bearing: set[str], host: Cores) -> dict[str, Binding]:
    """The binding of every process of this host by its name, in the order of the plan. HostError if it cannot be.

    `numa` has `policy`, `nodes` (None: all) and `reserved_cores`, as `infrastructure.*.numa` in the definition.
    """
    policy = numa.get("policy") or "none"
    if policy == "none":
        return dict.fromkeys(names, UNBOUND)
    if shutil.which("numactl", path=f"{os.environ.get('PATH', '')}:/usr/bin:/bin") is None:
        raise HostError(f"numa policy {policy} needs numactl on this host: install the package numactl")
    nodes = _nodes(numa, policy, host)
    data = [name for name in names if name in data_bearing]
    others = [name for name in names if name not in data_bearing]
    everywhere = Binding(policy, ["numactl", f"--interleave={ranges(nodes)}"], None, f"interleave:{ranges(nodes)}")
    if policy == "interleave":
        return dict.fromkeys(names, everywhere)
    if policy == "node_round_robin":
        bound = {name: _on_node(nodes[place % len(nodes)], policy, host) for place, name in enumerate(data)}
        # Config servers and mongos serve every node's shards alike.
        return bound | dict.fromkeys(others, everywhere)
    return _dedicated_cores(data, others, numa.get("reserved_cores", 1), nodes, host)


def _nodes(numa: dict[str, Any], policy: str, host: Cores) -> list[int]:
    nodes = list(host.by_node) if numa.get("nodes") is None else list(numa["nodes"])
    missing = sorted(set(nodes) - set(host.by_node))
    if missing:
        raise HostError(
            f"numa policy {policy}: this host has no NUMA node {ranges(missing)}, only {ranges(list(host.by_node))}"
        )
    if policy == "node_round_robin" and len(nodes) < 2:
        raise HostError(f"numa policy node_round_robin needs two NUMA nodes, this host has {ranges(nodes)} alone")
    return nodes


def _on_node(node: int, policy: str, host: Cores) -> Binding:
    words = ["numactl", f"--cpunodebind={node}", f"--membind={node}"]
    return Binding(policy, words, host.by_node[node], f"bind:{node}")


def _dedicated_cores(
    data: list[str], others: list[str], reserved: int, nodes: list[int], host: Cores
) -> dict[str, Binding]:
    """Every data-bearing process gets as many neighbouring cores as there are for each; what is left over is idle."""
    cores = [core for node in nodes for core in host.by_node[node]]
    kept, rest = (cores[:reserved], cores[reserved:]) if others else ([], cores)
    per_process = len(rest) // len(data) if data else 0
    if data and not per_process:
        raise HostError(
            f"numa policy cores_per_shard: {len(data)} data-bearing processes on {len(rest)} cores"
            + (f" ({len(kept)} of {len(cores)} are reserved for config servers and mongos)" if kept else "")
        )
    bound = {name: _on_cores(rest[place * per_process : (place + 1) * per_process]) for place, name in enumerate(data)}
    return bound | {name: _on_cores(kept) if kept else UNBOUND for name in others}


def _on_cores(cores: list[int]) -> Binding:
    words = ["numactl", f"--physcpubind={ranges(cores)}", "--localalloc"]
    return Binding("cores_per_shard", words, sorted(cores), "local")


def placement(pid: int) -> dict[str, Any]:
    """Where the kernel keeps a process: cores and nodes it may use, and its memory policies by number of mappings."""
    allowed = {}
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key in {"Cpus_allowed_list", "Mems_allowed_list"}:
                allowed[key] = value.strip()
    policies: Counter[str] = Counter()
    try:
        with open(f"/proc/{pid}/numa_maps", encoding="utf-8", errors="replace") as file:
            policies.update(line.split(None, 2)[1] for line in file if line.strip())
    except FileNotFoundError:
        pass  # a kernel without NUMA
    return {
        "cpus_allowed": allowed.get("Cpus_allowed_list", ""),
        "mems_allowed": allowed.get("Mems_allowed_list", ""),
        "memory_policies": dict(policies),
    }


def difference(binding: Binding, facts: dict[str, Any]) -> str:
    """How the binding of a process differs from the planned one; "" when it does not."""
    if binding.cores is not None and numbers(facts["cpus_allowed"]) != binding.cores:
        return f"may run on cores {facts['cpus_allowed']}, planned are {ranges(binding.cores)}"
    policies = facts["memory_policies"]
    # Mappings a library has bound itself keep their own policy; all others show that of the process.
    if binding.memory and (not policies or max(policies, key=policies.__getitem__) != binding.memory):
        found = ", ".join(policies) or "no policy, for the kernel has no NUMA"
        return f"has the memory policy {found}, planned is {binding.memory}"
    return ""
