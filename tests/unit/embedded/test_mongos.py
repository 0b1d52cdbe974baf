"""The table of commands."""

from microshard.embedded import catalog_commands, data_commands, server_commands, sharding_commands
from microshard.embedded.mongos import command_table


def test_every_command_is_in_one_family_and_aliases_share_its_handler() -> None:
    families = [module.COMMANDS for module in (catalog_commands, data_commands, server_commands, sharding_commands)]
    table = command_table()
    names = [name for family in families for name in family]
    assert len(set(names)) == len(names)
    assert set(names) <= table.keys()
    assert table["findandmodify"] is table["findAndModify"]
    assert all(name.lower() == name for name in table.keys() - set(names))
