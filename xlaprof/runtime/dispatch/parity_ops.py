"""The operators that PyTorch/XLA 2.9 lowers, by name and overload: all others that reach it run on the CPU.

Taken from ``codegen/xla_native_functions.yaml``, without ``nonzero`` and ``masked_select``: these run on the CPU unless
``XLA_EXPERIMENTAL`` names them.
"""

from __future__ import annotations

_NAMES = """
__ilshift__.Scalar __ilshift__.Tensor __irshift__.Scalar __irshift__.Tensor __lshift__.Scalar __lshift__.Tensor
__rshift__.Scalar __rshift__.Tensor _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d
_adaptive_avg_pool3d_backward _amp_foreach_non_finite_check_and_unscale_ _amp_update_scale_ _cdist_forward
_convolution _copy_from _copy_from_and_resize _euclidean_dist _index_put_impl_ _linalg_slogdet _linalg_svd
_local_scalar_dense _log_softmax _log_softmax_backward_data _native_batch_norm_legit
_native_batch_norm_legit.no_stats _pack_padded_sequence _pdist_forward _prelu_kernel _prelu_kernel_backward _softmax
_softmax_backward_data _to_copy _to_cpu _trilinear _unsafe_view abs acos acosh adaptive_max_pool2d
adaptive_max_pool2d_backward add.Scalar add.Tensor addcdiv addcmul addmm affine_grid_generator alias_copy all
all.dim amax amin any any.dim arange.start_out argmax argmin as_strided as_strided_ as_strided_copy
as_strided_scatter asin asinh atan atan2 atanh avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward baddbmm
bernoulli bernoulli.p bernoulli_.Tensor binary_cross_entropy binary_cross_entropy_backward
binary_cross_entropy_with_logits bitwise_and.Tensor bitwise_not bitwise_or.Tensor bitwise_xor.Tensor block_diag bmm
cat ceil celu celu_ cholesky clamp clamp.Tensor clamp_max clamp_max.Tensor clamp_min clamp_min.Tensor clone
constant_pad_nd convolution_backward convolution_backward_overrideable convolution_overrideable copy copy_ cos cosh
count_nonzero count_nonzero.dim_IntList cross cumprod cumsum detach_copy diag diag_embed diagonal diagonal_backward
diagonal_copy diagonal_scatter div.Scalar div.Tensor div.Tensor_mode dot einsum elu elu_backward embedding
embedding_dense_backward empty.memory_format empty_strided eq.Scalar eq.Tensor erf erfc erfinv exp expand
expand_copy expm1 exponential_ eye.m_out eye.out fill_.Scalar fill_.Tensor flip floor floor_divide fmod.Scalar
fmod.Tensor frac full gather ge.Scalar ge.Tensor gelu gelu_backward glu gt.Scalar gt.Tensor hardshrink
hardshrink_backward hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward
index.Tensor index_add index_copy index_fill_.int_Scalar index_fill_.int_Tensor index_put_ index_select inverse
isnan kl_div kthvalue le.Scalar le.Tensor leaky_relu leaky_relu_backward lerp.Scalar lerp.Tensor lift lift_fresh
linalg_inv_ex linalg_pinv.atol_rtol_tensor linalg_vector_norm linspace log log10 log1p log2 log_sigmoid_backward
log_sigmoid_forward logdet logical_and logical_not logical_or logical_xor logit logsumexp lt.Scalar lt.Tensor
masked_fill.Scalar masked_fill.Tensor masked_scatter max max.dim max.dim_max max_pool2d max_pool2d_with_indices
max_pool2d_with_indices_backward max_pool3d max_pool3d_with_indices max_pool3d_with_indices_backward max_unpool2d
max_unpool3d maximum mean mean.dim min min.dim min.dim_min minimum mish mm mse_loss mse_loss_backward mul.Scalar
mul.Tensor multinomial mv mv.out mvlgamma nan_to_num narrow_copy native_batch_norm native_batch_norm_backward
native_dropout native_dropout_backward native_group_norm native_layer_norm ne.Scalar ne.Tensor neg new_empty_strided
nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward norm.Scalar norm.ScalarOpt_dim
norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor normal_
permute permute_copy pixel_shuffle pixel_unshuffle pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor prod prod.dim_int
put_ qr random_ random_.from random_.to randperm reciprocal reflection_pad2d reflection_pad2d_backward relu
remainder.Scalar remainder.Tensor repeat replication_pad1d replication_pad1d_backward replication_pad2d
replication_pad2d_backward replication_pad3d replication_pad3d_backward reshape resize_ roll round rrelu_with_noise
rrelu_with_noise_backward rsqrt rsub.Scalar rsub.Tensor scatter.reduce scatter.src scatter.value
scatter.value_reduce scatter_add scatter_reduce.two select.int select_backward select_copy.int select_scatter selu
selu_ set_.source_Tensor sgn sigmoid sigmoid_backward sign silu silu_backward sin sinh slice.Tensor slice_backward
slice_copy.Tensor slice_scatter smooth_l1_loss smooth_l1_loss_backward softplus softplus_backward softshrink
softshrink_backward sort sort.stable split_copy.Tensor split_with_sizes_copy sqrt squeeze_copy squeeze_copy.dim
squeeze_copy.dims stack std std.correction std.dim std_mean.correction sub.Scalar sub.Tensor sum sum.dim_IntList svd
t t_copy take tan tanh tanh_backward threshold threshold_backward topk trace transpose_copy.int triangular_solve
tril triu trunc unbind_copy.int uniform_ unsqueeze_copy upsample_bilinear2d upsample_bilinear2d_backward
upsample_nearest2d upsample_nearest2d_backward var.correction var_mean.correction view view_as_complex_copy
view_as_real_copy view_copy where.self xlogy.Tensor zero_
"""
LOWERED = frozenset(_NAMES.split())

#: PyTorch/XLA decomposes these, or the operators they are part of, above autograd: they never reach its device
DECOMPOSED = frozenset(
    {
        "native_layer_norm_backward", "native_group_norm_backward", "linear", "linear_backward", "convolution",
        "_scaled_dot_product_fused_attention_overrideable", "_batch_norm_with_update", "batch_norm_backward",
    }
)  # fmt: skip
