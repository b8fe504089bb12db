"""A scoring service for card transactions: the requests of each channel wait in a queue, its worker
takes what is there, pads it to a bucket and answers with the risk of each transaction."""
import asyncio
import dataclasses
import pathlib
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np

BUCKETS = (8, 32, 128)
MERCHANTS, FIELDS, EMB = 60_000, 24, 160


@dataclasses.dataclass
class Request:
    merchant: np.ndarray
    fields: np.ndarray
    reply: asyncio.Future


def train_offline(path):
    """Stands for the training job: writes the parameters that the service loads."""
    rng = np.random.default_rng(0)
    scale = lambda *s: (rng.standard_normal(s) / np.sqrt(s[0])).astype(np.float32)
    hidden = 96
    np.savez(path, table=rng.standard_normal((MERCHANTS, EMB), dtype=np.float32) * 0.1,
             w0=scale(EMB + FIELDS, hidden), b0=np.zeros(hidden, np.float32),
             w1=scale(hidden, hidden), b1=np.zeros(hidden, np.float32),
             w2=scale(hidden, 1), b2=np.zeros(1, np.float32),
             centre=rng.standard_normal(FIELDS).astype(np.float32))


@jax.jit
def risk(params, merchant, fields):
    x = (fields - params["centre"]) / (1 + jnp.abs(fields))
    h = jnp.concatenate([params["table"][merchant], x.astype(jnp.float32)], axis=-1)
    h = jax.nn.gelu(h @ params["w0"] + params["b0"])
    h = jax.nn.gelu(h @ params["w1"] + params["b1"]) + h
    return jax.nn.sigmoid(h @ params["w2"] + params["b2"])[:, 0]


class Scorer:
    def __init__(self, path):
        with np.load(path) as archive:
            self.params = jax.device_put({name: archive[name] for name in archive.files})
        self.batches = self.rows = 0

    def warm_up(self):
        for size in BUCKETS:
            risk(self.params, np.zeros(size, np.int32), np.zeros((size, FIELDS), np.float32))

    def score(self, merchant, fields):
        n = len(merchant)
        size = next(b for b in BUCKETS if b >= n)
        merchant = np.pad(merchant.astype(np.int32), (0, size - n))
        fields = np.pad(fields.astype(np.float32), ((0, size - n), (0, 0)))
        self.batches += 1
        self.rows += n
        return np.asarray(risk(self.params, merchant, fields))[:n]


async def worker(queue, scorer):
    while True:
        batch = [await queue.get()]
        while not queue.empty() and sum(len(r.merchant) for r in batch) < 96:
            batch.append(queue.get_nowait())
        merchant = np.concatenate([r.merchant for r in batch])
        fields = np.concatenate([r.fields for r in batch])
        answer = scorer.score(merchant, fields)
        start = 0
        for r in batch:
            r.reply.set_result(answer[start:start + len(r.merchant)])
            start += len(r.merchant)
        await asyncio.sleep(0)


async def client(name, queue, requests, make, latencies):
    rng = np.random.default_rng(sum(map(ord, name)))
    loop = asyncio.get_running_loop()
    for _ in range(requests):
        n = int(rng.integers(1, 9))
        merchant, fields = make(rng, n)
        reply = loop.create_future()
        t0 = time.perf_counter()
        await queue.put(Request(merchant, fields, reply))
        await reply
        latencies.append(time.perf_counter() - t0)
        await asyncio.sleep(float(rng.exponential(0.001)))


def terminal(rng, n):
    return rng.integers(0, MERCHANTS, n).astype(np.int32), rng.standard_normal((n, FIELDS)).astype(np.float32)


def web_shop(rng, n):
    rows = [[float(v) for v in rng.standard_normal(FIELDS)] for _ in range(n)]
    return np.array(rng.integers(0, MERCHANTS, n), np.int32), np.array(rows, np.float32)


def batch_import(rng, n):
    """Cents and counts as the ledger keeps them."""
    return (rng.integers(0, MERCHANTS, n).astype(np.uint16),
            rng.integers(0, 2000, (n, FIELDS)).astype(np.int16))


def branch_office(rng, n):
    return rng.integers(0, MERCHANTS, n).astype(np.uint32), rng.standard_normal((n, FIELDS)).astype(np.float16)


async def serve(scorer):
    channels = {"terminal": terminal, "shop": web_shop, "import": batch_import, "branch": branch_office}
    queues, latencies = {kind: asyncio.Queue() for kind in channels}, []
    workers = [asyncio.create_task(worker(queue, scorer)) for queue in queues.values()]
    await asyncio.gather(*(client(f"{kind}-{i}", queues[kind], 50, make, latencies)
                           for kind, make in channels.items() for i in range(4)))
    for task in workers:
        task.cancel()
    return np.array(latencies) * 1e3


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "risk.npz"
        train_offline(path)
        scorer = Scorer(path)
    t0 = time.perf_counter()
    scorer.warm_up()
    t1 = time.perf_counter()
    ms = asyncio.run(serve(scorer))
    t2 = time.perf_counter()
    print(f"warm-up {t1 - t0:.2f} s, serving {t2 - t1:.2f} s: {scorer.rows} rows in {scorer.batches} batches")
    print(f"latency ms: median {np.median(ms):.2f}, p99 {np.percentile(ms, 99):.1f}, max {ms.max():.1f}")


if __name__ == "__main__":
    main()
