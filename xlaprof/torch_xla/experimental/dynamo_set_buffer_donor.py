"""``torch_xla.experimental.dynamo_set_buffer_donor``: defines ``torch.ops.xla.dynamo_set_buffer_donor_``."""

from xlaprof.runtime.dynamo import donation as _donation

_donation.define_operators()
