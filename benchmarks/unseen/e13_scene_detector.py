"""Trains a one-stage detector on drawn scenes; model and loss are compiled together with aot_eager."""
import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("scenes")
CLASSES, GRID = 3, 8


def draw_scene(gen, size):
    """An image with one to six filled boxes; boxes as (n, 4) in cx, cy, w, h of the image's size, classes as (n,)."""
    count = int(torch.randint(1, 7, (), generator=gen))
    boxes = torch.cat([0.15 + 0.7 * torch.rand(count, 2, generator=gen), 0.1 + 0.15 * torch.rand(count, 2, generator=gen)], 1)
    kinds = torch.randint(0, CLASSES, (count,), generator=gen)
    image = 0.1 * torch.randn(CLASSES, size, size, generator=gen)
    for (cx, cy, w, h), kind in zip(boxes.tolist(), kinds.tolist()):
        top, left = int((cy - h / 2) * size), int((cx - w / 2) * size)
        image[kind, max(0, top) : top + int(h * size) + 1, max(0, left) : left + int(w * size) + 1] += 1
    return image, boxes, kinds


def collate(scenes):
    """The images stacked; the targets of all images in one table with the image's number in front."""
    images = torch.stack([image for image, _, _ in scenes])
    numbers = torch.cat([torch.full((len(b),), i) for i, (_, b, _) in enumerate(scenes)])
    boxes = torch.cat([b for _, b, _ in scenes])
    kinds = torch.cat([k for _, _, k in scenes])
    return images, (numbers, boxes, kinds)


class Detector(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(CLASSES, width, 3, stride=2, padding=1), nn.SiLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1), nn.SiLU(),
            nn.Conv2d(width, 5 + CLASSES, 1),
        )

    def forward(self, images):
        return self.backbone(images).permute(0, 2, 3, 1)


def detection_loss(prediction, numbers, boxes, kinds):
    cells = (boxes[:, :2] * GRID).long().clamp(0, GRID - 1)
    objectness = torch.zeros_like(prediction[..., 0])
    objectness[numbers, cells[:, 1], cells[:, 0]] = 1.0
    loss = F.binary_cross_entropy_with_logits(prediction[..., 0], objectness)
    chosen = prediction[numbers, cells[:, 1], cells[:, 0]]
    loss = loss + F.l1_loss(chosen[:, 1:5].sigmoid(), boxes)
    present = kinds.unique()
    weight = torch.ones(CLASSES).index_fill(0, present, 1.5)
    return loss + 0.5 * F.cross_entropy(chosen[:, 5:], kinds, weight=weight)


class TrainStep(nn.Module):
    def __init__(self, detector):
        super().__init__()
        self.detector = detector

    def forward(self, images, targets):
        return detection_loss(self.detector(images), *targets)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=32)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)

    detector = Detector()
    train_step = torch.compile(TrainStep(detector), backend="aot_eager", dynamic=False)
    optimizer = torch.optim.AdamW(detector.parameters(), lr=3e-3)
    scenes = [draw_scene(gen, args.size) for _ in range(64)]
    for step in range(1, args.steps + 1):
        picked = torch.randperm(len(scenes), generator=gen)[: args.batch_size].tolist()
        images, targets = collate([scenes[i] for i in picked])
        loss = train_step(images, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            log.info("step %d: loss %.3f", step, loss.item())


if __name__ == "__main__":
    main()
