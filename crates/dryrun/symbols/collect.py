#!/usr/bin/env python3
"""Collects the names that the stand-in must export, with what each gives back, into one file for each library.

    collect.py SITE_PACKAGES...

reads the headers that NVIDIA's packages ship (every public function, with its parameters) and what the libraries of torch ask for, in each
environment given, and adds them to the files next to this script. Lines are only added, so that several PyTorch versions can be collected
one after the other. A line is `NAME [ANSWER...]`:

    fail    success would lie (handles of another process, other graphics systems): answers the library's "not supported"
    text    returns a string
    h@I     a new handle is written to parameter I (counting registers, from 0)
    4@I 8@I as many zero bytes are written to parameter I
"""
import pathlib
import re
import subprocess
import sys

LIBRARIES = [  # file, how its functions begin
    ("cudart", r"(__cuda|cuda)[A-Z]"),
    ("cublas", r"cublas[A-Z]"),
    ("cudnn", r"cudnn[A-Z]"),
    ("cusparselt", r"cusparseLt[A-Z]"),
    ("cusparse", r"cusparse[A-Z]"),
    ("cusolver", r"cusolver[A-Z]"),
    ("cufft", r"cufft[A-Z]"),
    ("cufile", r"cuFile[A-Z]"),
    ("curand", r"curand[A-Z]"),
    ("cupti", r"cupti[A-Z]"),
    ("nccl", r"p?nccl[A-Z]"),
    ("cuda", r"cu[A-Z]"),
]
FAIL = re.compile(r"Import|Export|Multicast|Ipc|External|EGL|GLRegister|GraphicsGL|VDPAU|D3D|NvSci|Green|Checkpoint|Dlsym")
SIZES = {"size_t": 8, "cuuint64_t": 8, "long long": 8, "unsigned long long": 8, "int64_t": 8, "uint64_t": 8, "CUdeviceptr": 8,
         "int": 4, "unsigned int": 4, "unsigned": 4, "uint32_t": 4, "int32_t": 4, "cufftHandle": 4}  # fmt: skip
HANDLE = re.compile(r"^((cublas|cudnn|cusparse|cusolver|curand|nccl)\w*(Handle|Descriptor|Desc|Descr|Info|Params|Layout|Preference|Generator|Comm|Window|Plan)_t|"
                    r"cuda(Stream|Event|Graph|GraphNode|GraphExec|MemPool|Array|MipmappedArray|TextureObject|SurfaceObject|Kernel|Library|Function|UserObject)_t|"
                    r"CU(context|module|function|stream|event|array|mipmappedArray|texref|surfref|graph|graphNode|graphExec|linkState|memoryPool|library|"
                    r"kernel|userObject|texObject|surfObject|memGenericAllocationHandle|externalMemory|externalSemaphore|logsCallbackHandle))$")  # fmt: skip
ENUMS = re.compile(r"(Status|Mode|Type|Kind|Flags|Algo|Direction|Order|IndexBase|Severity|Operation|Result|Level|Property|Support|Format)_t$")
FLOATS = {"float", "double", "cufftReal"}
BY_VALUE = re.compile(r"^(dim3|cuComplex|cuDoubleComplex|cudaExtent|cudaPos|cudaPitchedPtr|ncclUniqueId|cudaIpc\w+|CUipc\w+|cudaMemLocation|"
                      r"CUmemLocation|CUuuid|CUfileDescr_t)$")  # fmt: skip


def library_of(name):
    return next((file for file, start in LIBRARIES if re.match(start, name)), None)


def answers(name, returns, parameters):
    """What a function called with these parameters gives back."""
    if re.search(r"char\s*\*", returns):
        return ["text"]
    found, register = [], 0
    for parameter in filter(None, (p.strip() for p in parameters.split(","))):
        words = re.sub(r"\b(struct|enum|__dv\(.*?\)|CUDARTAPI|const restrict)\b|\[[^\]]*\]", lambda m: "*" if m[0].startswith("[") else " ", parameter)
        stars, constant = words.count("*"), "const" in words
        kind = re.sub(r"\*|\bconst\b", " ", words).split()
        kind = " ".join(kind[:-1]) if len(kind) > 1 and kind[-1] not in ("int", "long") else " ".join(kind)
        if stars == 0:
            if BY_VALUE.match(kind):
                break  # takes more than a register: what follows cannot be counted
            if kind in FLOATS:
                continue
        elif stars == 1 and not constant and register < 16:
            if kind in SIZES:
                found.append(f"{SIZES[kind]}@{register}")
            elif HANDLE.match(kind) and re.search(r"GetStream(_v2|_ptsz)?$", name):
                found.append(f"8@{register}")  # the default stream: a new one would be of nothing
            elif HANDLE.match(kind):
                found.append(f"h@{register}")
            elif kind.startswith(("cudaStreamCaptureStatus", "CUstreamCaptureStatus")) or ENUMS.search(kind):
                found.append(f"4@{register}")
        elif stars == 2 and kind == "void" and not constant:
            found.append(f"8@{register}")
        register += 1
    return found


def declared(site):
    """Every function of the headers: name -> answers."""
    functions = {}
    for header in sorted(site.glob("nvidia/**/include/**/*.h")):
        if not re.match(r"cuda(_runtime_api|_profiler_api|_api)?\.h|cublas\w*\.h|cudnn\w*\.h|cusparse\w*\.h|cusolver\w*\.h|cufft\w*\.h|"
                        r"cufile\.h|curand\.h|cupti\w*\.h|nccl\.h", header.name):  # fmt: skip
            continue
        text = header.read_text(errors="replace")
        renamed = dict(re.findall(r"#\s*define\s+(cu\w+)\s+(?:__CUDA_API_\w+\()?(cu\w+)", text))
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
        text = re.sub(r"^\s*#(?:[^\n\\]|\\\n|\\.)*", " ", text, flags=re.M)
        for returns, name, parameters in re.findall(r"([\w\s*]+?)\b((?:p?nccl|cu|__cu)[A-Za-z]\w*)\s*\(([^;{}]*?)\)\s*;", text):
            if library_of(name) and "typedef" not in returns and "return" not in returns and "static" not in returns:
                for exported in {name, renamed.get(name, name)}:
                    functions.setdefault(exported, answers(name, returns, re.sub(r"\s+", " ", parameters)))
    return functions


def wanted(site):
    """What the libraries of torch leave undefined."""
    names = set()
    for library in sorted(site.glob("torch/lib/*.so*")):
        listing = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True).stdout
        names |= {line.split()[-1].split("@")[0] for line in listing.splitlines() if line.strip()}
    return {name for name in names if library_of(name)}


def main():
    here = pathlib.Path(__file__).parent
    lines = {}
    for file, _ in LIBRARIES:
        path = here / f"{file}.txt"
        known = path.read_text().splitlines() if path.exists() else []
        lines[file] = {line.split()[0]: line for line in known if line and not line.startswith("#")}
    for site in map(pathlib.Path, sys.argv[1:]):
        functions = declared(site)
        for name in sorted(set(functions) | wanted(site)):
            if name.startswith("nvrtc"):
                continue
            words = ["fail"] if FAIL.search(name) else functions.get(name, [])
            lines[library_of(name)].setdefault(name, " ".join([name, *words]))
    for file, known in lines.items():
        (here / f"{file}.txt").write_text("".join(f"{known[name]}\n" for name in sorted(known)))
        print(f"{file}: {len(known)}")


if __name__ == "__main__":
    main()
