# SPDX-License-Identifier: Apache-2.0
"""Build the extension against an installed libpagedclient, which pkg-config finds.

tools/wheel makes the wheel that users install: it adds the programs in paged/bin, their manual pages and the licenses
of the libraries inside.  A build without them (a Debian package, pip install ./python) uses the library, pagedd and
pagedctl of the system.
"""

import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "paged" / "bin"


def pkg_config(*options: str) -> list[str]:
    """Return what pkg-config prints about libpagedclient, as words."""
    try:
        return subprocess.run(
            ["pkg-config", *options, "pagedclient"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.split()
    except FileNotFoundError:
        raise SystemExit("paged: no pkg-config; install it (Debian: apt-get install pkg-config)") from None
    except subprocess.CalledProcessError:
        raise SystemExit(
            "paged: pkg-config finds no pagedclient.pc; install libpagedclient (make install) and set PKG_CONFIG_PATH"
        ) from None


class build_ext_from_root(build_ext):
    """Sources include "python/ext/ext.h", and not every copy of them is in a directory of that name."""

    def build_extension(self, extension: Extension) -> None:
        root = Path(self.build_temp).resolve()
        root.mkdir(parents=True, exist_ok=True)
        (root / "python").unlink(missing_ok=True)
        (root / "python").symlink_to(HERE)
        extension.include_dirs.append(str(root))
        super().build_extension(extension)


def data_files() -> list[tuple[str, list[str]]]:
    """Return the files of share/ (manual pages, examples), by the directory below the environment's prefix."""
    share = HERE / "share"
    directories = [share, *(path for path in sorted(share.rglob("*")) if path.is_dir())] if share.is_dir() else []
    by_directory = ((d, [str(f.relative_to(HERE)) for f in sorted(d.iterdir()) if f.is_file()]) for d in directories)
    return [(str(directory.relative_to(HERE)), files) for directory, files in by_directory if files]


# Only the wheel has its own programs; elsewhere pagedd and pagedctl are in the system's PATH already.
scripts = [f"{name} = paged._bin:{name}" for name in ("pagedd", "pagedctl")] if PROGRAMS.is_dir() else []

setup(
    # The library's version, of configure.ac, is the package's.
    version=pkg_config("--modversion")[0],
    # Here and not in pyproject.toml, because setuptools 66 and 77 know different forms of it there.
    license="Apache-2.0",
    license_files=sorted(str(path.relative_to(HERE)) for path in [*HERE.glob("LICENSE"), *HERE.glob("licenses/*")]),
    entry_points={"console_scripts": scripts, "vllm.general_plugins": ["paged = paged.vllm:register"]},
    data_files=data_files(),
    ext_modules=[
        Extension(
            "paged._paged",
            sources=sorted(str(path.relative_to(HERE)) for path in HERE.glob("ext/*.c")),
            depends=sorted(str(path.relative_to(HERE)) for path in HERE.glob("ext/*.h")),
            define_macros=[("_GNU_SOURCE", None), ("Py_LIMITED_API", "0x030b0000")],
            extra_compile_args=["-std=gnu11", "-fvisibility=hidden", "-Wall", "-Wextra", *pkg_config("--cflags")],
            extra_link_args=[*pkg_config("--libs"), "-ldl", "-Wl,--as-needed"],
            py_limited_api=True,
        )
    ],
    cmdclass={"build_ext": build_ext_from_root},
    # Whatever version builds it, the wheel is for CPython 3.11 and later, as the extension uses the limited API only.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
