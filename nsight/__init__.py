"""Drives NVIDIA Nsight Systems: finds nsys, proves that it works, traces a program, all or nothing."""
