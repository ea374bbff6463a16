# SPDX-License-Identifier: Apache-2.0
"""BlockMask: building, arrays, conversion, views."""
import pytest

import paged

GEOMETRY = {"name": "masks", "n_layers": 1, "n_kv_heads": 2, "k_dim": 16, "dtype": "f32", "page_size": 16,
            "n_pages": 128}
DOC = [i // 45 for i in range(300)]

# Name, text, and the same as a function of h, q_idx, kv_idx.
MASKS = {
    "causal": ("causal", lambda h, q, kv: kv <= q),
    "window": ("sliding_window(50)", lambda h, q, kv: 0 <= q - kv < 50),
    "document": ("causal && kv_idx / 45 == q_idx / 45", lambda h, q, kv: kv <= q and DOC[q] == DOC[kv]),
    "heads": ("causal && q_idx - kv_idx < 40 * (h + 1)", lambda h, q, kv: 0 <= q - kv < 40 * (h + 1)),
    "empty": ("false", lambda h, q, kv: False),
    "full": ("true", lambda h, q, kv: True),
}


@pytest.fixture
def client():
    with paged.embedded(GEOMETRY, threads=1, run="own") as client:
        yield client


@pytest.fixture
def pool(client):
    with client.pool("masks") as pool:
        yield pool


def lists_of(function, q_len, kv_len, q_block, kv_block, *, n_heads=1, q_base=None):
    """[head][query block] of (partial blocks, full blocks), by looking at every element.

    As in PyTorch, a block is full only if all its elements exist.
    """
    q_base = kv_len - q_len if q_base is None else q_base
    heads = []
    for h in range(n_heads):
        heads.append([])
        for q0 in range(0, q_len, q_block):
            partial, full = [], []
            for kv0 in range(0, kv_len, kv_block):
                seen = [function(h, q_base + q, kv) for q in range(q0, min(q0 + q_block, q_len))
                        for kv in range(kv0, min(kv0 + kv_block, kv_len))]
                if sum(seen) == q_block * kv_block:
                    full.append(kv0 // kv_block)
                elif any(seen):
                    partial.append(kv0 // kv_block)
            heads[-1].append((partial, full))
    return heads


def lists_in(arrays, row=0):
    """The same from BlockMask.arrays()."""
    kinds = []
    for number, index in (("num_blocks", "indices"), ("full_num_blocks", "full_indices")):
        (counts, shape), (indices, index_shape) = arrays[number], arrays[index]
        assert counts.typecode == indices.typecode == "i"
        n_rows, n_heads, n_q, width = index_shape
        assert shape == (n_rows, n_heads, n_q) and len(counts) == n_rows * n_heads * n_q
        assert len(indices) == len(counts) * width
        kinds.append([[list(indices[i * width:i * width + counts[i]])
                       for i in range((row * n_heads + h) * n_q, (row * n_heads + h + 1) * n_q)]
                      for h in range(n_heads)])
        for i, count in enumerate(counts):
            assert not any(indices[i * width + count:(i + 1) * width])
    return [list(zip(*heads, strict=True)) for heads in zip(*kinds, strict=True)]


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("q_len, kv_len, q_block, kv_block", [(128, 128, 32, 16), (100, 230, 64, 32), (1, 77, 1, 16)])
def test_lists(pool, name, q_len, kv_len, q_block, kv_block):
    text, function = MASKS[name]
    n_heads = 3 if name == "heads" else 1
    mask = pool.block_mask(text, q_len, kv_len, n_heads=3 if name == "heads" else 0, q_block=q_block,
                           kv_block=kv_block)
    expected = lists_of(function, q_len, kv_len, q_block, kv_block, n_heads=n_heads)
    assert lists_in(mask.arrays()) == expected
    assert (mask.n_rows, mask.n_heads, mask.q_block, mask.kv_block) == (1, n_heads, q_block, kv_block)
    n_listed = sum(len(partial) + len(full) for head in expected for partial, full in head)
    n_all = n_heads * -(-q_len // q_block) * -(-kv_len // kv_block)
    assert mask.n_blocks == n_listed and mask.physical is False and mask.pool is pool
    assert mask.sparsity == pytest.approx(100 * (1 - n_listed / n_all))
    assert mask.n_bytes > 0
    dense, shape = mask.dense()
    assert shape == (1, n_heads, -(-q_len // q_block), -(-kv_len // kv_block))
    assert len(dense) == n_all and sum(dense) == n_listed


def test_mod_and_arrays(pool):
    np = pytest.importorskip("numpy")
    doc = np.array(DOC)
    mod = pool.mod("mask", "causal && document", doc=doc)
    mask = pool.block_mask(mod, 200, 200, q_block=32, kv_block=16, arrays={"doc": doc})
    assert lists_in(mask.arrays()) == lists_of(MASKS["document"][1], 200, 200, 32, 16)
    text = pool.block_mask("causal && document", 200, 200, q_block=32, kv_block=16, arrays={"doc": doc})
    assert text.arrays() == mask.arrays()
    with pytest.raises(paged.NotFoundError, match="doc"):
        pool.block_mask(mod, 200, 200)
    with pytest.raises(paged.RangeError, match="doc"):
        pool.block_mask(mod, 310, 310, q_block=32, kv_block=16, arrays={"doc": doc})


def test_defaults(pool):
    mask = pool.block_mask("causal", 300, 300)
    assert (mask.q_block, mask.kv_block, mask.n_heads) == (128, 128, 1)
    assert lists_in(mask.arrays()) == lists_of(MASKS["causal"][1], 300, 300, 128, 128)
    assert lists_in(pool.block_mask(None, 256, 256).arrays()) == [[([], [0, 1])] * 2]


def test_rows(pool):
    mask = pool.block_mask("causal && q_idx - kv_idx < 20 * (b + 1)", [64, 50], [64, 90], q_base=[0, 10], b=[3, 1],
                           q_block=16, kv_block=16)
    assert mask.n_rows == 2
    for row, (q_len, kv_len, q_base, b) in enumerate([(64, 64, 0, 3), (50, 90, 10, 1)]):
        expected = lists_of(lambda h, q, kv, b=b: 0 <= q - kv < 20 * (b + 1), q_len, kv_len, 16, 16, q_base=q_base)
        assert lists_in(mask.arrays(), row) == expected
    with pytest.raises(ValueError, match="row 1"):
        mask.dense()
    different = pool.block_mask("causal", [64, 16], 64, q_block=16)
    with pytest.raises(paged.InvalidError):
        different.arrays()


def test_width(pool):
    mask = pool.block_mask("causal", 128, 128, q_block=32, kv_block=16)
    arrays = mask.arrays(8)
    assert arrays["indices"][1] == arrays["full_indices"][1] == (1, 1, 4, 8)
    assert lists_in(arrays) == lists_in(mask.arrays())
    with pytest.raises(paged.InvalidError, match="1 wide"):
        mask.arrays(width=1)


@pytest.mark.parametrize("name", MASKS)
def test_arrays_round_trip(pool, name):
    text, _ = MASKS[name]
    n_heads = 3 if name == "heads" else 0
    mask = pool.block_mask(text, [100, 100], [230, 200], n_heads=n_heads, q_block=64, kv_block=32)
    again = pool.block_mask_from_arrays([100, 100], [230, 200], q_block=64, kv_block=32, **mask.arrays())
    assert again.arrays() == mask.arrays() and again.n_heads == mask.n_heads


def test_arrays_of_numpy(pool):
    np = pytest.importorskip("numpy")
    mask = pool.block_mask("causal", 128, 128, q_block=32, kv_block=16)
    arrays = {name: np.array(array, np.int32).reshape(shape) for name, (array, shape) in mask.arrays().items()}
    again = pool.block_mask_from_arrays(128, 128, q_block=32, kv_block=16, **arrays)
    assert again.arrays() == mask.arrays()
    partial = pool.block_mask_from_arrays(128, 128, q_block=32, kv_block=16, num_blocks=arrays["num_blocks"],
                                          indices=arrays["indices"])
    assert [full for _, full in lists_in(partial.arrays())[0]] == [[]] * 4

    def refused(match, error=ValueError, q_len=128, **changes):
        with pytest.raises(error, match=match):
            pool.block_mask_from_arrays(q_len, 128, kv_block=16, **{"q_block": 32, **arrays, **changes})

    refused("indices must be given together", indices=None)
    refused("int32", num_blocks=arrays["num_blocks"].astype(np.int64))
    refused("dense", indices=arrays["indices"][..., ::-1])
    refused("width", indices=arrays["indices"][0])
    refused("3 query blocks", q_len=90)
    refused("8 query blocks", q_block=16)
    refused("2 rows", q_len=[128, 128])
    refused("2 heads", n_heads=2)
    refused("row 1", q_len=[128, 64])
    refused("6 elements", num_blocks=(arrays["num_blocks"], (2, 3)))
    refused("shape", num_blocks=(arrays["num_blocks"], (-1, -1, 4)))
    refused("query blocks", num_blocks=(arrays["num_blocks"], (2, 2)))
    refused("buffer of int32", num_blocks=(b"0000" * 4, (1, 1, 4)))
    refused(None, TypeError, num_blocks=[1, 2, 3, 4])
    refused(None, TypeError, num_blocks=(1, 2, 3))
    refused("block 99", paged.RangeError, indices=np.full_like(arrays["indices"], 99))
    refused(None, paged.InvalidError, indices=np.zeros_like(arrays["indices"]))


@pytest.mark.parametrize("kv_block", [16, 8, 32])
def test_physical(pool, kv_block):
    # Pages of the two sequences alternate.
    seqs = pool.create(2)
    for n_tokens in range(16, 129, 16):
        pool.reserve(seqs, n_tokens)
    tables = [pool.page_table(seq) for seq in seqs]
    logical = pool.block_mask("sliding_window(40)", 100, [100, 120], q_block=32, kv_block=kv_block)
    mask = logical.to_physical(seqs, [100, 120])
    assert mask.physical is True and mask.n_rows == 2
    if kv_block <= 16:
        parts = 16 // kv_block
        assert mask.kv_block == kv_block
        for row, table in enumerate(tables):
            found, expected = lists_in(mask.arrays(), row)[0], lists_in(logical.arrays(), row)[0]
            for physical, (partial, full) in zip(found, expected, strict=True):
                there = [[table[i // parts] * parts + i % parts for i in blocks] for blocks in (partial, full)]
                assert sorted(physical[0] + physical[1]) == sorted(there[0] + there[1])
                assert set(physical[1]) <= set(there[1])
    assert mask.to_logical().arrays() == logical.arrays()
    direct = pool.block_mask("sliding_window(40)", 100, [100, 120], seqs=seqs, q_block=32, kv_block=kv_block,
                             physical=True)
    assert direct.arrays() == mask.arrays()
    given = pool.block_mask_from_arrays(100, [100, 120], seqs=seqs, q_block=32, kv_block=kv_block,
                                        physical=True, **logical.arrays())
    assert given.arrays() == mask.arrays()
    by_pages = logical.to_physical(None, [100, 120], pages=tables)
    assert by_pages.arrays() == mask.arrays()
    with pytest.raises(paged.InvalidError):
        mask.to_physical(seqs, 100)
    with pytest.raises(paged.InvalidError):
        logical.to_logical()
    with pytest.raises(paged.InvalidError):
        mask.crop(10, 10)


def test_one_logical_mask_for_many_sequences(pool):
    seqs = pool.create(3, n_tokens=64)
    mask = pool.block_mask("causal", 64, 64, q_block=16, kv_block=16).to_physical(seqs, 64)
    assert mask.n_rows == 3
    for row, seq in enumerate(seqs):
        last = lists_in(mask.arrays(), row)[0][-1]
        assert sorted(last[0] + last[1]) == sorted(pool.page_table(seq))


def test_stale_physical_mask(pool):
    (seq,) = pool.create(1, n_tokens=64)
    mask = pool.block_mask("causal", 64, 64, seqs=[seq], q_block=16, physical=True)
    assert mask.kv_block == pool.page_size and mask.validate() is None
    pool.reserve(seq, 128)
    assert mask.validate() is None
    with pytest.raises(paged.CapacityError):
        mask.to_logical().to_physical(seq, 1000)
    pool.truncate(seq, 16)
    with pytest.raises(paged.StaleError):
        mask.validate()
    pool.erase(seq)
    with pytest.raises(paged.StaleError):
        mask.to_logical().to_physical(seq, 64)


def test_crop_and_transpose(pool):
    mask = pool.block_mask("causal", 128, 128, q_block=32, kv_block=16)
    cropped = mask.crop(64, 40)
    expected = [[([i for i in partial if i < 3], [i for i in full if i < 3])
                 for partial, full in lists_in(mask.arrays())[0][:2]]]
    for q_block in (0, 1):
        partial, full = expected[0][q_block]
        if 2 in full:
            full.remove(2)
            partial.append(2)
    assert [(sorted(partial), full) for partial, full in lists_in(cropped.arrays())[0]] == expected[0]
    transposed = mask.transpose()
    assert (transposed.q_block, transposed.kv_block) == (16, 32)
    by_kv = lists_in(transposed.arrays())[0]
    for q_block, kinds in enumerate(lists_in(mask.arrays())[0]):
        for kind in (0, 1):
            assert kinds[kind] == [kv for kv in range(8) if q_block in by_kv[kv][kind]]


def test_picture(pool):
    mask = pool.block_mask("causal && q_idx - kv_idx < 64 * (h + 1)", 512, 512, n_heads=6, q_block=64, kv_block=64)
    picture = mask.picture()
    assert "(0, 0)" in picture and "(0, 3)" in picture and "(0, 4)" not in picture
    assert mask.picture(limit=1).count("\n") < picture.count("\n")
    assert len(mask.picture(4, 4, 1).splitlines()[1]) < len(picture.splitlines()[1])


@pytest.mark.parametrize("arguments, error", [
    ({"mod": "causal && h > 0"}, paged.InvalidError),
    ({"mod": "score"}, paged.InvalidError),
    ({"mod": 3}, TypeError),
    ({"q_len": -1}, OverflowError),
    ({"q_len": [8, 8], "kv_len": [8, 8, 8]}, ValueError),
    ({"max_bytes": 16}, paged.LimitError),
    ({"max_bytes": 2**64}, OverflowError),
    ({"kv_block": 2**32}, OverflowError),
    ({"physical": True, "kv_block": 24}, (paged.InvalidError, ValueError)),
    ({"arrays": {"doc": [1, 2]}}, TypeError),
    ({"windows": 4}, TypeError),
])
def test_refused(pool, arguments, error):
    with pytest.raises(error):
        pool.block_mask(**{"mod": "causal", "q_len": 64, "kv_len": 64, **arguments})


def test_score_mod_is_refused(pool):
    with pytest.raises(ValueError, match="score mod"):
        pool.block_mask(pool.mod("score", "score"), 8, 8)
    with pytest.raises(TypeError):
        paged.BlockMask()


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("q_len, kv_len", [(512, 512), (300, 300), (128, 640)])
def test_lists_of_pytorch(pool, name, q_len, kv_len):
    torch = pytest.importorskip("torch")
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    offset = kv_len - q_len
    functions = {
        "causal": lambda b, h, q, kv: kv <= q + offset,
        "window": lambda b, h, q, kv: (kv <= q + offset) & (q + offset - kv < 50),
        "document": lambda b, h, q, kv: (kv <= q + offset) & (kv // 45 == (q + offset) // 45),
        "heads": lambda b, h, q, kv: (kv <= q + offset) & (q + offset - kv < 40 * (h + 1)),
        "empty": lambda b, h, q, kv: q < -1,
        "full": lambda b, h, q, kv: q >= 0,
    }
    n_heads = 3 if name == "heads" else 1
    theirs = flex.create_block_mask(functions[name], 1, n_heads, q_len, kv_len, device="cpu", BLOCK_SIZE=(64, 32))
    ours = pool.block_mask(MASKS[name][0], q_len, kv_len, n_heads=n_heads, q_block=64, kv_block=32)
    width = -(-kv_len // 32)
    for key, (array, shape) in ours.arrays(width).items():
        expected = getattr(theirs, {"num_blocks": "kv_num_blocks", "indices": "kv_indices",
                                    "full_num_blocks": "full_kv_num_blocks",
                                    "full_indices": "full_kv_indices"}[key])
        found = torch.tensor(array, dtype=torch.int32).view(shape)
        if key.endswith("indices"):
            # PyTorch lists the other blocks past the count, we write 0.
            counts = theirs.full_kv_num_blocks if key.startswith("full") else theirs.kv_num_blocks
            expected = torch.where(torch.arange(width) < counts[..., None], expected, 0)
        assert torch.equal(found, expected.to(torch.int32)), key
    again = pool.block_mask_from_arrays(q_len, kv_len, q_block=64, kv_block=32, num_blocks=theirs.kv_num_blocks,
                                        indices=theirs.kv_indices, full_num_blocks=theirs.full_kv_num_blocks,
                                        full_indices=theirs.full_kv_indices)
    assert again.arrays() == ours.arrays()


def test_remote(served):
    """The daemon builds the same mask as the library."""
    pool = served.pool("test")
    text = "causal && q_idx - kv_idx < window"
    local = pool.block_mask(text, 300, 300, arrays={"window": 50})
    assert pool.block_mask(text, 300, 300, arrays={"window": 50}, remote=True).arrays() == local.arrays()


def test_remote_with_an_uploaded_array(served):
    np = pytest.importorskip("numpy")
    pool, doc = served.pool("test"), np.array(DOC)
    mod = pool.mod("mask", "causal && document", doc=doc)
    with pytest.raises(paged.NotFoundError, match="doc"):
        pool.block_mask(mod, 300, 300, remote=True)
    served.upload("doc", doc)
    local = pool.block_mask(mod, 300, 300, kv_block=16, arrays={"doc": doc})
    assert pool.block_mask(mod, 300, 300, kv_block=16, remote=True).arrays() == local.arrays()
