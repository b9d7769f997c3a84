"""The real libraries: where they are, in which order they are loaded, and which one has a function."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
from collections.abc import Iterator, MutableMapping, Sequence
from typing import NamedTuple, Optional

from pyacl.backends import shared_object
from pyacl.errors import LibraryNotFoundError

__all__ = ["Attempt", "LibraryBackend", "Places", "loaded_path", "version_above"]

#: where the installer puts CANN: for root, and for a user
BASES = ("/usr/local/Ascend", "~/Ascend")
#: the kinds of installation below a base, in the order in which they are tried
ROOTS = ("cann", "ascend-toolkit/latest", "nnrt/latest")
#: libraries that have most of the API, newest first: CANN 8.5 and later, CANN up to 8.1
MAIN = ("acl_rt", "ascendcl")
# A function of the library on the left is also looked for in those on the right: it moved between releases.
_SISTERS = {"acl_rt": MAIN, "ascend_dump": ("ascend_dump", *MAIN)}
# Libraries that CANN's own code opens by bare name, which without LD_LIBRARY_PATH only works when they are loaded
# already (read in the source of CANN 9.0.0; not tried on a device).
_OPENED_BY_NAME = ("runtime_v100", "runtime_v200", "runtime_v201", "tsdclient", "profimpl")
_DRIVER = "libascend_hal.so"
_ACL_PKG_NAME_CANN = 0


class Attempt(NamedTuple):
    """One place that was looked at: why it was looked at, the file or folder, and what was there."""

    origin: str
    path: str
    verdict: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.path} ({self.origin}): {self.verdict}{f': {self.detail}' if self.detail else ''}"


class Places(NamedTuple):
    """What the search depends on, apart from the files; the defaults are this machine's."""

    environ: MutableMapping[str, str]
    bases: Sequence[str] = BASES
    install_info: str = "/etc/ascend_install.info"
    machine: str = platform.machine()
    loader: bool = True

    @property
    def cpu(self) -> str:
        """The host's architecture as CANN names its folders."""
        return "aarch64" if self.machine in ("aarch64", "arm64") else "x86_64"

    def candidates(self) -> Iterator[tuple[str, str]]:
        """Why to look, and the root to look in."""
        for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
            if self.environ.get(variable):
                yield variable, self.environ[variable]
        for base in self.bases:
            for kind in ROOTS:
                yield "usual place", os.path.join(os.path.expanduser(base), kind)

    def library_path(self) -> list[str]:
        """The folders of LD_LIBRARY_PATH."""
        return [folder for folder in self.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]

    def driver_folders(self, root: str) -> list[str]:
        """Where the driver's libraries may be, seen from an installation: the driver is a package of its own."""
        above = []
        for start in (root, os.path.realpath(root)):
            for _ in range(3):
                start = os.path.dirname(start)
                above.append(start)
        usual = [os.path.expanduser(base) for base in self.bases]
        bases = [_value_in(self.install_info, "driver_install_path_param"), *above, *usual]
        folders = [
            os.path.join(base, "driver", "lib64", part) for base in bases if base for part in ("driver", "common", "")
        ]
        return [os.path.normpath(folder) for folder in dict.fromkeys(folders) if os.path.isdir(folder)]


class _Installation(NamedTuple):
    """A folder with a main library that this host can load."""

    origin: str
    main: str

    @property
    def root(self) -> str:
        return _root_of(self.main)

    @property
    def folder(self) -> str:
        return os.path.dirname(self.main)


