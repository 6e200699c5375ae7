"""Whether each sentence of a report says what the figures of the same report say: recomputed from its JSON alone."""

from __future__ import annotations

import json
import re
from typing import Any

FIGURE = re.compile(r"\d[\d.]* (?:[KMGT]iB|B|%)(?![\w.])")
GRAPHS = ("graph", "graph_of_many")
MODEL = ("parameters", "gradients", "buffer", "optimizer_states", "other_states", "models")


def written(value: int) -> str:
    """Bytes as the report writes them."""
    scaled, unit = float(value), 0
    while scaled >= 1023.5 and unit < 4:
        scaled, unit = scaled / 1024, unit + 1
    digits = 0 if unit == 0 else (2 if scaled < 10 else 1) if unit >= 3 else (1 if scaled < 100 else 0)
    return f"{scaled:.{digits}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def recomputed(device: dict[str, Any]) -> dict[str, Any]:
    """Named facts, from the rest of the figures."""
    facts: dict[str, Any] = {"peak": device["peak_allocated"]}
    holders = device["holders"]
    if failed := device["out_of_memory"]:
        needed = failed["allocated"] + failed["size"]
        facts |= {"size": failed["size"], "allocated": failed["allocated"], "needed": needed, "site": failed["site"], "empty": failed["empty"]}
        if (capacity := failed["capacity"]) is not None:
            facts |= {"capacity": capacity, "missing": max(0, needed - capacity), "room": capacity if needed <= capacity else None}
    if holders:
        facts["attributes"] = sum(one["bytes"] for one in holders if one["kind"] == "attribute" and one["is_bounded"])
        facts |= {"graphs": sum(one["bytes"] for one in holders if one["kind"] in GRAPHS), "model": sum(one["bytes"] for one in holders if one["kind"] in MODEL)}
    if named := next((one for one in holders if one["holder"] == device["known"].get("holder")), None):
        facts |= {"holder_bytes": named["bytes"], "holder_kind": named["kind"], "holder_site": named["site"], "is_loaded": named["is_loaded"]}
    if device["cause"] == "enlarged":
        facts["grown"] = None
    elif device["growth"]:
        each = device["growth"]["bytes_per_step"]
        turns = device["growth"]["turns_of"]
        facts |= {"grown": device["growth"]["bytes"], "grown_per_step": None if turns else each, "grown_per_turn": each if turns else None, "turns_of": turns}
    if device["known"]["made"] is not None:
        facts["made"] = facts.get("needed", facts["peak"]) - device["known"]["resident"]
    return facts


def faults(device: dict[str, Any]) -> list[str]:
    """What a reader of the report would find to be wrong; empty where all is right."""
    known = device["known"]
    found = [f"{name} is {known[name]!r}, by the figures {value!r}" for name, value in recomputed(device).items() if known.get(name) != value]
    numbers = {written(value) for value in known.values() if isinstance(value, int) and not isinstance(value, bool)}
    numbers |= {written(one["peak_reserved"]) for one in device["allocators"]} | set(FIGURE.findall(json.dumps(known, ensure_ascii=False)))
    sentences = [device["headline"], *device["facts"], *(one["text"] for one in device["advice"])]
    for sentence in sentences:
        found += [f"no fact is {figure!r}: {sentence}" for figure in FIGURE.findall(sentence) if figure not in numbers]
        found += [f"a fact is missing: {sentence}" for word in ("None", "null", "{", "<|") if word in re.sub(r"`[^`]*`", "", sentence)]
    said = " ".join(sentences)
    # Words that a figure of the same page would contradict.
    needed = known["needed"] or 0
    lasts = max(known["model"] or 0, known["built"] or 0, (known["resident"] or 0) + (known["made_for_weights"] or 0))
    if "Hold less of what lasts" in said and lasts * 2 < needed:
        found.append("most does not last")
    top = device["peak_by_site"][0] if device["peak_by_site"] else {"site": None, "bytes": 0}
    if "Most of it" in said and top["site"] == known["top_site"] and top["bytes"] * 2 <= needed:
        found.append("no line holds most of it")
    if known["is_recorded"] and any((one["command"] or "").startswith("stalloc trace -o") for one in device["advice"]):
        found.append("a recording of `stalloc trace` is told to be recorded")
    return found
