"""From an ATen call to recorded operations.

:mod:`.routes` chooses the handler of each operator: one of its own (:mod:`.special`, :mod:`.composites`, :mod:`.masks`,
:mod:`.dynamic_size_ops`, :mod:`.untyped_storage`), one that records (:mod:`.handlers`, :mod:`.out_variants`), or
:mod:`.fallback`. With strict parity :mod:`.strict_handlers` take precedence.
"""
