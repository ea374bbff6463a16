#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints one Markdown table of the output of `paged-bench run --lines gpu` and of its peers, joined by case name.

  peer_table.py FILE...

A file is a JSON document or JSON lines of paged-bench, or JSON lines of gpu_torch.py.  Times
are in microseconds; the last column is the fastest peer's time divided by ours.
"""
import json
import sys


def cases_of(path):
    """(peer, case) pairs of a file; an incomplete last line, left by a time limit, is ignored."""
    text = open(path).read()
    try:
        run = json.loads(text)
        if "cases" in run:
            return [("paged", case) for case in run["cases"]]
    except ValueError:
        pass
    found = []
    for line in text.splitlines():
        try:
            case = json.loads(line)
        except ValueError:
            continue
        found.append((case.get("peer", "paged"), case))
    return found


def rate(case):
    for key, unit in (("bytes", "TB/s"), ("flops", "TF/s")):
        if key in case and case.get("median", 0) > 0:
            return f" {case[key] / case['median'] / 1e6:.{2 if key == 'bytes' else 0}f} {unit}"
    return ""


def main():
    if len(sys.argv) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    rows, peers = {}, []
    for path in sys.argv[1:]:
        for peer, case in cases_of(path):
            if "median" in case:
                rows.setdefault(case["name"], {})[peer] = case
                peers += [peer] if peer not in peers else []
    print("| case | " + " | ".join(peers) + " | fastest peer / paged |")
    print("|---|" + "---|" * (len(peers) + 1))
    for name, by_peer in rows.items():
        cells = [f"{by_peer[peer]['median']:.1f}{rate(by_peer[peer])}" if peer in by_peer else "" for peer in peers]
        peer_times = [case["median"] for peer, case in by_peer.items() if peer != "paged"]
        speedup = f"{min(peer_times) / by_peer['paged']['median']:.2f}" if peer_times and "paged" in by_peer else ""
        print(f"| {name} | " + " | ".join(cells) + f" | {speedup} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
