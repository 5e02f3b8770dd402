"""hold_gpu.py DEVICE LEFT: says when it is ready; at SIGUSR1 takes a GPU's memory by plain allocations until at most LEFT MiB are free, says
so, and keeps it until it is ended. With --look instead of LEFT it only sees whether there is such a GPU: its exit code is 1 where
there is none."""

import ctypes
import signal
import sys

PARTS = [1 << 30, 64 << 20, 2 << 20]  # bytes, from large to small


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # waited for below
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        sys.exit(str(error))

    def call(name, *arguments):
        if (code := getattr(cuda, name)(*arguments)) != 0:
            sys.exit(f"{name} ended with {code}")

    handle, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(handle), int(sys.argv[1]))
    if sys.argv[2] == "--look":
        return
    left = int(sys.argv[2]) << 20
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
    call("cuCtxSetCurrent", context)
    print("ready", flush=True)
    signal.sigwait({signal.SIGUSR1})
    for part in PARTS:
        while free_of(cuda) - part >= left and cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(part)) == 0:
            pass
    print("taken", flush=True)
    while True:
        signal.pause()


def free_of(cuda):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return free.value


if __name__ == "__main__":
    main()
