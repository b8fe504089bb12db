"""Mistakes, told as PyTorch tells them: shapes, dtypes, values, formats that have no form on the device."""
