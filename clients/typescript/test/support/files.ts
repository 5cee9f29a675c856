// The directories of this package, seen from the compiled tests.

import { pathToFileURL } from "node:url";

export const packageRoot = new URL("../../../", import.meta.url);

/** The root of the repository. The stage of `cargo xtask test` runs a copy of this package and names it. */
export const repository: URL = process.env["WINDLASS_SOURCE"]
  ? pathToFileURL(`${process.env["WINDLASS_SOURCE"]}/`)
  : new URL("../../", packageRoot);