class LibraryBackend:
    """CANN as it is installed, or as the process has loaded it already.

    Parameters
    ----------
    folder : str, optional
        An installation, or the folder that holds the libraries. Only this place is searched then. Otherwise, in this
        order: what the process has loaded already, ASCEND_HOME_PATH, ASCEND_TOOLKIT_HOME, the usual places below
        /usr/local/Ascend and ~/Ascend, and the loader's own path.
    places : Places, optional
        For tests: another environment and other usual places.

    Raises
    ------
    LibraryNotFoundError
        When no place has a library that can be loaded. Its ``attempts`` is the list of `Attempt`.

    Notes
    -----
    LD_LIBRARY_PATH and set_env.sh are not needed. The variables of set_env.sh that the runtime reads while it works
    (ASCEND_HOME_PATH, ASCEND_OPP_PATH, ASCEND_AICPU_PATH) are set for this process where they are not set.
    """

    def __init__(self, folder: str | None = None, *, places: Places | None = None) -> None:
        self._places = places or Places(os.environ)
        self._lock = threading.RLock()
        self._libraries: dict[str, Optional[ctypes.CDLL]] = {}
        self._version: str | None = None
        self._version_known = False
        #: every place that was looked at, in order; the last one is the one in use
        self.attempts: list[Attempt] = []
        #: the folder that holds the libraries
        self.folder = ""
        #: the installation the folder belongs to
        self.root = ""
        self._open_main(folder)

    def __repr__(self) -> str:
        return f"<pyacl.backends.library.LibraryBackend {self.folder}>"

    @property
    def name(self) -> str:
        """Such as ``library:/usr/local/Ascend/cann/lib64``."""
        return f"library:{self.folder}"

    @property
    def version(self) -> str | None:
        """The CANN version, such as ``9.0.0``, from the library, from its version file, or guessed from its symbols."""
        with self._lock:
            if not self._version_known:
                self._version = self._find_version()
                self._version_known = True
            return self._version

    def address(self, name: str) -> int | None:
        """The address of a C function of the API table, None where this CANN lacks it."""
        from pyacl.raw.functions import FUNCTIONS

        row = FUNCTIONS.get(name)
        if row is None:
            return None
        for stem in _SISTERS.get(row.library, (row.library,)):
            library = self._library(stem, name)
            if library is not None:
                found = _symbol(library, name)
                if found is not None:
                    return found
        return None

    def path(self, stem: str) -> str | None:
        """Path of an opened library by its name without ``lib`` and ``.so``; None when it is not open."""
        library = self._libraries.get(stem)
        return _loaded_path(library) if library is not None else None

    @property
    def used(self) -> Attempt:
        """The attempt that found the main library."""
        return next(attempt for attempt in self.attempts if attempt.verdict == "loaded")

    def close(self) -> None:
        """Forget the libraries. They stay loaded: CANN has threads of its own and cannot be unloaded."""
        with self._lock:
            self._libraries = {stem: None for stem in self._libraries}

    # -- opening ---------------------------------------------------------------------------------------------------

    def _open_main(self, folder: str | None) -> None:
        if not sys.platform.startswith("linux"):
            raise LibraryNotFoundError(
                f"CANN's libraries exist for Linux, and this is {sys.platform}",
                next_step="Set PYACL_BACKEND=sim to work with the simulated NPU",
            )
        if self._take_loaded(folder):
            return
        for found in self._installations(folder):
            if self._open_installation(found):
                return
        if folder is None and self._places.loader and self._open_by_name():
            return
        raise self._not_found(folder)

    def _take_loaded(self, folder: str | None) -> bool:
        """Another package (torch_npu, say) may have loaded CANN: a second copy beside it would have its own state."""
        for stem in MAIN:
            library = _open(f"lib{stem}.so", os.RTLD_NOLOAD)
            if library is None:
                continue
            path = _loaded_path(library)
            if shared_object.is_stub_path(path):
                continue
            if folder is not None and not any(
                os.path.exists(p) and os.path.samefile(os.path.dirname(path), p) for p in self._library_folders(folder)
            ):
                raise LibraryNotFoundError(
                    f"this process has already loaded CANN from {path}, so {folder} cannot be used beside it",
                    next_step="Use that CANN (no folder), or start a new process",
                )
            self._use(_Installation("already loaded", path), stem, library)
            return True
        return False

    def _installations(self, folder: str | None) -> Iterator[_Installation]:
        places = [("explicit folder", folder)] if folder is not None else list(self._places.candidates())
        for origin, root in places:
            root = os.path.abspath(os.path.expanduser(root))
            problem = _inspect_folder(root)
            if problem:
                self.attempts.append(Attempt(origin, root, *problem))
                continue
            yield from self._in_root(origin, root)
        if folder is None:
            for entry in self._places.library_path():
                yield from self._in_folder("LD_LIBRARY_PATH", entry)

    def _in_root(self, origin: str, root: str) -> Iterator[_Installation]:
        before = len(self.attempts)
        found = False
        for folder in self._library_folders(root):
            for installation in self._in_folder(origin, folder):
                found = True
                yield installation
        if not found and len(self.attempts) == before:
            wanted = " or ".join(f"lib{stem}.so" for stem in MAIN)
            self.attempts.append(Attempt(origin, root, "not here", f"no {wanted} in it or in its lib64 folders"))

    def _library_folders(self, root: str) -> list[str]:
        machine = f"{self._places.cpu}-linux"
        parts = ("", "lib64", "runtime/lib64", f"{machine}/lib64", "acllib/lib64", "fwkacllib/lib64")
        # stubs are refused, and where there is nothing else the user hears of them
        folders = [os.path.normpath(os.path.join(root, part)) for part in (*parts, "devlib", f"{machine}/devlib")]
        by_place: dict[str, str] = {}
        for folder in folders:
            by_place.setdefault(os.path.realpath(folder), folder)  # one folder may have several names
        return list(by_place.values())

    def _in_folder(self, origin: str, folder: str) -> Iterator[_Installation]:
        for stem in MAIN:
            path = os.path.join(folder, f"lib{stem}.so")
            problem = self._inspect(path)
            if problem is None:
                yield _Installation(origin, path)
            elif problem[0] != "not here":
                self.attempts.append(Attempt(origin, path, *problem))

    def _inspect(self, path: str) -> tuple[str, str] | None:
        """What is wrong with the file of a main library, None when it can be tried."""
        problem = _inspect_file(path)
        if problem:
            return problem
        try:
            described = shared_object.read(path)
            if shared_object.MACHINES.get(self._places.machine) != shared_object.MACHINES.get(described.machine):
                return "wrong architecture", f"it is for {described.machine}, this host is {self._places.machine}"
            if shared_object.is_stub(path):
                return "stub", f"{os.path.realpath(path)} only exists to be linked against; it cannot run anything"
        except shared_object.NotLoadable as error:
            return "not a library", str(error)
        except OSError as error:
            return "not readable", error.strerror or str(error)
        return None

    def _open_installation(self, found: _Installation) -> bool:
        stem = os.path.basename(found.main)[3:-3]
        search = [found.folder, *self._places.driver_folders(found.root)]
        try:
            self._preload(found.main, search, set())
            library = ctypes.CDLL(found.main)
        except OSError as error:
            detail = f"{error} ({self._circumstances(found)})"
            self.attempts.append(Attempt(found.origin, found.main, "cannot be loaded", detail))
            return False
        self._use(found, stem, library)
        if not any(os.path.realpath(p) == os.path.realpath(found.folder) for p in self._places.library_path()):
            for plugin in _OPENED_BY_NAME:
                self._library(plugin)
        return True

    def _circumstances(self, found: _Installation) -> str:
        """What somebody who reads a load error will ask next: is this one installation, and do the versions fit?"""
        package = self._version_in_files(found.root, "release") or self._version_in_files(found.root, "package")
        drivers = self._places.driver_folders(found.root)
        return ", ".join(
            (
                f"real path {os.path.realpath(found.main)}",
                f"CANN {package or 'of unknown version'}",
                f"driver {version_above(drivers[0]) or 'of unknown version'}" if drivers else "no driver folder",
            )
        )

    def _preload(self, path: str, search: list[str], seen: set[str]) -> None:
        """Load what `path` needs by absolute path, deepest first; what is nowhere in `search` is left to the loader."""
        folders = list(dict.fromkeys([*search, os.path.dirname(os.path.realpath(path))]))
        for needed in shared_object.read(path).needed:
            if needed in seen:
                continue
            seen.add(needed)
            if _open(needed, os.RTLD_NOLOAD) is not None:
                continue
            file = next((p for p in (os.path.join(f, needed) for f in folders) if os.path.exists(p)), None)
            if file is not None and not shared_object.is_stub_path(file):
                try:
                    self._preload(file, folders, seen)
                    ctypes.CDLL(file)
                except shared_object.NotLoadable as error:
                    raise OSError(f"{file}: {error}") from None
            elif needed == _DRIVER:
                # without a driver set_env.sh puts the folder of stubs on the path, and the loader would take that one
                self._refuse_driver_stub(folders)

    def _refuse_driver_stub(self, folders: list[str]) -> None:
        for folder in (*folders, *self._places.library_path()):
            file = os.path.join(folder, _DRIVER)
            if os.path.exists(file):
                if shared_object.is_stub_path(file):
                    raise OSError(f"{_DRIVER}: only the link-time stub {file} is here, the driver's own is not")
                return

    def _open_by_name(self) -> bool:
        origin = "the loader's own path"
        for stem in MAIN:
            name = f"lib{stem}.so"
            try:
                library = ctypes.CDLL(name)
            except OSError as error:
                absent = str(error).startswith(f"{name}: cannot open shared object file")
                verdict = ("not here", "") if absent else ("cannot be loaded", str(error))
                self.attempts.append(Attempt(origin, name, *verdict))
                continue
            path = _loaded_path(library)
            if shared_object.is_stub(path):
                self.attempts.append(Attempt(origin, path, "stub", "it only exists to be linked against"))
                continue
            self._use(_Installation(origin, path), stem, library)
            return True
        return False

    def _use(self, found: _Installation, stem: str, library: ctypes.CDLL) -> None:
        self.attempts.append(Attempt(found.origin, found.main, "loaded"))
        self.root, self.folder = found.root, found.folder
        self._libraries[stem] = library
        if self.root == self.folder:
            return  # libraries in a folder of their own, not an installation
        for variable, part in (("ASCEND_HOME_PATH", ""), ("ASCEND_OPP_PATH", "opp"), ("ASCEND_AICPU_PATH", "")):
            value = os.path.normpath(os.path.join(found.root, part))
            if variable not in self._places.environ and os.path.isdir(value):
                self._places.environ[variable] = value

    def _library(self, stem: str, function: str = "") -> ctypes.CDLL | None:
        """One of the libraries, opened when it is first needed; a sister only if its file speaks of the function."""
        with self._lock:
            if stem in self._libraries:
                return self._libraries[stem]
            path = os.path.join(self.folder, f"lib{stem}.so")
            if not os.path.exists(path):
                library = _open(f"lib{stem}.so", os.RTLD_NOLOAD)
            elif stem in MAIN and function and not shared_object.mentions(path, function.encode() + b"\0"):
                return None
            else:
                try:
                    self._preload(path, [self.folder, *self._places.driver_folders(self.root)], set())
                    library = ctypes.CDLL(path)
                except (OSError, shared_object.NotLoadable) as error:
                    self.attempts.append(Attempt("sister library", path, "cannot be loaded", str(error)))
                    library = None
            self._libraries[stem] = library
            return library

    # -- the error -------------------------------------------------------------------------------------------------

    def _not_found(self, folder: str | None) -> LibraryNotFoundError:
        lines = [f"  {attempt}" for attempt in self.attempts] or ["  nowhere: no usual place exists"]
        error = LibraryNotFoundError(
            "CANN's runtime library (libacl_rt.so, or libascendcl.so up to CANN 8.1) was not found"
            f"{f' in {folder}' if folder is not None else ''}. Looked at:\n" + "\n".join(lines) + "\n",
            next_step=_next_step(self.attempts, folder),
        )
        error.attempts = self.attempts
        return error

    # -- the version -----------------------------------------------------------------------------------------------

    def _find_version(self) -> str | None:
        """aclrtGetVersion cannot tell CANN 9.0.0 from 9.2.0, so the packages are asked.

        Before CANN 9 the C functions give the number of the runtime's own package (7.6.0.1.220 in CANN 8.0.0); the
        name of the release is in the installation's files.
        """
        from pyacl.raw.table import VERSIONS, version_index

        least = self._version_by_symbols()
        release, package = (self._version_in_files(self.root, kind) for kind in ("release", "package"))
        for found in (release, self._asked_version(), package):
            try:
                if found and (least is None or version_index(found) >= VERSIONS.index(least)):
                    return found
            except ValueError:
                continue  # no version of CANN
        return least

    def _version_in_files(self, root: str, kind: str) -> str | None:
        machine = f"{self._places.cpu}-linux"
        keys = {
            "share/info/runtime/version.info": {"release": "version_dir", "package": "version"},
            "runtime/version.info": {"release": "version_dir", "package": "version"},
            f"{machine}/ascend_toolkit_install.info": {"release": "version"},
            "ascend_toolkit_install.info": {"release": "version"},
            "ascend_nnrt_install.info": {"release": "version"},
        }
        for file, by_kind in keys.items():
            found = _value_in(os.path.join(root, file), by_kind.get(kind, ""))
            if found:
                return found
        return None

    def _asked_version(self) -> str | None:
        # the library reads the files of the installation that this variable names, which may be another one
        home = self._places.environ.get("ASCEND_HOME_PATH")
        if home is not None and os.path.realpath(home) != os.path.realpath(self.root):
            return None
        answer = ctypes.create_string_buffer(512)  # the text of one, the struct with the text first of the other
        address = self.address("aclsysGetVersionStr")
        if address is not None:
            ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(address)
            if ask(b"runtime", ctypes.addressof(answer)) == 0:
                return answer.value.decode("utf-8", "replace")
        address = self.address("aclsysGetCANNVersion")
        if address is not None:
            ask_package = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(address)
            if ask_package(_ACL_PKG_NAME_CANN, ctypes.addressof(answer)) == 0:
                return answer.value.decode("utf-8", "replace")
        return None

    def _version_by_symbols(self) -> str | None:
        """The newest version of the table that brought a function the main libraries have."""
        from pyacl.raw.functions import FUNCTIONS
        from pyacl.raw.table import VERSIONS

        libraries = [library for stem in MAIN for library in (self._libraries.get(stem),) if library is not None]
        rows = [row for row in FUNCTIONS.values() if row.library == "acl_rt"]
        for version in reversed(VERSIONS):
            names = (row.name for row in rows if row.since == version)
            if any(_symbol(library, name) is not None for name in names for library in libraries):
                return version
        return None


