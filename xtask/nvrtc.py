"""Compiles one file of CUDA C++ to PTX with NVRTC, for `cargo xtask kernels`.

    python nvrtc.py LIBRARY SOURCE HEADER PTX OPTION...

LIBRARY is NVRTC's own. The source may include HEADER by its name and nothing else: what a kernel is made of is then in
the hash of the two. A warning is an error.
"""

import ctypes
import pathlib
import sys


def main():
    library, source, header, ptx, *options = sys.argv[1:]
    source, header = pathlib.Path(source), pathlib.Path(header)
    nvrtc = ctypes.CDLL(library)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p

    def must(result, what):
        if result != 0:
            sys.exit(f"{what}: {nvrtc.nvrtcGetErrorString(result).decode()}")

    def text(of, size_of):
        """Returns a string of NVRTC, from the functions for its content and for its size with the final zero."""
        size = ctypes.c_size_t()
        must(size_of(program, ctypes.byref(size)), "NVRTC gives no size")
        buffer = ctypes.create_string_buffer(size.value)
        must(of(program, buffer), "NVRTC gives no text")
        return buffer.value

    program = ctypes.c_void_p()
    contents = (ctypes.c_char_p * 1)(header.read_bytes())
    names = (ctypes.c_char_p * 1)(header.name.encode())
    made = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.read_bytes(), source.name.encode(), 1, contents, names
    )
    must(made, "NVRTC takes no program")
    words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    compiled = nvrtc.nvrtcCompileProgram(program, len(options), words)
    log = text(nvrtc.nvrtcGetProgramLog, nvrtc.nvrtcGetProgramLogSize).decode(errors="replace").strip()
    if log:
        sys.exit(log)
    must(compiled, f"NVRTC does not compile {source.name}")
    pathlib.Path(ptx).write_bytes(text(nvrtc.nvrtcGetPTX, nvrtc.nvrtcGetPTXSize))


main()
