"""The values of the data set `mot` with their shares: vehicles, colours, postcode areas, test types, results.

Shares are relative weights. They approximate the British fleet of about 2010: a third diesel, silver and blue
first among colours, class 4 (cars) far ahead of motorcycles (1, 2), minibuses (5) and heavier vans (7). The shape
follows the public inspection records of the original experiment; the figures are approximations for this project.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# A line per model: make; model; test class; share of the fleet; years of first use; body; trims. Below it, indented,
# its engines between bars: capacity in cc, fuel, share within the model, and the text of its description.
_VEHICLES = Path(__file__).with_name("vehicles.txt")


@dataclass(frozen=True, slots=True)
class VehicleVariant:
    """A model with one engine and one trim: what stands in the fields k, o, f and e."""

    make: str
    model: str
    description: str
    test_class: int
    fuel: str  # P petrol, D diesel, H hybrid, L gas, E electric
    engine_cc: int  # 0 for electric
    share: float
    first: int
    last: int


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
TYPE_CODES = ("N", "PL", "PV", "F")  # in the same order
RESULTS = ("P", "F", "PRS", "ABA")  # pass, fail, pass after rectification at the station, abandoned

# Share of passes at a normal test by full years since first use (3 to 20 and older): nearly new three in four,
# fifteen years old less than one in two. Of the rest a seventh is put right within the hour (PRS).
PASS_BY_AGE = tuple(
    percent / 100 for percent in (76, 72, 68, 65, 62, 59, 56, 54, 51, 49, 47, 46, 45, 45, 46, 48, 51, 55)
)


def weighted(text: str, separator: str = " ") -> tuple[list[str], list[float]]:
    """Names and weights of "name weight name weight …"."""
    parts = text.split(separator)
    return parts[::2], [float(weight) for weight in parts[1::2]]


@cache
def variants() -> tuple[VehicleVariant, ...]:
    """Every model with each of its engines and trims; the order is part of the data set."""
    found: list[VehicleVariant] = []
    text = _VEHICLES.read_text(encoding="ascii").strip()
    for entry in re.sub(r"\n  +", " | ", text).replace("| |", "|").splitlines():
        row, *rest = (part.strip() for part in entry.split("|"))
        make, name, test_class, share, years, body, trims = (part.strip() for part in row.split(";"))
        first, last = map(int, years.split("-"))
        engines = [engine.split(" ", 3) for engine in rest]
        total = sum(float(engine[2]) for engine in engines) * len(trims.split(", "))
        gearbox = "" if int(test_class) < 3 else " 5 SPEED MANUAL"
        for cc, fuel, engine_share, description in engines:
            found += [
                VehicleVariant(
                    make=make,
                    model=name,
                    description=f"{name} {trim} {description}{gearbox} {body}",
                    test_class=int(test_class),
                    fuel=fuel,
                    engine_cc=int(cc),
                    share=float(share) * float(engine_share) / total,
                    first=first,
                    last=last,
                )
                for trim in trims.split(", ")
            ]
    return tuple(found)
