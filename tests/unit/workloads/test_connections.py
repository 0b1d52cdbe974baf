"""Connection strings with logins."""

from microshard.workloads.connections import on_loopback


def test_a_port_of_loopback_has_the_login_and_the_authority_of_the_server_behind_it() -> None:
    secured = "mongodb://u:p%40@db1:27100,db2:27100/?replicaSet=rs1&authSource=admin&tls=true&tlsCAFile=%2Fca.pem"
    assert on_loopback(secured, 4000) == (
        "mongodb://u:p%40@127.0.0.1:4000/?authSource=admin&tls=true&tlsCAFile=%2Fca.pem&tlsAllowInvalidHostnames=true"
    )
    assert on_loopback("mongodb://db1:27100/", 4000) == "mongodb://127.0.0.1:4000/"
