//! The floor of a run without tools: one exchange with the model server, one line in a new file, one sync.

use std::fs::File;
use std::io::Write as _;

use windlass_bench::exchange::{Exchange, block_on, closed, open_request};
use windlass_bench::flags::Flags;
use windlass_providers::protocol::Protocol;

fn main() -> anyhow::Result<()> {
    let flags = Flags::from_env(&["--url", "--file", "--bytes"])?;
    let mut file = File::create(flags.need::<String>("--file")?)?;
    let body = closed(&open_request(flags.get("--bytes")?.unwrap_or(0)));
    let client = Exchange::new(&flags.need::<String>("--url")?, Protocol::AnthropicMessages)?;
    let read = block_on(client.post(body))?;
    writeln!(file, "{{\"read\":{read}}}")?;
    file.sync_data()?;
    Ok(())
}
