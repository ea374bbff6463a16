#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One table of `paged-bench run --json gpu` and of peers' lines, by the figures' names.

  peer_table.py FILE...

A file is a document of paged-bench or lines of gpu_torch.py.  Times in
microseconds; the last column is the fastest peer over ours.
"""
import json
import sys


def figures(path):
    """(peer, figure) of a file; a last line that a time limit cut is left out."""
    text = open(path).read()
    try:
        run = json.loads(text)
        if "figures" in run:
            return [("paged", figure) for figure in run["figures"]]
    except ValueError:
        pass
    found = []
    for line in text.splitlines():
        try:
            figure = json.loads(line)
        except ValueError:
            continue
        found.append((figure.get("peer", "peer"), figure))
    return found


def rate(figure):
    for key, unit in (("bytes", "TB/s"), ("flops", "TF/s")):
        if key in figure and figure.get("median", 0) > 0:
            return f" {figure[key] / figure['median'] / 1e6:.{2 if key == 'bytes' else 0}f} {unit}"
    return ""


def main():
    if len(sys.argv) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    rows, peers = {}, []
    for path in sys.argv[1:]:
        for peer, figure in figures(path):
            if "median" in figure:
                rows.setdefault(figure["name"], {})[peer] = figure
                peers += [peer] if peer not in peers else []
    print("| figure | " + " | ".join(peers) + " | fastest peer over paged |")
    print("|---|" + "---|" * (len(peers) + 1))
    for name, by_peer in rows.items():
        cells = [f"{by_peer[peer]['median']:.1f}{rate(by_peer[peer])}" if peer in by_peer else "" for peer in peers]
        others = [figure["median"] for peer, figure in by_peer.items() if peer != "paged"]
        ahead = f"{min(others) / by_peer['paged']['median']:.2f}" if others and "paged" in by_peer else ""
        print(f"| {name} | " + " | ".join(cells) + f" | {ahead} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
