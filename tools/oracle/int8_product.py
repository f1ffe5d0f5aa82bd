#!/usr/bin/env python3
"""Golden values of int8_matmul, tests/data/int8_product.safetensors: rows of activations, codes and scales of weights, and the
products of 8-bit integers that NumPy computes of them, with and without ConvRot. The rotation is a product with the whole matrix,
whose entries are multiples of 1/16; activations are whole numbers, so that it is exact in f32.

    python tools/oracle/int8_product.py            (needs numpy, safetensors)
"""

import os

import numpy as np
from safetensors.numpy import save_file

H4 = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]], np.float64)
H = np.kron(np.kron(H4, H4), np.kron(H4, H4)) / 16
rng = np.random.default_rng(8)
M, K, N = 5, 512, 7
x = rng.integers(-40, 41, (M, K)).astype(np.float32)
x[1] = 0
x[2, 17] = 4000  # one large number: the others become few codes
x[3] = np.float32(0.5) * x[3]
codes = rng.integers(-128, 128, (N, K)).astype(np.int8)
scales = (rng.random((N, 1)) * 0.01).astype(np.float32)


def product(rows):
    largest = np.abs(rows).max(axis=1, keepdims=True).astype(np.float32)
    scale = largest / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    q = np.rint(rows * inverse).astype(np.int64)
    sums = (q @ codes.astype(np.int64).T).astype(np.float32)
    return sums * scale * scales[:, 0]


turned = (x.reshape(M, K // 256, 256).astype(np.float64) @ H).reshape(M, K).astype(np.float32)
tensors = {"x": x, "codes": codes, "scales": scales, "plain": product(x), "rotated": product(turned)}
here = os.path.dirname(os.path.abspath(__file__))
save_file(tensors, os.path.join(here, "../../tests/data/int8_product.safetensors"))
