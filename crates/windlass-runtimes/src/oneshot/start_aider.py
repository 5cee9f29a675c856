"""Starts Aider without what a project's files, or an earlier try, would say to it.

Aider reads settings, variables and commands from files of the tree, and writes a cache into it; no option stops that.
What is changed here is looked for first: an Aider that has it elsewhere is not started.
"""

import sys
from pathlib import Path

# The folder of this file is not where Aider is.
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
    sys.exit(f"this Aider cannot be held: it has no {', '.join(missing)}; use the version that was tested")

# No settings file but the command line; no `.env`; no model settings of the tree.
parser = program.get_parser
program.get_parser = lambda _files, root: parser([], root)
program.load_dotenv_files = lambda *_args, **_named: []
program.generate_search_path_list = lambda _default, _root, named: [named] if named else []
# No list of prices from the network.
ModelInfoManager._update_cache = lambda _self: None
# No repository where there is none, and no cache in the tree: an absolute path counts over the one before it.
program.make_new_repo = lambda *_args: None
RepoMap.TAGS_CACHE_DIR = str(Path.home() / ".windlass" / "aider-tags")

sys.exit(program.main())
