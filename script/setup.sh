# Functions that the scripts share. Source this file; do not run it.
# It works with bash 3.2 (macOS) and Git's bash (Windows).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# No script reads from the terminal, and a background job that tried to would be stopped.
exec </dev/null

# Python compiles a module where it is first imported. Pip would compile all modules of all packages, for half a minute,
# and processes that could not store what they compile would do it again and again.
unset PYTHONDONTWRITEBYTECODE

VENV=.venv
SWIFTSHADER=/usr/lib/chromium/vk_swiftshader_icd.json # in Debian's chromium-common

say() { # TEXT…: prints a heading, in bold on a terminal
  if [ -t 1 ]; then printf '\033[1m==> %s\033[0m\n' "$*"; else printf '==> %s\n' "$*"; fi
}

system() { # prints the distribution, such as debian or ubuntu, or nothing where /etc/os-release is missing
  (. /etc/os-release && echo "$ID") 2>/dev/null || true
}

as_root() { # COMMAND…: runs a command as root, or fails if that needs a password
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

apt_install() { # PACKAGE…: installs the packages that are missing, on Debian and Ubuntu
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if ! as_root true 2>/dev/null; then
    echo "These packages are missing: ${missing[*]}. Install them with: sudo apt-get install ${missing[*]}" >&2
    return 1
  fi
  say "Installing ${missing[*]}"
  as_root apt-get update -qq || echo "apt-get update failed. Continuing with the package lists of this machine." >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "${missing[@]}" >/dev/null
}

find_python() { # prints the first Python that is 3.11 or later
  for python in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 python; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  echo "gpuscan needs Python 3.11 or later, and none was found. Install one, or set PYTHON to its path." >&2
  return 1
}

enter_environment() { # EXTRAS: makes .venv if it does not exist, installs the checkout with EXTRAS, and enters it
  local python
  if [ ! -x $VENV/bin/pip ] && [ ! -x $VENV/Scripts/pip.exe ]; then
    python=$(find_python)
    case $(system) in
      debian | ubuntu) "$python" -c 'import ensurepip' 2>/dev/null || apt_install python3-venv ;;
    esac
    say "Making $VENV with $("$python" --version)"
    "$python" -m venv $VENV
  fi
  if [ -d $VENV/Scripts ]; then PATH="$PWD/$VENV/Scripts:$PATH"; else PATH="$PWD/$VENV/bin:$PATH"; fi
  export PATH
  say "Installing gpuscan with [$1] into $VENV"
  python -m pip install --quiet --disable-pip-version-check --no-input --no-compile --editable ".[$1]"
}

use_swiftshader() { # lets the Vulkan loader find SwiftShader, unless the caller chose the drivers
  if [ -e $SWIFTSHADER ] && [ -z "${VK_ADD_DRIVER_FILES-}${VK_DRIVER_FILES-}${VK_ICD_FILENAMES-}" ]; then
    export VK_ADD_DRIVER_FILES=$SWIFTSHADER
  fi
}
