"""Logging in: what a client says is passed on to the config servers, which know the users, over a link of its own."""

from microshard.embedded import wire
from microshard.embedded.about import HELLO
from microshard.embedded.access import ask, pass_on
from microshard.embedded.cluster import checked
from microshard.embedded.errors import COMMAND_NOT_SUPPORTED, HOST_UNREACHABLE, CommandError
from microshard.embedded.registry import Reply, Request, command

# All that a client may say before it has logged in.
BEFORE = HELLO | {"saslStart", "saslContinue", "logout"}


@command("saslStart")
async def _start(request: Request) -> Reply:
    client = request.connection
    if not request.cluster.config.access.key:
        raise CommandError(COMMAND_NOT_SUPPORTED, "saslStart is not supported by the embedded mongos: it was started "
                           "without a key file, so nobody logs in.", fields={"info": "mongos"})  # fmt: skip
    if client.login is not None:
        client.login.transport.abort()
    try:
        client.login = await (await request.cluster.config.primary()).dedicated()
    except OSError as error:
        raise CommandError(HOST_UNREACHABLE, f"the config server cannot be reached: {error}") from error
    return await _step(request)


@command("saslContinue")
async def _continue(request: Request) -> Reply:
    if request.connection.login is None:
        raise CommandError(17, "No SASL session state found")
    return await _step(request)


async def _step(request: Request) -> Reply:
    client = request.connection
    link = client.login
    assert link is not None  # noqa: S101 - both callers have looked
    try:
        body = await pass_on(link, request.database, request.passed_on)
        answer = wire.decode(body)
        if answer.get("ok") and answer.get("done"):
            client.auth_info = (await ask(link, "admin", {"connectionStatus": 1, "showPrivileges": True}))["authInfo"]
            client.logged_in = True
    except ConnectionError as error:
        raise CommandError(HOST_UNREACHABLE, f"the config server cannot be reached: {error}") from error
    if not answer.get("ok") or answer.get("done"):
        client.login = None
        link.transport.abort()
    return checked(body)


@command("logout")
async def _logout(request: Request) -> Reply:
    request.connection.logged_in = not request.cluster.config.access.key
    request.connection.auth_info = {}
    return {}


@command("createUser", "updateUser", "dropUser", "dropAllUsersFromDatabase", "grantRolesToUser", "revokeRolesFromUser",
         "createRole", "updateRole", "dropRole", "dropAllRolesFromDatabase", "grantPrivilegesToRole",
         "revokePrivilegesFromRole", "grantRolesToRole", "revokeRolesFromRole")  # fmt: skip
async def _users(request: Request) -> Reply:
    if not request.cluster.config.access.key:
        raise CommandError(COMMAND_NOT_SUPPORTED, f"{request.name} is not supported by the embedded mongos: it was "
                           "started without a key file, so nobody logs in.", fields={"info": "mongos"})  # fmt: skip
    return checked(await request.cluster.config.call_raw(request.database, request.durably))