def _open(name: str, mode: int) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name, mode=mode)
    except OSError:
        return None


def _symbol(library: ctypes.CDLL, name: str) -> int | None:
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(library, name))
    except ValueError:
        return None


class _LinkMap(ctypes.Structure):
    _fields_ = [("l_addr", ctypes.c_void_p), ("l_name", ctypes.c_char_p)]


def _loaded_path(library: ctypes.CDLL) -> str:
    """The file a library was loaded from, as the loader knows it."""
    link_map = ctypes.POINTER(_LinkMap)()
    dlinfo = ctypes.CDLL(None).dlinfo
    dlinfo.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    rtld_di_linkmap = 2
    if dlinfo(library._handle, rtld_di_linkmap, ctypes.addressof(link_map)) != 0 or not link_map:
        return ""
    return os.fsdecode(link_map.contents.l_name or b"")


def loaded_path(name: str) -> str:
    """The file of a library that this process has loaded, by its name; empty when it has not."""
    library = _open(name, os.RTLD_NOLOAD)
    return _loaded_path(library) if library is not None else ""


def _root_of(library: str) -> str:
    """The installation a library file belongs to."""
    folder = os.path.dirname(library)
    if os.path.basename(folder) not in ("lib64", "lib"):
        return folder
    root = os.path.dirname(folder)
    name = os.path.basename(root)
    return os.path.dirname(root) if name in ("runtime", "acllib", "fwkacllib") or name.endswith("-linux") else root


