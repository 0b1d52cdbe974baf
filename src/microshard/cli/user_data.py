"""The options of advise that replace an experiment's data and queries by the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from microshard.plan.user_data import UserData
    from microshard.workloads.datasets.copied import Copied

_MOST_KEYS = 3  # candidates of a shard key that are measured
_OPTIONS = (
    click.option(
        "--from",
        "source",
        metavar="SOURCE",
        envvar="MICROSHARD_FROM",
        help="Your data: mongodb://…/DATABASE.COLLECTION, which is only read, or a file: mongodump's archive or .bson, "
        "or extended JSON, a document a line. Also as $MICROSHARD_FROM, which other users do not see.",
    ),
    click.option("--namespace", metavar="DB.COLLECTION", help="Which collection of an archive or deployment."),
    click.option(
        "--queries",
        metavar="LOG",
        help="Your queries: a log of mongod, 4.4 or later, whose slow queries are measured in their shares; profiler: "
        "system.profile of the deployment.",
    ),
    click.option(
        "--sample", type=click.IntRange(1), default=100_000, show_default=True, help="At most so many documents."
    ),
    click.option(
        "--hash", "hashed", multiple=True, metavar="FIELD", help="Replace the values of a field by keyed hashes."
    ),
    click.option(
        "--shard-key",
        "shard_keys",
        multiple=True,
        metavar="FIELD",
        help="A candidate, hashed; of those that would not leave shards idle the best three are measured.",
    ),
)


def data_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--from and what goes with it, as the parameter `data`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class DataOptions:
    """The values of these options."""

    source: str | None
    namespace: str | None
    queries: str | None
    sample: int
    hashed: tuple[str, ...]
    shard_keys: tuple[str, ...]

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> DataOptions:
        """Take them out of the options of a command. Raises UsageError for those that mean nothing."""
        found = cls(**{name: options.pop(name) for name in cls.__slots__})
        if found.source is None and (found.queries or found.namespace or found.hashed or found.shard_keys):
            raise click.UsageError("--queries, --namespace, --hash and --shard-key go with --from")
        if found.queries == "profiler" and "://" not in (found.source or ""):
            raise click.UsageError("--queries profiler reads a deployment: --from mongodb://…")
        return found

    def copied(self, folder: Path, seed: int, most_shards: int) -> UserData:
        """Copy the data, take over the queries, choose the shard key, and say what was found."""
        from microshard.plan.user_data import UserData
        from microshard.workloads import recorded
        from microshard.workloads.datasets.copied import Hashing, copy_data, without_login

        source, hashing = self.source or "", Hashing(frozenset(self.hashed))
        data = copy_data(source, folder, namespace=self.namespace, most=self.sample, hashing=hashing, seed=seed)
        click.echo(
            f"Data: {data.documents:,} of {data.of:,} documents of {data.namespace} from {without_login(source)}, "
            f"in {data.file}"
        )
        operations: list[dict[str, Any]] = []
        if self.queries is not None:
            if self.queries == "profiler":
                found = recorded.from_profiler(source, data.namespace, hashing, seed)
            else:
                found = recorded.from_log(Path(self.queries).expanduser(), data.namespace, hashing, seed)
            operations = found.operations
            click.echo(f"Queries: {found.summary()}")
        keys = _fit_shard_keys(data, self.shard_keys, operations, most_shards)
        return UserData(data.file, data.namespace, data.indexes, operations, keys)


def _fit_shard_keys(data: Copied, fields: Sequence[str], operations: list[dict[str, Any]], shards: int) -> list[str]:
    """The candidates to measure, the best first. Says of each what was counted. Raises SearchError."""
    from microshard.plan.search_grid import SearchError
    from microshard.search.shard_keys import candidate, ranked

    judged = []
    for name in dict.fromkeys(fields):
        judged.append(candidate(name, data.read(), operations, shards))
        click.echo(f"Shard key {judged[-1].sentence()}")
    fit = [each.field for each in ranked(judged)]
    if judged and not fit:
        raise SearchError(f"none of {', '.join(fields)} can be the shard key of {shards} shards")
    if len(fit) > 1:
        kept, left = fit[:_MOST_KEYS], fit[_MOST_KEYS:]
        more = f"; not {', '.join(left)}, which target fewer queries or are less even" if left else ""
        click.echo(f"Shard keys measured: {', '.join(kept)}{more}")
    return fit[:_MOST_KEYS]
