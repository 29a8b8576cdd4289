# Sourced by the scripts: hands paths to Hydra, whatever characters are in them.

# hydra_value TEXT: prints TEXT as a quoted value of an override. Hydra reads a backslash as an escape only where a
# quote comes after it (also the closing one) and otherwise as itself, so only those before a quote are doubled.
hydra_value() {
  local text=$1 quoted="" backslashes="" character i
  for ((i = 0; i < ${#text}; i++)); do
    character=${text:i:1}
    case $character in
      \\) backslashes+=\\ ;;
      \') quoted+=$backslashes$backslashes\\\' backslashes="" ;;
      *) quoted+=$backslashes$character backslashes="" ;;
    esac
  done
  printf "'%s'" "$quoted$backslashes$backslashes"
}

# plain_path PATH: sets REPLY to PATH, or to a symbolic link to it where PATH holds what some library would not take as
# it is. OmegaConf puts a value in for ${NAME}, also in quotes, and again for what was escaped once it is resolved. Ray
# does for $NAME in the variables of its workers. `datasets` and vLLM read *, ? and [ as patterns, fsspec reads :: as a
# chain of URLs.
plain_path() {
  local absolute=$1 unsafe='[$*?[]|::' folder
  REPLY=$1
  case $1 in
    *://*) return ;;
    /*) ;;
    *) absolute=$PWD/$1 ;;
  esac
  # A relative path is made absolute by the run; what is not there may be the name of a model on the hub.
  [[ $1 =~ $unsafe || (-e $1 && $absolute =~ $unsafe) ]] || return 0
  if [ "${RAY_ADDRESS:-local}" != local ]; then
    echo "error: $1: with several machines, a path must not hold any of \$ * ? [ ::" >&2
    return 1
  fi
  folder=${TMPDIR:-/tmp}
  [[ $folder = /* && ! $folder =~ $unsafe ]] || folder=/tmp
  folder=$folder/paravt-paths-$UID
  mkdir -p -m 700 "$folder" || return 1
  if [ ! -O "$folder" ] || [ -L "$folder" ]; then
    echo "error: $folder belongs to somebody else; set TMPDIR to a folder of your own" >&2
    return 1
  fi
  REPLY=$folder/$(printf '%s' "$absolute" | sha256sum | cut -c 1-16)
  # verl knows the format of a file by the end of its name.
  [[ $absolute =~ \.[a-z]+$ ]] && REPLY+=${BASH_REMATCH[0]}
  [ "$(readlink "$REPLY")" = "$absolute" ] || ln -sfn "$absolute" "$REPLY" || return 1
  echo "[paravt] $1 is handed on as $REPLY, a link to it" >&2
}

# hydra_path PATH: prints a file or folder as the value of an override.
hydra_path() {
  plain_path "$1" && hydra_value "$REPLY"
}

# hydra_files FILES: the same for one file; a list in Hydra's own syntax, [a,b], is handed on as it is.
hydra_files() {
  if [[ $1 = \[*\] && ! -e $1 ]]; then printf '%s' "$1"; else hydra_path "$1"; fi
}
