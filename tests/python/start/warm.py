"""Has a test's program go on from a process that has imported PyTorch, which takes three of the four seconds of most of them.

`scripts/python-env` puts a line into the environment's site-packages that runs this file where ``WARM_START`` names it, before anything of
stalloc. The first program of its kind leaves a *copy*: a process with the same libraries and the same
environment, as far as they are read while PyTorch is imported, which imports it and waits. This program and those after it ask the copy to
fork, hand over their descriptors, arguments and environment, and wait in the place of what was forked: signals pass on, so does how it ends.

What was forked has PyTorch in memory but not in ``sys.modules``: stalloc starts in it as in any program, and hears of ``import torch`` when the
program says so. The program's frames lie on those of this file, which is compiled under the name of ``runpy``, as with ``python -m``.
"""

import marshal
import os
import re
import sys

#: The variables that say where copies listen and where this file is.
FOLDER, STARTED = "WARM_FOLDER", "WARM_START"
#: What is read while PyTorch is imported, by it and the libraries that it links. The stand-in's own is read when it is first called.
READ = ("LD_", "TRITON_", "PYTORCH_", "TORCH", "OMP_", "MKL_", "KMP_", "CUDA", "NCCL_", "PYTHON", "MALLOC_", "GLIBC_", "LC_", "LANG")
#: Whose modules a program has not imported yet.
PARTS = ("torch", "torchgen", "functorch")
#: Seconds without work after which a copy ends.
IDLE = 120
#: A folder of the stand-in: its name says what is in it.
STAND_IN = re.compile("[^:]*/(dryrun-[0-9a-f]{16})(?![^/:])")


def kind(start):
    """What a program and its copy must have in common; none if it has to run from its start."""
    import resource

    arguments = sys.orig_argv[1:]
    if not arguments or not os.path.isfile(arguments[0]) or any(map(os.isatty, range(3))):
        return None
    if start not in os.environ.get("PYTHONPATH", "").split(os.pathsep) or "torch" in sys.modules:
        return None
    inherited = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    if any(is_open(number) and os.get_inheritable(number) for number in inherited) or not all(map(is_open, range(3))):
        return None
    limits = [resource.getrlimit(getattr(resource, name)) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")]
    mask = os.umask(0)
    os.umask(mask)
    with open("/proc/self/status") as status:
        signals = [line for line in status if line.startswith(("SigIgn", "SigBlk", "Cpus_allowed:", "NoNewPrivs", "CapEff", "Uid", "Gid"))]
    spaces = [os.stat(f"/proc/self/ns/{name}").st_ino for name in ("mnt", "net", "pid", "user", "ipc", "uts")]
    environment = sorted((name, STAND_IN.sub(r"\1", value)) for name, value in os.environ.items() if name.startswith(READ) and name != "PYTHONPATH")
    groups = open("/proc/self/cgroup").read(), os.getpriority(os.PRIO_PROCESS, 0), os.getsid(0), os.readlink("/proc/self/root")
    return [sys.executable, environment, limits, mask, signals, spaces, *groups]


def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def follow():
    """Goes on from a copy and ends as it does, or returns."""
    import zlib

    start = os.path.dirname(os.environ[STARTED])
    wanted = kind(start)
    if wanted is None:
        return
    name = "%08x" % zlib.crc32(marshal.dumps(wanted))
    place = os.path.join(os.environ[FOLDER], name)
    import socket

    asking = socket.socket(socket.AF_UNIX)
    try:
        try:
            asking.connect(place)
        except OSError:
            leave_copy(place, start)
            asking.connect(place)
        wants = marshal.dumps([dict(os.environ), os.getcwd(), list(sys.argv), list(sys.orig_argv)])
        socket.send_fds(asking, [len(wants).to_bytes(4, "big")], [0, 1, 2])
        asking.sendall(wants)
        if not asking.recv(1):
            return  # it ended before it took this
    except OSError:
        return
    wait(asking)


def leave_copy(place, start):
    """Starts a copy, which listens at ``place`` from now on."""
    import socket
    import subprocess

    listener = socket.socket(socket.AF_UNIX)
    temporary = f"{place}.{os.getpid()}"
    listener.bind(temporary)
    listener.listen(64)
    os.set_inheritable(listener.fileno(), True)
    code = os.path.join(os.path.dirname(place), "warm_copy.pyc")
    environment = {key: own_stand_in(value) if key.startswith(READ) else value for key, value in os.environ.items() if not key.startswith("STALLOC_")}
    environment["PYTHONPATH"] = start
    del environment[STARTED]
    subprocess.Popen(
        [sys.executable, code, place, str(listener.fileno()), os.environ[FOLDER]],
        env=environment, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL, preexec_fn=os.setpgrp,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
    )
    os.rename(temporary, place)  # two at once leave two: the second is asked from then on, the first ends when it is idle


def own_stand_in(value):
    """The same paths in a folder that stays: a test's may go before its copy does."""
    import contextlib
    import shutil

    def kept(found):
        place = os.path.join(os.environ[FOLDER], found[1])
        if not os.path.isdir(place):
            made = f"{place}.{os.getpid()}"
            shutil.copytree(found[0], made, symlinks=True)
            with contextlib.suppress(OSError):  # another program made it
                os.rename(made, place)
        return place

    return STAND_IN.sub(kept, value)


def wait(asking):
    """Stands for what was forked: passes signals on, and ends as it ends."""
    import select
    import signal

    def pass_on(number, _):
        asking.send(bytes([number]))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, pass_on)
    while not select.select([asking], [], [], 0.1)[0]:
        pass  # a signal right before a wait without end would not end it
    status = asking.recv(4)
    if len(status) < 4:
        os.write(2, b"warm: the copy is gone\n")
        os._exit(111)
    status = int.from_bytes(status, "big")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


