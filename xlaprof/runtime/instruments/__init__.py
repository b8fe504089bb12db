"""Instruments: live tensors and what retains them, idle gaps, graph dumps, debug output; hooks attach them."""
