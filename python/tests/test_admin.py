# SPDX-License-Identifier: Apache-2.0
"""Administration: reports, checks, kicks, eviction; their fields are those of paged_reports.h."""
import os
import re
from pathlib import Path

import pytest

import paged


def fields(struct):
    """Names of a struct's fields in paged_reports.h, without struct_size and reserved words."""
    header = Path(__file__).resolve().parents[2] / "common" / "paged_reports.h"
    if not header.exists():
        pytest.skip("no source tree")
    text = re.search(r"struct " + struct + r" \{(.*?)\n\}", header.read_text(), re.S)[1]
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return [re.sub(r"\[.*", "", name).split()[-1] for line in text.split(";") if line.strip()
            for name in line.split(",") if name.split()[-1] not in ("struct_size", "reserved")]


def test_status(client):
    status = client.status()
    assert list(status) == fields("paged_daemon_info")
    assert status["version"] == paged.version()
    assert (status["n_sessions"], status["n_pools"], status["stopping"]) == (1, 1, False)
    assert re.fullmatch("[0-9a-f]{32}", status["boot_id"])
    assert status["pid"] > 0


def test_metrics(daemon):
    with daemon.connect() as client:
        pool = client.pool("test")
        with pytest.raises(paged.LimitError):
            pool.create(1, 100000)
        pool.create(1, 20)
        before, metrics = client.metrics(), client.metrics()
    assert sorted(metrics) == sorted([*fields("paged_metrics"), "requests"])
    assert metrics["n_requests"] == before["n_requests"] + 1
    assert metrics["n_members"] == metrics["n_sessions"] == 1
    create = metrics["requests"]["create"]
    assert create["replies"] == {"PAGED_OK": 1, "PAGED_ERR_LIMIT": 1}
    sum_ns, buckets = create["latency"]
    assert sum(n for _, n in buckets) == 2 and 0 < sum_ns <= sum(bound * n for bound, n in buckets)
    assert metrics["requests"]["pin"] == {"replies": {}, "latency": (0, []), "most_visited": 0}
    assert sum(n for _, n in metrics["turns"][1]) > 0


def test_metrics_without_a_daemon(embedded):
    metrics = embedded.metrics()
    assert metrics["requests"] == {} and metrics["turns"] == (0, []) and metrics["n_members"] == 1


def test_totals(client, pool):
    seqs = pool.create(2, [20, 40])
    pool.erase(seqs[0])
    totals = pool.totals()
    assert 0 < totals["table_used"] <= totals["table_populated"] <= totals["table_limit"]
    assert {name: n for name, n in totals.items() if n != 0 and not name.startswith("table_")} == {
        "n_created": 2, "n_ended": 1, "n_taken": 5, "n_sequences": 1, "peak_sequences": 2, "peak_referenced": 5}
    entry, = client.pools()
    assert {name: entry[name] for name in totals} == totals


def test_pools(client, pool):
    pool.create(2, 20)
    entry, = client.pools()
    assert list(entry) == fields("paged_pool_entry")
    assert {name: entry[name] for name in ("name", "backend", "dtype", "n_pages", "n_free", "n_referenced",
                                           "n_sequences", "v_in_k", "publishes", "page_size", "device")} == {
        "name": "test", "backend": "host", "dtype": "f32", "n_pages": 64, "n_free": 60, "n_referenced": 4,
        "n_sequences": 2, "v_in_k": False, "publishes": True, "page_size": 16, "device": ""}
    assert entry["page_bytes"] == pool.page_bytes


def test_sessions(daemon):
    with daemon.connect(name="first") as first, daemon.connect(name="second", join_token=first.join_token):
        first.pool("test").create(1, 40)
        entries = first.sessions()
        assert list(entries[0]) == fields("paged_session_entry")
        assert [(e["session"], e["name"], e["first"], e["ended"], e["pid"], e["uid"]) for e in entries] == [
            (first.session, "first", True, False, os.getpid(), os.getuid()),
            (first.session, "second", False, False, os.getpid(), os.getuid())]
        assert (entries[0]["n_sequences"], entries[0]["n_pages"]) == (1, 3)