def _value_in(file: str, key: str) -> str:
    """The value of ``key=value`` in a file of such lines; empty when there is none."""
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, equals, value = line.partition("=")
                if equals and name.strip().lower() == key:
                    return value.strip().strip('"')
    except OSError:
        pass
    return ""


def version_above(path: str) -> str:
    """The version in the nearest version.info above a file or folder of the driver; empty when there is none."""
    for _ in range(5):
        version = _value_in(os.path.join(path, "version.info"), "version")
        if version:
            return version
        path = os.path.dirname(path)
    return ""


def _inspect_folder(path: str) -> tuple[str, str] | None:
    try:
        os.lstat(path)
        if os.path.islink(path) and not os.path.exists(path):
            return "broken link", f"to {os.readlink(path)}"
        if not os.path.isdir(path):
            return "not a folder", "name the installation, or the folder that holds the libraries"
        os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return "not here", "no such folder"
    except OSError as error:
        return "not readable", error.strerror or str(error)
    return None


def _inspect_file(path: str) -> tuple[str, str] | None:
    try:
        os.lstat(path)
        if os.path.islink(path) and not os.path.exists(path):
            return "broken link", f"to {os.readlink(path)}"
        if not os.path.isfile(path):
            return "not a library", "not a file"
    except (FileNotFoundError, NotADirectoryError):
        return "not here", ""
    except OSError as error:
        return "not readable", error.strerror or str(error)
    return None