class Stashed:
    """Finds the modules that a copy imported, while a program has not."""

    def __init__(self, modules):
        self.modules = modules
        self.specs = {name: (getattr(module, "__spec__", None), getattr(module, "__loader__", None)) for name, module in modules.items()}

    def find_spec(self, name, path=None, target=None):
        if name not in self.modules:
            return None
        import importlib.machinery

        return importlib.machinery.ModuleSpec(name, self, is_package=hasattr(self.modules[name], "__path__"))

    def create_module(self, spec):
        return self.modules[spec.name]

    def exec_module(self, module):
        import importlib

        name = module.__spec__.name
        module.__spec__, module.__loader__ = self.specs[name]
        if name != "torch":
            return
        others = [finder for finder in sys.meta_path[: sys.meta_path.index(self)] if hasattr(finder, "find_spec")]
        for one, made in self.modules.items():
            # Whoever wants to hear of a module hears of it now, in the order of old.
            if one not in sys.modules and any(finder.find_spec(one, None) is not None for finder in others):
                importlib.import_module(one)
            else:
                sys.modules.setdefault(one, made)
        sys.meta_path.remove(self)


def serve(place, listener, folder):
    """Imports PyTorch and forks for everyone who asks; returns in what was forked, with what it was asked."""
    import contextlib
    import ctypes
    import select
    import signal
    import socket
    import time

    known = set(sys.modules)
    import torch  # noqa: F401

    # What a program registers runs first, then this: PyTorch would take a fifth of a second to forget its operators one by one.
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)
    libc.__cxa_atexit(libc.fflush, None, None)

    stashed = Stashed({name: sys.modules.pop(name) for name in list(sys.modules) if name not in known and name.partition(".")[0] in PARTS})
    import gc

    gc.collect()
    gc.freeze()
    wake, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running, last = {}, time.monotonic()
    while True:
        ready = select.select([listener, wake, *running.values()], [], [], 5)[0]
        if not ready and (not os.path.isdir(folder) or not running and time.monotonic() - last > IDLE):
            os._exit(0)
        if wake in ready:
            os.read(wake, 4096)
        for child, asking in list(running.items()):
            if asking in ready:
                told = asking.recv(16)
                for number in told or [signal.SIGKILL]:
                    try:
                        os.kill(child, number)
                    except ProcessLookupError:
                        pass
                if not told:  # nobody waits for it any more
                    running.pop(child).close()
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not child:
                break
            if child in running:
                with running.pop(child) as asking:
                    try:
                        asking.sendall(status.to_bytes(4, "big"))
                    except OSError:
                        pass
            last = time.monotonic()
        if listener in ready:
            asking, _ = listener.accept()
            length, descriptors, *_ = socket.recv_fds(asking, 4, 3)
            if len(length) < 4 or len(descriptors) < 3:
                asking.close()
                continue
            wants = b""
            while len(wants) < int.from_bytes(length, "big") and (more := asking.recv(1 << 20)):
                wants += more
            child = os.fork()
            if child:
                running[child] = asking
                with contextlib.suppress(OSError):  # who asked has been killed, which is seen next
                    asking.send(b".", socket.MSG_NOSIGNAL)
                for number in descriptors:
                    os.close(number)
                continue
            signal.set_wakeup_fd(-1)
            for number in (wake, waker):
                os.close(number)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (listener, asking, *running.values()):
                one.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            return stashed, marshal.loads(wants)


def become(stashed, environment, folder, arguments, original):
    """Starts Python's own start anew: what it has from the environment, and what the environment has run at its start."""
    own = os.environ["PYTHONPATH"]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv[:], sys.orig_argv[:] = arguments, original
    there = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = there + [path for path in sys.path[1:] if path != own]
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "_Uncollected"]
    sys.meta_path.insert(0, stashed)
    sys.path_importer_cache.clear()
    sys.modules.pop("sitecustomize", None)
    sys.warm = True
    import sitecustomize  # noqa: F401


def main():
    place, number, folder = sys.argv[1:]
    import builtins
    import socket
    import types
    from importlib.machinery import SourceFileLoader

    os.set_inheritable(int(number), False)
    stashed, wants = serve(place, socket.socket(fileno=int(number)), folder)
    become(stashed, *wants)
    script = sys.orig_argv[1]
    sys.warm, module = sys.modules["__main__"], types.ModuleType("__main__")
    sys.modules["__main__"], names = module, module.__dict__
    names["__builtins__"] = builtins
    names.update(__file__=script, __cached__=None, __loader__=SourceFileLoader("__main__", script))
    sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    try:
        with open(script, "rb") as file:
            code = compile(file.read(), script, "exec", dont_inherit=True)
        exec(code, names)
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__.tb_next
        error.__traceback__ = trace
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        sys.excepthook(type(error), error, trace)
        sys.excepthook = lambda *_: None
        raise


if STARTED in os.environ:
    if not hasattr(sys, "asked_to_be_warm"):  # site-packages is read twice where `lib64` is a link
        sys.asked_to_be_warm = True
        follow()
elif FOLDER in os.environ:
    main()
