"""Whether the servers of a point want logins and encryption."""

from __future__ import annotations

from microshard.definition.topology import Topology

_SECURED: frozenset[str] = frozenset()


def security(topology: Topology, backend: str) -> dict[str, bool]:
    """`authorization` and `tls` with their defaults: off on this machine, where servers listen on loopback only."""
    wished, usual = topology.security, backend in _SECURED
    return {
        "authorization": usual if wished.authorization is None else wished.authorization,
        "tls": usual if wished.tls is None else wished.tls,
    }
