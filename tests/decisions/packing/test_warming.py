import subprocess
import sys

PROGRAM = """
import importlib, pkgutil
import cruise.decisions.packing.kernels as kernels
from cruise.decisions.packing.warming import warm_up
warm_up()
cold = []
for module in pkgutil.iter_modules(kernels.__path__):
    names = vars(importlib.import_module(f"{kernels.__name__}.{module.name}"))
    cold += [name for name, value in names.items() if hasattr(value, "signatures") and not value.signatures]
print(sorted(set(cold)))
"""


def test_no_kernel_is_left_cold():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
