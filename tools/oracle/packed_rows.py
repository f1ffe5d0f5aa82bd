#!/usr/bin/env python3
"""Golden bytes of packing, tests/data/packed_rows.safetensors: rows of weights, and the blocks that gguf makes of them.

    python tools/oracle/packed_rows.py            (needs numpy, safetensors, gguf)
"""

import os

import gguf
import numpy as np
from safetensors.numpy import save_file

rng = np.random.default_rng(5)
rows = (rng.standard_normal((6, 512)) * 0.04).astype(np.float32)
rows[1, :64] = 0  # whole blocks of zeros
rows[2, 7], rows[2, 300] = 3.5, -2.25  # outliers of both signs
rows[3] = np.abs(rows[3]) + 1  # all positive
rows[4] *= np.float32(1e-6)  # scales that f16 holds as subnormal numbers
rows[5] = rng.integers(-3, 4, 512) / np.float32(8)  # ties
tensors = {"rows": rows}
for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
    tensors[name.lower()] = gguf.quants.quantize(rows, gguf.GGMLQuantizationType[name])
here = os.path.dirname(os.path.abspath(__file__))
save_file(tensors, os.path.join(here, "../../tests/data/packed_rows.safetensors"))
