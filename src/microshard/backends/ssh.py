"""Hosts reached by SSH through an Ansible inventory."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microshard.backends import binaries, client_install, local_processes
from microshard.errors import PlaceError, RunFolderError
from microshard.model.data_images import FOLDER
from microshard.model.plan import FIRST_PORT, HOST_GROUPS, Host, Inputs, Plan, Point
from microshard.model.run_records import BackendRecord, LedgerRecord
from microshard.model.variables import RunVariables
from microshard.records.run_folder import DiskError, RunFolder, write_json
from microshard.run.ansible import Event, EventHandler, PlaybookError, Playbooks, ignore
from microshard.run.backend import LAST_PORT, Backend, Binaries
from microshard.this_machine import project_root

DEFAULT_FOLDER = "/var/lib/microshard"
_SOCKETS = "microshard-ssh-"  # and the pid of its process
_CLOCK_WARNING, _CLOCK_REFUSAL = 0.5, 60.0  # s a host's clock may differ from the controller's


class _Sockets:
    """A folder for ssh's control sockets; the connections end when it is removed.

    It is a temporary folder, since the path of a socket must be short. The folders of killed processes are removed.
    """

    def __init__(self) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{_SOCKETS}*-*"):
            owner = left.name.removeprefix(_SOCKETS).partition("-")[0]
            with contextlib.suppress(FileNotFoundError):  # another process was quicker
                if owner.isdigit() and left.stat().st_uid == os.getuid() and not Path("/proc", owner).exists():
                    _close_connections(str(left))
        self.folder = tempfile.mkdtemp(prefix=f"{_SOCKETS}{os.getpid()}-")
        self.end = weakref.finalize(self, _close_connections, self.folder)


def _close_connections(folder: str) -> None:
    for socket in Path(folder).iterdir():
        words = ["ssh", "-F", "none", "-o", f"ControlPath={socket}", "-O", "exit", "microshard"]
        subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class SshBackend(Backend):
    """The hosts of an inventory."""

    path: Path  # absolute, of the inventory
    listing: Mapping[str, Any]  # ansible-inventory --list
    name = "hosts"
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)  # host → what the module host_facts returns
    sockets: _Sockets | None = None
    used: list[str] = field(default_factory=list)  # names of the plan's hosts

    @property
    def where(self) -> str:  # type: ignore[override]  # an attribute where it never changes
        """The inventory's path, as messages show it."""
        with contextlib.suppress(ValueError):
            return str(self.path.relative_to(Path.cwd()))
        return str(self.path)

    @classmethod
    def at(cls, path: Path) -> SshBackend:
        """The hosts of an inventory, a file or a folder. Raises PlaceError."""
        if not path.exists():
            raise PlaceError(f"{path}: there is no inventory any more")
        found = cls(path.absolute(), listing_of(path.absolute()))
        if not found.names:
            raise PlaceError(
                f"{path}: none of the groups {', '.join(HOST_GROUPS)} has a host; inventories/hosts.example shows one"
            )
        return found

    @classmethod
    def recorded_as(cls, known: BackendRecord) -> SshBackend:
        """The hosts a run was made on."""
        made = cls.at(Path(known.inventory or ""))
        made.facts, made.used = known.hosts, known.used
        return made

    def group(self, name: str) -> list[str]:
        """Names of the hosts in a group and in its children, in the inventory's order."""
        entry = self.listing.get(name, {})
        below = [host for child in entry.get("children", ()) for host in self.group(child)]
        return list(dict.fromkeys([*entry.get("hosts", ()), *below]))

    def _without_others(self, name: str) -> list[str]:
        """As `group`, without other_shard_hosts, which is a child of shard_hosts."""
        others = self.group("other_shard_hosts") if name == "shard_hosts" else []
        return [host for host in self.group(name) if host not in others]

    @property
    def names(self) -> list[str]:
        """Every host of the four groups, once."""
        return list(dict.fromkeys(host for group in HOST_GROUPS for host in self.group(group)))

    def variable(self, host: str, name: str, default: Any = None) -> Any:
        """A variable of a host in the inventory."""
        return self.listing.get("_meta", {}).get("hostvars", {}).get(host, {}).get(name, default)

    @property
    def process_manager(self) -> str:  # type: ignore[override]  # a word of the inventory here
        """microshard_process_manager of the inventory; by default systemd where every host has it and sudo."""
        found = {str(self.variable(host, "microshard_process_manager", "auto")) for host in self.names} or {"auto"}
        if len(found) > 1 or not found <= {"auto", "direct", "systemd"}:
            raise PlaceError(
                f"{self.where}: microshard_process_manager is direct or systemd, the same on all hosts, "
                f"not {', '.join(sorted(found))}"
            )
        (manager,) = found
        systemd = bool(self.facts) and all(facts.get("systemd") and facts["sudo"] for facts in self.facts.values())
        return {"auto": "systemd" if systemd else "direct"}.get(manager, manager)

    @property
    def base(self) -> str:
        """The folder on the hosts for everything of microshard: microshard_folder of the inventory."""
        found = {str(self.variable(host, "microshard_folder", DEFAULT_FOLDER)) for host in self.names}
        found = found or {DEFAULT_FOLDER}  # hosts on EC2 do not exist yet
        if len(found) > 1:
            raise PlaceError(f"{self.where}: microshard_folder must be the same on all hosts, not {sorted(found)}")
        (folder,) = found
        if not folder.startswith("/") or folder.count("/") < 2:
            raise PlaceError(f"{self.where}: microshard_folder is an absolute path below the root, not {folder}")
        return folder

    def inputs(self, runs: Path) -> Inputs:  # noqa: ARG002 - nothing of the run is on this machine
        """Gather the facts of every host. Raises PlaceError naming each host that cannot be used."""
        self.facts = self._survey()
        return Inputs(hosts=tuple(self._host(name, facts) for name, facts in self.facts.items()))

    def _host(self, name: str, facts: Mapping[str, Any]) -> Host:
        return Host(
            name=name,
            address=str(self.variable(name, "microshard_address") or self.variable(name, "ansible_host") or name),
            groups=tuple(group for group in HOST_GROUPS if name in self._without_others(group)),
            cores=facts["cores"],
            ram_mib=facts["ram_mib"],
            free_disk_bytes=facts["free_disk_bytes"],
            numa_nodes=tuple(facts["numa_nodes"]),
            numactl=facts["numactl"],
        )

    def _survey(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}

        def listen(event: Event) -> None:
            if event.get("facts"):
                found[str(event["host"])] = event["facts"]

        self._play("host_facts", {"host_facts_folder": self.base}, listen)
        problems = [sentence for name in self.names for sentence in _unusable(name, found.get(name), self.base)]
        if problems:
            raise PlaceError(f"{self.where}:\n" + "\n".join(problems))
        return {name: found[name] for name in self.names}

    def _play(self, name: str, variables: Mapping[str, Any], listen: EventHandler = ignore) -> None:
        """Run a playbook that belongs to no run, on all hosts. Raises PlaceError."""
        with tempfile.TemporaryDirectory(prefix="microshard-") as temporary:
            folder = RunFolder(Path(temporary))
            for each in ("tmp", "logs"):
                (folder / each).mkdir()
            path = folder / "vars.json"
            path.write_text(json.dumps(variables), encoding="utf-8")
            try:
                self.playbooks(folder, listen, self.names).run(name, path)
            except PlaybookError as error:
                raise PlaceError(f"{self.where}:\n{error}") from None

    def remove_images(self, names: Sequence[str]) -> None:
        """Remove their folders; those of services belong to root."""
        self.facts = self.facts or self._survey()
        become = all(facts["sudo"] for facts in self.facts.values())
        variables = {"folder": f"{self.base}/{FOLDER}", "names": list(names), "become": become}
        self._play("remove_images", {f"data_images_{key}": value for key, value in variables.items()})

    @contextlib.contextmanager
    def ports(self, count: int, preferred: Sequence[int] = ()) -> Iterator[int]:
        """A range on which no host listened when facts were gathered; later conflicts show when a process starts."""
        used = {port for facts in self.facts.values() for port in facts["listening"]}
        possible = range(FIRST_PORT, LAST_PORT - count)
        for base in (*(port for port in preferred if port in possible), *possible):
            if not any(port in used for port in range(base, base + count)):
                yield base
                return
        raise PlaceError(f"{self.where}: no {count} consecutive ports between {FIRST_PORT} and {LAST_PORT} are free")

    def check_room(self, plan: Plan) -> None:
        """Refuse to start what would push a host into swapping."""
        problems = [
            f"{host}: the plan needs about {needs.memory_mib:,} MiB of RAM at its peak, "
            f"{self.facts[host]['available_mib']:,.0f} MiB are available now"
            for host, needs in plan.needs.items()
            if needs.memory_mib > self.facts[host]["available_mib"]
        ]
        if problems:
            raise PlaceError("\n".join([*problems, "use fewer shards, or set order.redeploy: per_repetition"]))

    def binaries(self, plan: Plan) -> dict[str, Binaries]:
        """Paths on the hosts, and how the binaries get there. Raises PlaceError."""
        return {point.id: binaries.on_hosts(point, self.base, self.client_folder()) for point in plan.points}

    def client_folder(self, driver: str | None = None) -> str:
        """The virtual environment of the client hosts with this driver."""
        return f"{self.base}/software/client-{client_install.client_key(self._python(), driver)}"

    def _python(self) -> str:
        """Python and processor of the client hosts used. Raises PlaceError when they differ."""
        clients = [name for name in self.group("client_hosts") if name in (self.used or self.facts)]
        return client_install.python_of({name: self.facts[name] for name in clients if name in self.facts})

    def client_python(self, driver: str | None = None) -> str:
        """The interpreter of that environment."""
        return f"{self.client_folder(driver)}/bin/python"

    def playbooks(self, folder: RunFolder, handler: EventHandler, limit: Sequence[str] | None = None) -> Playbooks:
        """Playbooks over connections that are kept until `disconnect`, or until this object is freed."""
        if self.sockets is None:
            self.sockets = _Sockets()
        return Playbooks(
            folder,
            handler,
            self.path,
            remote_temp=str(self.host_folder(folder) / "tmp"),
            sockets=self.sockets.folder,
            limit=self.used if limit is None else limit,
        )

    def disconnect(self) -> None:
        """Close the connections that are kept."""
        if self.sockets is not None:
            self.sockets.end()
            self.sockets = None

    def host_folder(self, folder: RunFolder) -> Path:
        """A folder with the run's name in microshard_folder."""
        return Path(self.base) / folder.run_id

    def use(self, plan: Plan) -> None:
        """Limit everything that follows to the hosts of a plan."""
        self.used = [host.name for host in plan.hosts]

    def variables(self, folder: RunFolder, driver: str | None = None) -> RunVariables:
        """As for every backend, and the folders of software on the hosts."""
        return dataclasses.replace(
            super().variables(folder, driver),
            software=f"{self.base}/software",
            client_folder=self.client_folder(driver),
            client_wheels=str(client_install.wheels_archive(self._python(), driver)),
            client_pythons={name: facts["client_python"]["path"] for name, facts in self.facts.items()},
            make_base=[name for name, facts in self.facts.items() if not facts["writable"]],
        )

    def prepare(
        self,
        folder: RunFolder,  # noqa: ARG002
        playbooks: Playbooks,
        variables: Path,
        driver: str | None = None,
    ) -> None:
        """Create folders, and install binaries and the client's software."""
        client_install.client_wheels(self._python(), driver)
        playbooks.run("prepare", variables)

    def remarks(self) -> list[str]:
        """Hosts whose clocks differ."""
        return clock_remarks({name: self.facts[name] for name in self.used or self.facts})

    def clock_shifts(self, point: Point) -> Mapping[str, float]:
        """Shifts to the clock of the first client host, which times the phases."""
        return shifts({host.name: self.facts[host.name] for host in point.hosts}, point.client_hosts[0])

    def recorded(self, folder: RunFolder) -> BackendRecord:
        """Inventory, folder and facts."""
        return BackendRecord(self.name, str(self.path), str(self.host_folder(folder)), self.facts, self.used)

    def missing(self, folder: RunFolder, point: Point) -> list[str]:
        """Hosts that are gone, and processes that do not run any more with the end of their logs."""
        sentences: list[str] = []
        seen = self._run_status(folder, [h.name for h in point.hosts], sentences)
        for process in point.processes:
            path = f"/{process.folder}/"
            if process.host in seen and not any(path in command for command in seen[process.host]["running"]):
                words = seen[process.host]["logs"].get(process.folder) or []
                end = "; the end of its log:\n" + "\n".join(f"    {w}" for w in words) if words else ""
                sentences.append(f"{process.name} ({process.host}, {process.endpoint}) is not running any more{end}")
        return sentences

    def _run_status(self, folder: RunFolder, hosts: Sequence[str], errors: list[str]) -> dict[str, dict[str, Any]]:
        """Processes and logs of the run on these hosts; sentences on unreachable hosts are added to `errors`."""
        seen: dict[str, dict[str, Any]] = {}

        def listen(event: Event) -> None:
            if event.get("run"):
                seen[str(event["host"])] = event["run"]

        variables = self._run_variables(folder)
        try:
            self.playbooks(folder, listen, hosts).run("run_status", variables)
        except PlaybookError as error:
            errors += str(error).splitlines()
        return seen

    def command(self, host: str, words: Sequence[str], *, terminal: bool = False) -> list[str]:
        """The ssh command Ansible would use for a host, from the inventory's variables."""
        line = ["ssh", *(["-t"] if terminal else ["-o", "BatchMode=yes"])]
        key, port = self.variable(host, "ansible_ssh_private_key_file"), self.variable(host, "ansible_port")
        user = self.variable(host, "ansible_user")
        for name in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
            line += shlex.split(str(self.variable(host, name) or ""))
        line += ["-i", str(Path(key).expanduser())] if key else []
        line += ["-p", str(port)] if port else []
        address = str(self.variable(host, "ansible_host") or host)
        return [*line, f"{user}@{address}" if user else address, *([shlex.join(words)] if words else [])]

    def _run_variables(self, folder: RunFolder) -> Path:
        """Variables of a run where no single point is concerned; all that any point has changed is put back."""
        machines: dict[str, Any] = {}
        manager: set[str] = set()
        with contextlib.suppress(OSError, RunFolderError):  # no plan was written
            points = folder.plan().points
            manager = {point.process_manager for point in points} - {"auto"}
            for group, wanted in (item for point in points for item in point.machines.items()):
                parts = machines.setdefault(group, {"volumes": {}, "kernel": {}})
                for part in ("volumes", "kernel"):
                    parts[part] |= {key: value for key, value in wanted[part].items() if value is not None}
        run = self.variables(folder)
        if manager:  # what was started by root is removed by root
            run = dataclasses.replace(run, process_manager=max(manager))
        path = folder / "tmp" / "run.json"
        path.parent.mkdir(exist_ok=True)
        write_json(path, {"microshard_run": run, "microshard_point": {"id": "", "machines": machines}})
        return path

    def clean(self, folder: RunFolder, handler: EventHandler = ignore) -> list[str]:
        """End processes and remove the run's folder on every host; names each host where that was not possible."""
        local_processes.end_playbooks(folder)
        left: list[str] = []
        try:
            self.playbooks(folder, handler).run("clean", self._run_variables(folder))
        except PlaybookError as error:
            rest = f"there may be processes of the run and {self.host_folder(folder)} on it"
            left = [f"{line} ({rest})" for line in str(error).splitlines()]
        with contextlib.suppress(OSError):
            for file in (folder / "tmp").iterdir():
                file.unlink()
        shutil.rmtree(folder / "secrets", ignore_errors=True)
        with contextlib.suppress(DiskError):
            folder.ledger.append(LedgerRecord("run", "clean" if not left else "not clean", left=left))
        return left

    def running(self, folder: RunFolder) -> list[str]:
        """Command lines on all hosts of the run; hosts that cannot be reached have none."""
        seen = self._run_status(folder, self.used, [])
        return [command for host in seen.values() for command in host["running"]]

    def leftovers(self, folder: RunFolder) -> tuple[str, ...]:
        """Whatever the run's ledger does not call clean; without asking any host."""
        ledger = list(folder.ledger.records())
        closed = not ledger or (ledger[-1].kind, ledger[-1].state) == ("run", "clean")
        return () if closed else ("processes and folders",)