def _next_step(attempts: list[Attempt], folder: str | None) -> str:
    """The one thing to do: about the first place where something was, and was wrong."""
    for attempt in attempts:
        if attempt.verdict == "cannot be loaded":
            return _loader_advice(attempt.detail)
        if attempt.verdict in _ADVICE:
            return _ADVICE[attempt.verdict]
    if folder is not None:
        return (
            "Install CANN there, or name the folder that has lib64/libacl_rt.so, such as /usr/local/Ascend/cann; "
            "without an NPU set PYACL_BACKEND=sim"
        )
    return (
        "Install CANN (the toolkit or the nnrt package), or say where it is with ASCEND_HOME_PATH=/path/to/cann; "
        "without an NPU set PYACL_BACKEND=sim"
    )


_ADVICE = {
    "stub": "Point ASCEND_HOME_PATH at an installation with lib64 (a devlib folder is for the linker only), and take "
    "devlib and stub folders out of LD_LIBRARY_PATH",
    "wrong architecture": "Install the CANN package for this host's architecture",
    "not readable": "Get read permission for it: see ls -l, and which group CANN was installed for",
    "broken link": "Repair the link, or point ASCEND_HOME_PATH at the folder it should lead to",
    "not a library": "Install CANN again: the file is damaged",
    "not a folder": "Name a folder",
}


def _loader_advice(detail: str) -> str:
    if _DRIVER in detail:
        return (
            "The driver's libraries are not visible here: install the driver on the host; in a container, mount "
            "/usr/local/Ascend/driver and pass the devices (--device /dev/davinci0 and so on)"
        )
    if "static TLS" in detail:
        return "Start Python with LD_PRELOAD set to the full path of the libgomp that the message names"
    if "undefined symbol" in detail:
        return "Driver, firmware and CANN do not fit together: install versions that belong together"
    if "GLIBC" in detail or "CXXABI" in detail:
        return "This system is older than CANN was built for: use a newer one, or CANN's container image"
    return "Install the package that has the missing library, or repair this installation"
