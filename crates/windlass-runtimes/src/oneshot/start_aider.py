"""Starts Aider without the influence of the project's files and of an earlier attempt.

Aider reads settings, variables and commands from files in the tree, and writes a cache into it; no option prevents that.
This program replaces the functions that do so. It refuses to start an Aider that does not have these functions.
"""

import sys
from pathlib import Path

# The directory of this file does not contain Aider.
del sys.path[0]

import aider.main as program
from aider.models import ModelInfoManager
from aider.repomap import RepoMap

KNOWN = [
    (program, "get_parser"),
    (program, "load_dotenv_files"),
    (program, "make_new_repo"),
    (program, "generate_search_path_list"),
    (ModelInfoManager, "_update_cache"),
    (RepoMap, "TAGS_CACHE_DIR"),
]
missing = [name for where, name in KNOWN if not hasattr(where, name)]
if missing:
    sys.exit(f"this version of Aider cannot be restricted: it has no {', '.join(missing)}; use the tested version")

# No settings but the command line, no `.env`, no model settings from the tree.
parser = program.get_parser
program.get_parser = lambda _files, root: parser([], root)
program.load_dotenv_files = lambda *_args, **_named: []
program.generate_search_path_list = lambda _default, _root, named: [named] if named else []
# No price list from the network.
ModelInfoManager._update_cache = lambda _self: None
# No new repository, and no cache in the tree: an absolute path replaces the directory before it.
program.make_new_repo = lambda *_args: None
RepoMap.TAGS_CACHE_DIR = str(Path.home() / ".windlass" / "aider-tags")

sys.exit(program.main())
