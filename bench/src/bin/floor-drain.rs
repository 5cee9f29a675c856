//! The floor of a long answer: the same bytes through the same HTTP stack, counted and dropped.

use anyhow::ensure;
use windlass_bench::exchange::{Exchange, block_on, closed, open_request};
use windlass_bench::flags::Flags;
use windlass_providers::protocol::Protocol;

fn main() -> anyhow::Result<()> {
    let flags = Flags::from_env(&["--url", "--wire", "--least"])?;
    let protocol = match flags.need::<String>("--wire")?.as_str() {
        "chat" => Protocol::OpenAiChat,
        _ => Protocol::AnthropicMessages,
    };
    let client = Exchange::new(&flags.need::<String>("--url")?, protocol)?;
    let read = block_on(client.post(closed(&open_request(0))))?;
    let least: u64 = flags.get("--least")?.unwrap_or(0);
    ensure!(read >= least, "the answer had {read} bytes, not {least}");
    Ok(())
}
