"""The loop over mongods that one would write by hand."""

from pathlib import Path

# Its shell is python with pymongo: faster to start than mongosh.
_SCRIPT = """#!/usr/bin/env bash
set -euo pipefail
folder={folder} port={port} shards={shards}
shell() {{ {python} -c "import sys, time
from pymongo import MongoClient
client = MongoClient('127.0.0.1', int(sys.argv[1]), directConnection=True)
$2" "$1"; }}
start() {{  # NAME PORT ROLE
  mkdir "$folder/$1"
  {mongod} --fork --"$3" --replSet "$1" --dbpath "$folder/$1" --logpath "$folder/$1.log" \\
    --pidfilepath "$folder/$1.pid" --port "$2" --bind_ip 127.0.0.1 --nounixsocket \\
    --wiredTigerCacheSizeGB {cache} >/dev/null
  shell "$2" "members = [{{'_id': 0, 'host': '127.0.0.1:$2'}}]
client.admin.command('replSetInitiate', {{'_id': '$1', 'members': members}})
while not client.admin.command('hello')['isWritablePrimary']:
    time.sleep(0.05)"
}}
case $1 in
up)
  start config $((port + 1)) configsvr
  {mongos} --configdb "config/127.0.0.1:$((port + 1))" --port "$port" --bind_ip 127.0.0.1 \\
    --logpath "$folder/mongos.log" >/dev/null 2>&1 </dev/null &
  echo $! >"$folder/mongos.pid"
  for number in $(seq "$shards"); do
    start "shard$number" $((port + 1 + number)) shardsvr
    shell "$port" "client.admin.command('addShard', 'shard$number/127.0.0.1:$((port + 1 + number))')"
  done
  shell "$port" "client.admin.command('enableSharding', 'vosa')
client.admin.command('shardCollection', 'vosa.mot_results', key={{'_id': 'hashed'}})"
  ;;
down)
  for file in "$folder"/*.pid; do kill -TERM "$(cat "$file")" 2>/dev/null || true; done
  for file in "$folder"/*.pid; do
    pid=$(cat "$file")
    while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  done
  rm -rf "${{folder:?}}"/config "$folder"/shard*/
  ;;
esac
"""


def shell_script(folder: Path, port: int, shards: int, mongod: Path, mongos: Path, python: str, cache_mib: int) -> str:
    """The script with the commands up and down; ports from `port` on: mongos, config server, shards."""
    return _SCRIPT.format(
        folder=folder, port=port, shards=shards, mongod=mongod, mongos=mongos, python=python, cache=cache_mib / 1024
    )
