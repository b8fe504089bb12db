"""The homes of the facade's names: one table.

A module of ``torch_xla`` -> home -> its names there. ``name=other`` is ``name`` here and ``other`` at home. ``*`` is
every name that has no other home; ``=`` is the home module itself, imported with this one: what is set here is set
there. A module of the table that has no file consists of these names alone.
"""

from __future__ import annotations

_CHECKPOINT = "xlaprof.runtime.spmd.checkpoint"
_DISTRIBUTED = "xlaprof.runtime.distributed"
_FSDP = "xlaprof.runtime.distributed.fsdp"
_SPMD = "xlaprof.runtime.spmd"

_BRIDGE = {
    "xlaprof.runtime.dynamo.bridge": "extract_compiled_graph partition_fx_graph_for_cpu_fallback",
    "xlaprof.runtime.dynamo.donation": "alias_with_buffer_donor_config",
    "xlaprof.runtime.dynamo.xlac": "GraphInputMatcher NoneRemover",
}
_EAGER = {
    "xlaprof.torch_xla.torch_xla": "compile",
    "xlaprof.runtime": "eager_mode eager_mode_context is_eager_mode",
}
_PROCESS_GROUP = {"xlaprof.runtime.distributed.backend": "="}  # makes torch.distributed know the backend "xla"
_SPMD_NOW = {"xlaprof.torch_xla.distributed.spmd": "*"}

