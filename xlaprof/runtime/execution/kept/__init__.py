"""Compiled programs kept between runs of a program."""