def listing_of(path: Path) -> dict[str, Any]:
    """An inventory as ansible-inventory lists it. Raises PlaceError."""
    root = project_root()
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-inventory")), "--inventory", str(path), "--list"],
        cwd=root,
        env={**os.environ, "ANSIBLE_CONFIG": str(root / "ansible.cfg"), "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        listing: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        words = "\n".join(done.stderr.strip().splitlines()[-3:])
        raise PlaceError(f"{path}: not an inventory Ansible can read: {words}") from None
    return listing


def _unusable(host: str, facts: Mapping[str, Any] | None, base: str) -> Iterator[str]:
    if facts is None:
        yield f"{host} returned no facts; see why with: ansible -m ping {host}"
        return
    offset = float(facts["clock_offset"])
    if abs(offset) > _CLOCK_REFUSAL:
        direction = "ahead" if offset > 0 else "behind"
        yield (
            f"{host}: its clock is {abs(offset):,.0f} s {direction} of this machine's; set it, for example with "
            "timedatectl set-ntp true"
        )
    if not facts["writable"] and not facts["sudo"]:
        yield (
            f"{host}: {base} cannot be written and {facts['user']} may not use sudo without a password; make the "
            f"folder for this user, allow sudo, or set microshard_folder in the inventory"
        )


def clock_remarks(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Sentences on clocks that differ enough to shift telemetry against the measurement, were it not corrected."""
    return [
        f"{host}: its clock differs by {float(known['clock_offset']):+.1f} s from this machine's; its telemetry is "
        "shifted by that, its logs are not"
        for host, known in facts.items()
        if abs(float(known["clock_offset"])) > _CLOCK_WARNING
    ]


def shifts(facts: Mapping[str, Mapping[str, Any]], client: str) -> dict[str, float]:
    """Host → seconds to add to its times to get the client's; hosts that may not differ are left out.

    `facts` have `clock_offset` (s the host is ahead of the controller) and `clock_doubt` (s, ±) of each.
    """
    base = facts[client]
    found = {}
    for host, known in facts.items():
        difference = float(base["clock_offset"]) - float(known["clock_offset"])
        if abs(difference) > float(base["clock_doubt"]) + float(known["clock_doubt"]):
            found[host] = round(difference, 3)
    return found
