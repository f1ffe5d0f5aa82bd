"""Where NVIDIA's libraries are, for the programs of this folder that start Lazuli."""

import importlib.util
import os
import pathlib


def library_folders():
    """The folders of NVIDIA's libraries in PyTorch's wheels, so that both engines use the same libraries."""
    torch = importlib.util.find_spec("torch")
    folder = pathlib.Path(torch.origin).parents[1] / "nvidia" if torch else pathlib.Path("/nonexistent")
    names = ("libcublasLt.so.*", "libcudnn.so.*", "libnvrtc.so.*")
    return sorted({str(file.parent) for name in names for file in folder.glob(f"*/lib/{name}")})


def library_path():
    """The value of LAZULI_CUDA_PATH: that of the environment, else the folders above and, as an empty last entry, the
    linker's directories."""
    return os.environ.get("LAZULI_CUDA_PATH", ":".join([*library_folders(), ""]))
