//! Messages as lines of JSON over a stream, in the form of JSON-RPC 2.0.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};

use crate::problem::Problem;

/// Maximum length of a line in bytes. A prompt with images is large.
pub(crate) const MAX_LINE: usize = 32 << 20;
/// The error code for problems of operations.
const PROBLEM: i64 = -32000;

/// A request, a notification, or a reply.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RpcMessage {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) jsonrpc: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<RpcId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) params: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<RpcError>,
}

/// The id of a request, which its reply repeats.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RpcId {
    Number(i64),
    Text(String),
}

/// The error of a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Box<Problem>>,
}

impl RpcMessage {
    pub(crate) fn request(id: i64, method: &str, params: Value) -> Self {
        Self {
            id: Some(RpcId::Number(id)),
            method: Some(method.to_owned()),
            params: Some(params),
            ..Self::empty()
        }
    }

    pub(crate) fn result(id: RpcId, result: Box<RawValue>) -> Self {
        Self {
            id: Some(id),
            result: Some(result),
            ..Self::empty()
        }
    }

    pub(crate) fn failed(id: Option<RpcId>, code: i64, message: impl Into<String>) -> Self {
        let error = RpcError {
            code,
            message: message.into(),
            data: None,
        };
        Self {
            id,
            error: Some(error),
            ..Self::empty()
        }
    }

    pub(crate) fn problem(id: RpcId, problem: Problem) -> Self {
        let error = RpcError {
            code: PROBLEM,
            message: problem.detail.clone(),
            data: Some(Box::new(problem)),
        };
        Self {
            id: Some(id),
            error: Some(error),
            ..Self::empty()
        }
    }

    fn empty() -> Self {
        Self {
            jsonrpc: "2.0".to_owned(),
            id: None,
            method: None,
            params: None,
            result: None,
            error: None,
        }
    }

    /// The message as a line.
    pub(crate) fn line(&self) -> Vec<u8> {
        // Encoding cannot fail: every key is a string.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// The result of reading a line.
pub(crate) enum ReadLine {
    Line(String),
    /// The line is longer than [`MAX_LINE`]; it was skipped.
    TooLong,
    End,
}

/// Reads one line. The future may be dropped between lines only.
pub(crate) async fn read_line(from: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<ReadLine> {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let chunk = from.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(match line.is_empty() {
                true => ReadLine::End,
                false => finished(line, too_long),
            });
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(chunk.len(), |end| end + 1);
        if line.len() + taken > MAX_LINE {
            too_long = true;
            line.clear();
        } else if !too_long {
            line.extend_from_slice(&chunk[..taken]);
        }
        from.consume(taken);
        if end.is_some() {
            return Ok(finished(line, too_long));
        }
    }
}

fn finished(line: Vec<u8>, too_long: bool) -> ReadLine {
    match String::from_utf8(line) {
        Ok(line) if !too_long => ReadLine::Line(line),
        // Text that is not UTF-8 is no JSON either; the parser says so.
        Err(_) if !too_long => ReadLine::Line("\u{fffd}".to_owned()),
        _ => ReadLine::TooLong,
    }
}

/// Writes one message.
pub(crate) async fn write_message(
    to: &mut (impl AsyncWrite + Unpin),
    message: &RpcMessage,
) -> std::io::Result<()> {
    to.write_all(&message.line()).await?;
    to.flush().await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_read_and_long_ones_are_skipped() {
        let long = vec![b'x'; MAX_LINE + 10];
        let mut input = b"one\n".to_vec();
        input.extend_from_slice(&long);
        input.extend_from_slice(b"\ntwo");
        let mut from = tokio::io::BufReader::new(&input[..]);
        assert!(
            matches!(read_line(&mut from).await.unwrap(), ReadLine::Line(line) if line == "one\n")
        );
        assert!(matches!(
            read_line(&mut from).await.unwrap(),
            ReadLine::TooLong
        ));
        assert!(
            matches!(read_line(&mut from).await.unwrap(), ReadLine::Line(line) if line == "two")
        );
        assert!(matches!(read_line(&mut from).await.unwrap(), ReadLine::End));
    }
}
