"""PyTorch's own samples (OpInfo) for the operators networks are made of, forward and backward."""

from __future__ import annotations

import pytest
import torch

from .harness import check_op_info, op_infos

#: of equal elements these may return any, so only types whose samples have none are compared
_TIES = ("kthvalue", "topk", "sort", "msort", "argsort")
_OTHERS = (
    "index_fill index_copy index_select index_add index_put gather scatter scatter_add take put take_along_dim "
    "masked_fill masked_scatter searchsorted bucketize __getitem__ scatter_reduce.sum scatter_reduce.prod "
    "scatter_reduce.mean scatter_reduce.amin scatter_reduce.amax index_reduce.mean index_reduce.prod "
    "softmax log_softmax native_batch_norm native_group_norm native_layer_norm grid_sampler_2d"
)
_FUNCTIONAL = (
    "embedding one_hot conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d batch_norm group_norm "
    "instance_norm cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits kl_div soft_margin_loss max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d "
    "avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
    "adaptive_max_pool3d max_unpool2d max_unpool3d interpolate.nearest interpolate.nearest-exact interpolate.linear "
    "interpolate.bilinear interpolate.trilinear interpolate.bicubic interpolate.area pad.reflect pad.replicate unfold "
    "pixel_shuffle pixel_unshuffle channel_shuffle grid_sample"
)
NAMES = (*_TIES, *_OTHERS.split(), *(f"nn.functional.{n}" for n in _FUNCTIONAL.split()))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_pytorch_on_its_own_samples(name: str) -> None:
    dtypes = (torch.float32,) if name in _TIES else (torch.float32, torch.int64, torch.bool)
    checker = check_op_info(op_infos()[name], dtypes)
    assert not checker.failures, "\n".join(checker.failures)
    assert checker.checked, f"no lowering was met; without one: {dict(checker.missing)}"
