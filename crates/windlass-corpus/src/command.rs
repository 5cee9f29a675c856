//! The command line of the driver: parses the arguments, prints each row as soon as it is there, and the totals at the
//! end. [`run`](crate::run()) does the work.

use std::io::Write;
use std::sync::Mutex;

use crate::locked;
use crate::report::Row;
use crate::run::{Options, run};

/// The exit code if a case failed, or if no case ran.
const FAILED: u8 = 1;
/// The exit code if the arguments are wrong.
const USAGE_ERROR: u8 = 2;

const USAGE: &str = "\
usage: windlass-corpus --windlass PATH [--category NAME …] [--id ID …] [--jobs N] [--scratch DIR] [--json] CASES …

  CASES       files of cases (JSON lines), or folders with such files
  --windlass  the binary that is driven
  --category  only cases of this category; may be given more than once
  --id        only the case of this name; may be given more than once
  --jobs      run so many cases at once; 2
  --scratch   make the scratch directories in this folder
  --json      print one JSON object for each case, and one with the totals
";

/// Runs the command line and returns its exit code: 0 if every case that ran passed, 1 if not, 2 for wrong arguments.
pub fn command(args: &[String], out: &mut (dyn Write + Send), err: &mut dyn Write) -> u8 {
    // Errors of writing are ignored: if the reader is gone, the exit code still tells the result.
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        let _ = out.write_all(USAGE.as_bytes());
        return 0;
    }
    match parse(args).and_then(|(options, json)| drive(&options, json, out)) {
        Ok(true) => 0,
        Ok(false) => FAILED,
        Err(why) => {
            let _ = writeln!(err, "error: {why}");
            USAGE_ERROR
        }
    }
}

fn drive(options: &Options, json: bool, out: &mut (dyn Write + Send)) -> Result<bool, String> {
    let out = Mutex::new(out);
    let print = |line: String| {
        let _ = writeln!(locked(&out), "{line}");
    };
    let report = run(options, &|row: &Row| {
        print(if json {
            row.json().to_string()
        } else {
            row.line()
        });
    })?;
    print(if json {
        report.summary_json().to_string()
    } else {
        format!("\n{}", report.summary().trim_end())
    });
    Ok(report.passed())
}

fn parse(args: &[String]) -> Result<(Options, bool), String> {
    let mut options = Options {
        jobs: 2,
        ..Options::default()
    };
    let mut json = false;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--json" {
            json = true;
            continue;
        }
        if !arg.starts_with("--") {
            options.paths.push(arg.into());
            continue;
        }
        let value = args.next();
        let value = value.ok_or_else(|| format!("{arg} needs a value\n\n{USAGE}"))?;
        match arg.as_str() {
            "--windlass" => options.binary = value.into(),
            "--category" => options.categories.push(value.clone()),
            "--id" => options.ids.push(value.clone()),
            "--scratch" => options.scratch = Some(value.into()),
            "--jobs" => {
                options.jobs = value
                    .parse()
                    .map_err(|_| format!("--jobs needs a number, not `{value}`"))?;
            }
            _ => return Err(format!("unknown option {arg}\n\n{USAGE}")),
        }
    }
    if options.binary.as_os_str().is_empty() || options.paths.is_empty() {
        return Err(format!(
            "--windlass and a path of cases are needed\n\n{USAGE}"
        ));
    }
    Ok((options, json))
}
