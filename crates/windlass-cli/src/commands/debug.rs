//! `debug decode`: runs the decoders of model responses on recorded exchanges, so that users can compare the results with
//! their own recordings. It connects to nothing.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use windlass::cassette::{
    DecodeOptions, DecodedAnswer, DecodedError, RecordedExchange, decode as read_row,
};

use crate::args::DecodeArgs;
use crate::command_error::CommandError;
use crate::{exit, out};

/// The longest row in bytes. A longer line is reported and skipped.
const MAX_LINE: u64 = 256 << 20;

pub(super) fn decode(args: &DecodeArgs) -> Result<ExitCode, CommandError> {
    let options = DecodeOptions {
        split: args.split,
        bom: args.bom,
        crlf: args.crlf,
    };
    each_line(&args.file, |number, line| {
        let row = line.and_then(|line| {
            std::str::from_utf8(line)
                .map_err(|err| err.to_string())
                .and_then(parse)
        });
        let decoded = match row {
            Ok(row) => read_row(&row, &options),
            Err(why) => unusable(number, why),
        };
        out::json(&decoded);
    })?;
    Ok(exit::print(""))
}

/// Calls `handle` with every non-empty line of a file and its number, and with an error for a line that is too long.
/// Stops if standard output is closed.
pub(super) fn each_line(
    path: &Path,
    mut handle: impl FnMut(u64, Result<&[u8], String>),
) -> Result<(), CommandError> {
    let mut lines = open(path)?;
    let mut number = 0_u64;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read_error =
            |err| CommandError::usage(format!("{} cannot be read: {err}", path.display()));
        if lines
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .map_err(read_error)?
            == 0
        {
            return Ok(());
        }
        number += 1;
        if line.len() as u64 >= MAX_LINE && line.last() != Some(&b'\n') {
            skip_line(&mut lines).map_err(read_error)?;
            handle(
                number,
                Err(format!("the line is longer than {MAX_LINE} bytes")),
            );
        } else if !line.trim_ascii().is_empty() {
            handle(number, Ok(&line));
        }
        if out::stdout_error().is_some() {
            return Ok(());
        }
    }
}

fn parse(line: &str) -> Result<RecordedExchange, String> {
    RecordedExchange::parse(line).map_err(|err| err.to_string())
}

/// The output for an invalid line, so that the output has one line for every line of input.
fn unusable(number: u64, why: String) -> DecodedAnswer {
    let message = format!("line {number} is not a recorded exchange: {why}");
    let error = DecodedError {
        kind: "invalid_request",
        message,
        status: None,
    };
    DecodedAnswer {
        id: format!("line {number}"),
        error: Some(error),
        ..DecodedAnswer::default()
    }
}

fn skip_line(lines: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = lines.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let (used, found) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), false),
        };
        lines.consume(used);
        if found {
            return Ok(());
        }
    }
}

/// Opens a file, and decompresses it if its first two bytes are those of gzip, whatever its name.
fn open(path: &Path) -> Result<Box<dyn BufRead>, CommandError> {
    let bytes: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        let file = windlass::machine::open_file(path).map_err(|err| {
            CommandError::usage(format!(
                "{} cannot be read: {}",
                path.display(),
                err.message
            ))
        })?;
        Box::new(file)
    };
    let mut bytes = BufReader::with_capacity(1 << 16, bytes);
    let is_gzip = bytes.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    if is_gzip {
        return Ok(Box::new(BufReader::with_capacity(
            1 << 16,
            flate2::bufread::MultiGzDecoder::new(bytes),
        )));
    }
    Ok(Box::new(bytes))
}
