"""Look up satellite tiles: embed query tiles, find the nearest in a gallery, vote on land cover."""
import collections
import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np

DIM = 128
COVERS = ("forest", "water", "urban", "crops", "bare", "wetland")


@dataclasses.dataclass(frozen=True)
class Settings:
    gallery_size: int = 120_000
    n_batches: int = 60
    batch: int = 8
    neighbours: int = 10
    tile: int = 16
    seed: int = 8


class Archive:
    """Embeddings of all known tiles, kept next to their metadata."""

    def __init__(self, settings, prototypes):
        rng = np.random.default_rng(settings.seed)
        self.cover = rng.integers(0, len(COVERS), settings.gallery_size)
        self.year = rng.integers(2012, 2024, settings.gallery_size)
        noise = rng.standard_normal((settings.gallery_size, DIM), dtype=np.float32)
        vectors = prototypes[self.cover] + 0.8 * noise
        self.vectors = jax.device_put(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def init_encoder(seed, tile):
    k1, k2 = jax.random.split(jax.random.key(seed))
    return {"w1": jax.random.normal(k1, (tile * tile, 256)) / tile,
            "w2": jax.random.normal(k2, (256, DIM)) / 16.0}


@jax.jit
def encode(params, tiles):
    h = jax.nn.gelu(tiles.reshape(tiles.shape[0], -1) @ params["w1"])
    z = h @ params["w2"]
    return z / jnp.linalg.norm(z, axis=-1, keepdims=True)


def make_searcher(k):
    @jax.jit
    def search(queries, gallery):
        scores = queries @ gallery.T
        coarse, ids = jax.lax.approx_max_k(scores, k)
        return coarse, ids

    return search


class TileStream:
    """Synthetic tiles: a texture per land cover plus noise."""

    def __init__(self, settings):
        self.settings = settings
        self.rng = np.random.default_rng(settings.seed + 1)
        self.textures = self.rng.normal(size=(len(COVERS), settings.tile, settings.tile)).astype(np.float32)

    def __iter__(self):
        s = self.settings
        for _ in range(s.n_batches):
            cover = self.rng.integers(0, len(COVERS), s.batch)
            noise = self.rng.normal(0, 0.5, (s.batch, s.tile, s.tile)).astype(np.float32)
            yield self.textures[cover] + noise, cover


def vote(archive, scores, ids):
    """Weighted vote of the neighbours, newer tiles count more."""
    decisions = []
    scores, ids = np.asarray(scores), np.asarray(ids)
    for q in range(ids.shape[0]):
        ballot = collections.Counter()
        for j in range(ids.shape[1]):
            tile = int(ids[q, j])
            age = 2024 - archive.year[tile]
            ballot[int(archive.cover[tile])] += float(scores[q, j]) / (1.0 + 0.1 * age)
        decisions.append(ballot.most_common(1)[0][0])
    return np.array(decisions)


def classify(params, archive, search, tiles):
    queries = encode(params, tiles)
    scores, ids = search(queries, archive.vectors)
    return vote(archive, scores, ids)


def confusion(pairs):
    table = np.zeros((len(COVERS), len(COVERS)), int)
    for truth, guess in pairs:
        np.add.at(table, (truth, guess), 1)
    return table


def main():
    settings = Settings()
    params = init_encoder(settings.seed, settings.tile)
    stream = TileStream(settings)
    prototypes = np.asarray(encode(params, stream.textures))
    archive = Archive(settings, prototypes * 3)
    search = make_searcher(settings.neighbours)
    pairs = []
    t0 = time.perf_counter()
    for n, (tiles, cover) in enumerate(stream, 1):
        guess = classify(params, archive, search, tiles)
        pairs.append((cover, guess))
        if n % 20 == 0:
            rate = n * settings.batch / (time.perf_counter() - t0)
            print(f"{n * settings.batch} tiles, {rate:.0f} tiles/s")
    table = confusion(pairs)
    print(f"accuracy {np.trace(table) / table.sum():.3f}")
    for name, row in zip(COVERS, table):
        print(f"{name:8s}", *(f"{v:4d}" for v in row))


if __name__ == "__main__":
    main()
