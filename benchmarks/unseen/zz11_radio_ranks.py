"""Call-sign tagging in radio logs with two data-parallel ranks (gloo)."""
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import BertConfig, BertForTokenClassification

VOCAB, TAGS, IGNORE = 200, 4, -100
WORLD = 2


class RadioLog(Dataset):
    """Transmissions in which a call sign (codes above 150) has an operator, a station and a suffix."""

    def __init__(self, count: int, seed: int):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(count):
            size = int(torch.randint(12, 40, (1,), generator=g))
            ids = torch.randint(2, 150, (size,), generator=g)
            tags = torch.zeros(size, dtype=torch.long)
            at = int(torch.randint(0, size - 3, (1,), generator=g))
            ids[at : at + 3] = torch.randint(150, VOCAB, (3,), generator=g)
            tags[at : at + 3] = torch.tensor([1, 2, 3])
            self.rows.append((ids, tags))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True)
    tags = torch.nn.utils.rnn.pad_sequence([r[1] for r in rows], batch_first=True, padding_value=IGNORE)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": tags}


def tagger():
    return BertForTokenClassification(
        BertConfig(
            vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
            max_position_embeddings=64, num_labels=TAGS, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )


def reduce_mean(value: torch.Tensor) -> float:
    value = value.detach().clone()
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


@torch.no_grad()
def tag_accuracy(model, loader) -> float:
    model.eval()
    counts = torch.zeros(2)
    for batch in loader:
        logits = model(**batch).logits
        valid = batch["labels"] > 0
        counts += torch.stack([(logits.argmax(-1) == batch["labels"])[valid].sum(), valid.sum()])
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1]).item()


def worker(rank: int, port: int):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(31)
    torch.set_num_threads(1)

    model = torch.compile(tagger(), backend="aot_eager", dynamic=False)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    train_set, held_set = RadioLog(1280, seed=1), RadioLog(128, seed=2)
    sampler = DistributedSampler(train_set, WORLD, rank, shuffle=True, seed=3)
    train_loader = DataLoader(train_set, batch_size=16, sampler=sampler, collate_fn=collate, drop_last=True)
    held_loader = DataLoader(held_set, batch_size=16, sampler=DistributedSampler(held_set, WORLD, rank), collate_fn=collate)

    begun = time.time()
    for epoch in range(4):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for batch in train_loader:
            loss = ddp(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total += loss.detach()
        mean = reduce_mean(total / len(train_loader))
        accuracy = tag_accuracy(model, held_loader)
        if rank == 0:
            print(f"epoch {epoch}: loss {mean:.3f}, tags right {accuracy:.3f}, {time.time() - begun:.1f} s", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    mp.spawn(worker, args=(free_port(),), nprocs=WORLD)


if __name__ == "__main__":
    main()