def test_sequences_and_page_tables(client, pool):
    a, b = pool.create(2, [16, 40], tag="chat")
    entries = client.sequences("test")
    assert list(entries[0]) == fields("paged_seq_entry")
    assert [(e["seq"], e["session"], e["capacity"], e["n_pages"], e["tag"]) for e in entries] == [
        (a, client.session, 16, 1, "chat"), (b, client.session, 48, 3, "chat")]
    entry, pages = client.page_table(b)
    assert entry == entries[1]
    assert pages == pool.page_table(b)


def test_published_pages(client, pool):
    tokens = list(range(100, 148))
    seq, = pool.create(1, 48)
    pool.publish(seq, paged.Prefix(tokens))
    client.ping()
    entries = {entry["serial"]: entry for entry in client.prefixes("test")}
    assert len(entries) == 3
    assert list(next(iter(entries.values()))) == fields("paged_node_entry")
    last, = [e for e in entries.values() if e["serial"] not in {x["parent_serial"] for x in entries.values()}]
    chain = [last, entries[last["parent_serial"]]]
    chain.append(entries[chain[1]["parent_serial"]])
    assert [e["page"] for e in reversed(chain)] == pool.page_table(seq)
    assert chain[2]["parent"] is None and chain[2]["parent_serial"] == 0
    assert [chain[0]["parent"], chain[1]["parent"]] == [chain[1]["page"], chain[2]["page"]]
    assert sum((pool.prefix_tokens(e["page"], e["serial"]) for e in reversed(chain)), []) == tokens

    assert client.pin_page("test", last["page"], last["serial"], 60) == 3
    assert all(entry["pinned"] for entry in client.prefixes("test"))
    assert client.pin_page("test", last["page"], last["serial"], seconds=0) == 3
    with pytest.raises(paged.StaleError):
        client.pin_page("test", last["page"], 1 << 60, 60)
    with pytest.raises(paged.StaleError):
        pool.prefix_tokens(last["page"], 1 << 60)
    with pytest.raises(paged.RangeError):
        client.pin_page("test", 64, 1, 60)

    # Pages in a sequence are not cached, and not evicted.
    assert client.evict("test") == 0
    pool.erase(seq)
    assert client.evict("test", 2) == 2
    assert client.evict("test", n_pages=5) == 1
    assert client.prefixes("test") == []


def test_check(client, pool):
    pool.create(3, 20)
    ours, theirs = pool.check(), client.check("test")
    assert ours == theirs
    assert (ours.holds, ours.text, ours.n_free, ours.n_referenced, ours.n_sequences) == (True, "", 58, 6, 3)


def test_kick(daemon, worker):
    """A kick ends a session; with kill also its process."""
    source = """
        import paged
        client = paged.connect(threads=1)
        client.pool("test").create(1, 16)
        print(client.session)
        input()
    """
    with daemon.connect(observer=True) as observer:
        pool = observer.pool("test")
        for kill in (False, True):
            process = worker(source, PAGED_RUNTIME_DIR=str(daemon.runtime_dir))
            observer.kick(int(process.line()), kill=kill)
            if kill:
                assert process.process.wait() == -9
            else:
                # The process lives and may still write to the pages.  The daemon moves them to quarantine in steps.
                while pool.counts().n_referenced > 0:
                    observer.ping()
                assert pool.counts().n_quarantined == 1
                process.kill()
            pool.wait_free(64, 60)
        with pytest.raises(TypeError):
            observer.kick(1, True)


def test_log_level(daemon):
    with daemon.connect(observer=True) as observer:
        before = observer.log_level()
        assert observer.log_level("debug") == before
        assert observer.log_level(level="error") == "debug"
        assert observer.log_level(None) == observer.log_level() == "error"
        observer.log_level(before)
        with pytest.raises(ValueError, match="level is 'loud': none of 'error'"):
            observer.log_level("loud")


def test_observer(daemon):
    with daemon.connect() as client, daemon.connect(observer=True) as observer:
        seq, = client.pool("test").create(1, 40)
        pool = observer.pool("test")
        assert pool.read(seq).owner == client.session
        assert len(pool.page_table(seq)) == 3
        assert observer.check("test").holds
        for call in (pool.create, lambda: pool.erase(seq), lambda: pool.start([(None, 1)]),
                     lambda: observer.pin_page("test", 0, 1, 1)):
            with pytest.raises(paged.PermissionDeniedError):
                call()
