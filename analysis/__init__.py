"""Reads Nsight Systems traces and latency records, counts, compares and explains. Loads no torch."""
