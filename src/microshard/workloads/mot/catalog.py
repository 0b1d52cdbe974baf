"""What there is to choose from: vehicles, colours, postcode areas, test types, results, with their shares.

Shares are relative weights. They approximate the British fleet of about 2010: a third diesel, silver and blue
first among colours, class 4 (cars) far ahead of motorcycles (1, 2), minibuses (5) and heavier vans (7).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from microshard.workloads.mot.vehicles import MODELS


@dataclass(frozen=True, slots=True)
class Model:
    """A model: `engines` are "cc fuel share text", `first` and `last` the years of first use."""

    make: str
    name: str
    test_class: int
    share: float
    first: int
    last: int
    body: str
    trims: tuple[str, ...]
    engines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """A model with one engine and one trim: what stands in the fields k, o, f and e."""

    make: str
    description: str
    test_class: int
    fuel: str  # P petrol, D diesel, H hybrid, L gas, E electric
    engine_cc: int  # 0 for electric
    share: float
    first: int
    last: int


def _models() -> list[Model]:
    """The models of vehicles.MODELS in their order."""
    entries = re.sub(r"\n  +", " | ", MODELS.strip()).replace("| |", "|").splitlines()
    found = []
    for entry in entries:
        row, *engines = (part.strip() for part in entry.split("|"))
        make, name, test_class, share, years, body, trims = (part.strip() for part in row.split(";"))
        first, last = (int(year) for year in years.split("-"))
        found.append(
            Model(
                make, name, int(test_class), float(share), first, last, body, tuple(trims.split(", ")), tuple(engines)
            )
        )
    return found


COLOURS = (
    "SILVER 20 BLUE 19 BLACK 17 RED 13 GREY 12 WHITE 8 GREEN 6 GOLD 1.2 BEIGE 0.9 YELLOW 0.9 PURPLE 0.7 BROWN 0.5 "
    "MAROON 0.5 ORANGE 0.4 TURQUOISE 0.3 CREAM 0.3 BRONZE 0.3 MULTI-COLOUR 0.2 PINK 0.1"
)

# Postcode areas with the people who live there, in units of 100,000, rounded.
AREAS = (
    "B 19 BT 19 G 12 M 11 S 14 NE 12 CF 10 BS 9 L 9 LE 9 NG 11 SE 10 PE 9 SA 7 N 8 SW 9 E 9 W 5 NW 6 LS 7 BN 8 RG 8 "
    "PO 8 EH 9 CV 8 TN 7 ME 6 PL 5 EX 6 GL 6 NR 7 IP 6 CM 6 DE 7 DN 7 OX 6 SO 6 ST 6 SN 5 TS 6 WA 6 BD 6 BH 6 CT 5 "
    "CB 4 CH 6 NN 6 GU 7 MK 5 PR 5 RM 5 SL 4 SS 5 CR 4 BR 3 KT 5 TW 5 UB 4 HA 5 EN 4 IG 3 DA 4 WD 3 AL 3 SG 4 LU 3 "
    "HP 5 DH 3 SR 3 DL 4 YO 5 HU 4 HX 2 HD 3 WF 5 OL 5 BL 4 WN 3 BB 5 FY 3 LA 3 CA 3 SK 6 CW 3 TF 2 WS 4 WV 4 DY 4 "
    "HR 2 WR 3 LN 3 NP 5 LL 5 SY 3 LD 0.5 BA 4 DT 2 TA 3 TQ 3 TR 3 SP 2 RH 5 CO 4 SM 2 AB 5 DD 3 KY 4 FK 3 ML 4 KA 4 "
    "PA 3 DG 1.5 IV 2 PH 1.6 TD 1 KW 0.5 HS 0.3 ZE 0.2"
)

TYPES = "NORMAL TEST|74|PARTIAL RETEST LEFT SITE|15|PARTIAL RETEST AT SITE|5|FULL RETEST|6"
RESULTS = ("P", "F", "PRS", "ABA")  # pass, fail, pass after rectification at the station, abandoned

# Share of passes at a normal test by full years since first use (3 to 20 and older): nearly new three in four,
# fifteen years old less than one in two. Of the rest a seventh is put right within the hour (PRS).
PASS_BY_AGE = (
    0.76,
    0.72,
    0.68,
    0.65,
    0.62,
    0.59,
    0.56,
    0.54,
    0.51,
    0.49,
    0.47,
    0.46,
    0.45,
    0.45,
    0.46,
    0.48,
    0.51,
    0.55,
)


def weighted(text: str, separator: str = " ") -> tuple[list[str], list[float]]:
    """Names and weights of "name weight name weight …"."""
    parts = text.split(separator)
    return parts[::2], [float(weight) for weight in parts[1::2]]


@cache
def variants() -> tuple[Variant, ...]:
    """Every model with each of its engines and trims; the order is part of the data set."""
    found: list[Variant] = []
    for model in _models():
        engines = [engine.split(" ", 3) for engine in model.engines]
        total = sum(float(share) for _, _, share, _ in engines) * len(model.trims)
        gearbox = "" if model.test_class < 3 else " 5 SPEED MANUAL"
        found += [
            Variant(
                make=model.make,
                description=f"{model.name} {trim} {text}{gearbox} {model.body}",
                test_class=model.test_class,
                fuel=fuel,
                engine_cc=int(cc),
                share=model.share * float(share) / total,
                first=model.first,
                last=model.last,
            )
            for cc, fuel, share, text in engines
            for trim in model.trims
        ]
    return tuple(found)
