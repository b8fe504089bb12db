"""Which records of Dynamo's trace hold a text of a compiled program: a pure function of the metadata."""

from __future__ import annotations

from typing import Any

#: keys of records, or names of artifacts -> forms of texts
_FORMS = {
    "dynamo_output_graph": "fx",
    "aot_joint_graph": "aot joint",
    "aot_forward_graph": "aot forward",
    "aot_inference_graph": "aot forward",  # no gradient is asked for: there is no other part
    "aot_backward_graph": "aot backward",
    "inductor_post_grad_graph": "post grad",
    "inductor_output_code": "generated",
}


def form_of(metadata: dict[str, Any]) -> str:
    """The form of the text that a record holds; "" where it is no program."""
    artifact = metadata.get("artifact")
    if isinstance(artifact, dict):
        return _FORMS.get(str(artifact.get("name")), "")
    return next((form for key, form in _FORMS.items() if key in metadata), "")