TABLE: dict[str, dict[str, str]] = {
    "": {
        "xlaprof.torch_xla.torch_xla": "compile device device_count devices launch manual_seed real_devices "
        "set_custom_compile_options step sync",
        "xlaprof.torch_xla.version": "__version__ __xla_gitrev__",
        "xlaprof.torch_xla.stablehlo": "save_as_stablehlo save_torch_model_as_stablehlo",
        "xlaprof.torch_xla": "xr=runtime",
        "xlaprof.torch_xla._internal": "tpu",
        "xlaprof.torch_xla.core": "xenv=xla_env_vars xm=xla_model",
        "xlaprof.torch_xla.distributed": "xmp=xla_multiprocessing",
        "xlaprof.torch_xla.experimental": "plugins",
        "xlaprof.torch_xla.utils": "xu=utils",
    },
    "_XLAC": {
        "xlaprof.runtime": "_get_use_eager_mode=is_eager_mode _set_use_eager_mode=eager_mode "
        "_set_xla_custom_compile_options=set_custom_compile_options",
        "xlaprof.runtime.execution.guard": "_get_allow_execution=get_allow_execution "
        "_set_allow_execution=set_allow_execution",
        "xlaprof.runtime.execution.barrier": "_prepare_to_exit=wait_for",
        "xlaprof.runtime.tape.tapes": "_init_computation_client=devices _xla_get_default_device_ordinal=current",
        "xlaprof.runtime.tape.mode": "_get_current_graph_name=get_graph_name _set_current_graph_name=set_graph_name",
        "xlaprof.runtime.tape.computations": "_xla_optimization_barrier_=optimization_barrier_",
        "xlaprof.runtime.modes.sessions": "_dynamic_shape_detector_end_session=end "
        "_dynamic_shape_detector_get_max_different_graphs=get_limit _dynamic_shape_detector_remove_session=remove "
        "_dynamic_shape_detector_set_max_different_graphs=set_limit "
        "_dynamic_shape_detector_set_max_num_different_graphs_allowed=set_limit "
        "_dynamic_shape_detector_start_session=start",
        "xlaprof.runtime.spmd.checkpoint.preemption": "_activate_preemption_sync_manager=activate "
        "_deactivate_preemption_sync_manager=deactivate _sync_point_reached=reached",
        _DISTRIBUTED: "_xla_get_num_processes=process_count _xla_get_process_index=process_index",
        "xlaprof.runtime.spmd.annotate": "_xla_clear_sharding=clear_sharding _xla_mark_sharding=mark",
        "xlaprof.runtime.spmd.linear": "_xla_einsum=einsum",
        "xlaprof.runtime.spmd.manual": "_spmd_full_to_shard_shape=full_to_shard_shape "
        "_spmd_shard_to_full_shape=shard_to_full_shape _xla_spmd_all_reduce=spmd_all_reduce "
        "_xla_spmd_reduce_scatter=spmd_reduce_scatter",
        "xlaprof.runtime.spmd.mesh": "_xla_get_all_device_attributes=device_attributes",
        "xlaprof.runtime.spmd.mode": "_xla_force_spmd_device=use_spmd _xla_get_auto_sharding=is_auto_spmd "
        "_xla_num_runtime_devices=addressable_runtime_device_count",
        "xlaprof.runtime.spmd.sharding": "OpSharding",
        "xlaprof.runtime.spmd.tensors.layout": "_get_xla_op_sharding=sharding_of "
        "_get_xla_sharding_spec=get_sharding_spec _get_xla_sharding_type=get_sharding_type",
        "xlaprof.runtime.spmd.tensors.shards": "_global_tensor_from_cpu_shards=global_tensor_from_cpu_shards "
        "_load_local_shards=load _xla_get_all_runtime_devices=device_names _xla_get_runtime_devices=device_names",
        "xlaprof.runtime.spmd.xlac": "XlaShardingSpec _get_local_shard_replica_and_indices _get_local_shards "
        "_get_xla_sharding_specs _mark_manual_sharding _xla_annotate_custom_sharding _xla_get_spmd_config_is_locked "
        "_xla_set_auto_sharding",
        "xlaprof.runtime.dynamo.donation": "_get_buffer_donation=get_buffer_donation "
        "_set_buffer_donation=set_buffer_donation _xla_get_enable_alias_with_buffer_donor_config=aliasing "
        "_xla_get_should_alias_with_buffer_donor_config=aliasing "
        "_xla_set_enable_alias_with_buffer_donor_config=set_aliasing "
        "_xla_set_should_alias_with_buffer_donor_config=set_aliasing",
        "xlaprof.runtime.dynamo.xlac": "_clear_pending_irs _get_base_seed_as_tensor _get_graph_hash _get_seed_info_id "
        "_get_tensors_handle _get_tensors_xla_device_data_node _run_cached_graph _unique_id_for_ir_and_data",
        "xlaprof.runtime.metrics": "_clear_xla_counters=clear_counters _clear_xla_metrics=clear_metrics "
        "_get_executed_fallback_ops=executed_fallback_ops _short_xla_metrics_report=short_metrics_report "
        "_xla_counter_names=counter_names _xla_counter_value=counter_value _xla_increment_counter=count "
        "_xla_metric_data=metric_data _xla_metric_names=metric_names _xla_metrics_report=metrics_report",
        "xlaprof.torch_xla.torch_xla": "_xla_get_all_devices=real_devices _xla_get_devices=real_devices "
        "_xla_num_devices=device_count",
        "xlaprof.torch_xla.runtime": "_xla_get_device_attributes=runtime_device_attributes "
        "_xla_get_num_cached_compilation_graph=get_num_cached_compilation_graph",
        "xlaprof.torch_xla.core.xla_model": "_xla_device_kind=xla_device_kind _xla_get_cpu_tensors=_read "
        "_xla_memory_info=get_memory_info _xla_real_devices=xla_real_devices _xla_wait_device_ops=wait_device_ops",
        "xlaprof.torch_xla.core.functions": "_xla_nms=nms",
        "xlaprof.torch_xla._products": "_xla_cast_int4=cast_int4 _xla_dot_general=dot_general",
        "xlaprof.torch_xla._graphs": "_get_ir_debug=ir_debug _get_xla_tensor_debug_info=debug_info "
        "_get_xla_tensors_dot=dot _get_xla_tensors_hlo=hlo _get_xla_tensors_hlo_proto=hlo_proto "
        "_get_xla_tensors_text=text _set_ir_debug=set_ir_debug",
    },
    "_dynamo": {},
    "_dynamo.config": {"xlaprof.runtime.dynamo.config": "="},
    "_dynamo.dynamo_backend2": {"xlaprof.runtime.dynamo": "dynamo_backend=openxla"},
    "_dynamo.dynamo_bridge": _BRIDGE,
    "_internal.utils": {"xlaprof.torch_xla.core.xla_model": "parse_xla_device"},
    "amp.syncfree.adam": {"xlaprof.torch_xla.amp.syncfree": "Adam"},
    "amp.syncfree.adamw": {"xlaprof.torch_xla.amp.syncfree": "AdamW"},
    "amp.syncfree.sgd": {"xlaprof.torch_xla.amp.syncfree": "SGD"},
    "core.dynamo_bridge": _BRIDGE,
    "core.xla_model": {
        _DISTRIBUTED: "CoalescingBuckets REDUCE_AND REDUCE_MAX REDUCE_MIN REDUCE_MUL REDUCE_OR REDUCE_SUM all_gather "
        "all_gather_bucketized all_reduce all_reduce_bucketized_gradients all_to_all broadcast_master_param "
        "collective_broadcast collective_permute get_local_ordinal=local_ordinal get_ordinal=global_ordinal "
        "is_master_ordinal master_print mesh_reduce recv reduce_gradients reduce_scatter reduce_scatter_bucketized "
        "rendezvous send xla_rendezvous xrt_world_size=world_size",
        "xlaprof.runtime": "add_step_closure mark_step optimizer_step wait_device_ops",
        "xlaprof.runtime.tape.computations": "optimization_barrier_",
        "xlaprof.runtime.distributed.programs.operators": "XLA_LIB=library",
        "xlaprof.torch_xla.utils.rate": "RateTracker",
        "xlaprof.torch_xla._graphs": "get_stablehlo=stablehlo get_stablehlo_bytecode=stablehlo_bytecode",
        "xlaprof.torch_xla._random": "fork_rng get_rng_state set_rng_state",
    },
    "debug.graph_saver": {"xlaprof.torch_xla._graphs": "save_tensors_graph"},
    "debug.metrics": {
        "xlaprof.runtime.metrics": "clear_all clear_counters clear_metrics counter_names counter_value "
        "executed_fallback_ops metric_data metric_names metrics_report short_metrics_report",
    },
    "debug.profiler": {
        "xlaprof.runtime.profiler": "StepTrace Trace get_tracer_marked_step set_tracer_marked_step start_server "
        "start_trace stop_trace trace trace_detached trace_me",
    },
    "distributed.fsdp": {
        _FSDP: "XlaFullyShardedDataParallel consolidate_sharded_model_checkpoints consolidate_sharded_state_dicts",
        "xlaprof.torch_xla.distributed.fsdp.utils": "checkpoint_module",
    },
    "distributed.fsdp.state_dict_utils": {
        _FSDP: "consolidate_sharded_model_checkpoints consolidate_sharded_state_dicts",
    },
    "distributed.fsdp.wrap": {
        "xlaprof.runtime.pytorch.wrapping": "always_wrap_policy lambda_auto_wrap_policy recursive_wrap "
        "size_based_auto_wrap_policy transformer_auto_wrap_policy",
    },
    "distributed.fsdp.xla_fully_sharded_data_parallel": {_FSDP: "XlaFullyShardedDataParallel"},
    "distributed.parallel_loader": {
        "xlaprof.runtime.transfer.loader": "MpDeviceLoader ParallelLoader PerDeviceLoader",
    },
    "distributed.spmd": {
        _SPMD: "EinsumLinear MarkShardingFunction Mesh PartitionSpec ShardingSpec ShardingType XLAPatchedLinear "
        "XLAShard XLAShardedTensor _mark_manual_sharding=mark_manual_sharding annotate_custom_sharding "
        "apply_backward_optimization_barrier apply_xla_patch_to_nn_linear auto_policy clear_sharding "
        "convert_to_xla_mesh convert_to_xla_partition_spec disable_manual_sharding enable_manual_sharding get_1d_mesh "
        "get_global_mesh mark_sharding mark_sharding_with_gradients set_global_mesh unwrap_sharded_tensor "
        "wrap_as_sharded_tensor wrap_if_sharded xla_distribute_module xla_distribute_tensor "
        "xla_patched_nn_linear_forward",
        "xlaprof.torch_xla.distributed.spmd.hybrid_mesh": "HybridMesh",
    },
    "distributed.spmd.api": _SPMD_NOW,
    "distributed.spmd.debugging": {_SPMD: "visualize_sharding visualize_tensor_sharding"},
    "distributed.spmd.xla_sharded_tensor": _SPMD_NOW,
    "distributed.spmd.xla_sharding": _SPMD_NOW,
    "distributed.xla_backend": _PROCESS_GROUP,
    "distributed.xla_multiprocessing": {_DISTRIBUTED: "MpModelWrapper MpSerialExecutor spawn"},
    "distributed.zero_redundancy_optimizer": {"xlaprof.runtime.distributed.zero": "ZeroRedundancyOptimizer"},
    "experimental": _EAGER,
    "experimental.distributed_checkpoint": {
        _CHECKPOINT: "CheckpointManager SPMDLoadPlanner SPMDSavePlanner prime_optimizer",
    },
    "experimental.distributed_checkpoint._helpers": {
        "xlaprof.runtime.spmd.checkpoint.states": "_CpuShards=CpuShards _is_sharded_tensor=is_sharded "
        "_sharded_cpu_state_dict=sharded_cpu_state_dict flatten_state_dict=flattened",
        "torch.distributed.checkpoint.default_planner": "set_element",
    },
    "experimental.distributed_checkpoint.manager": {
        _CHECKPOINT: "CheckpointManager",
        "xlaprof.runtime.spmd.checkpoint.manager": "_CheckpointMetadata=CheckpointMetadata",
    },
    "experimental.distributed_checkpoint.planners": {_CHECKPOINT: "SPMDLoadPlanner SPMDSavePlanner"},
    "experimental.distributed_checkpoint.util": {_CHECKPOINT: "prime_optimizer"},
    "experimental.dynamo_mark_sharding": {_SPMD: "="},  # defines torch.ops.xla.dynamo_mark_sharding
    "experimental.eager": _EAGER,
    "experimental.pjrt": {
        "xlaprof.torch_xla._internal.pjrt": "run_multiprocess spawn spawn_threads",
        "xlaprof.torch_xla.runtime": "*",
    },
    "experimental.pjrt_backend": _PROCESS_GROUP,
    "experimental.spmd": _SPMD_NOW,
    "experimental.spmd_fully_sharded_data_parallel": {_SPMD: "SpmdFullyShardedDataParallel"},
    "experimental.xla_sharded_tensor": _SPMD_NOW,
    "experimental.xla_sharding": _SPMD_NOW,
    "runtime": {
        _DISTRIBUTED: "get_master_ip global_device_count global_ordinal host_index local_device_count local_ordinal "
        "local_process_count process_count process_index world_size",
        _SPMD: "addressable_runtime_device_count disable_spmd global_runtime_device_count is_spmd use_spmd",
        "xlaprof.torch_xla.torch_xla": "addressable_device_count=device_count",
    },
    "utils.buffer_donor_context": {"xlaprof.runtime.dynamo.donation": "alias_with_buffer_donor_config"},
    "utils.closures": {"xlaprof.runtime.modes.closures": "AsyncClosureHandler=Thread"},
}
