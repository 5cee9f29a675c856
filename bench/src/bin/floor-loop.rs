//! The floor of a step: a growing request over one keep-alive connection, the answer read to its end, the same `bash
//! -c` that the product's tool starts, one line appended to a file, and one sync.

use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::ensure;
use windlass_bench::exchange::{Exchange, append, block_on, closed, open_request};
use windlass_bench::flags::Flags;
use windlass_providers::protocol::Protocol;

fn main() -> anyhow::Result<()> {
    let flags = Flags::from_env(&[
        "--url",
        "--file",
        "--steps",
        "--first-bytes",
        "--step-bytes",
    ])?;
    let mut file = File::create(flags.need::<String>("--file")?)?;
    let steps: u64 = flags.need("--steps")?;
    let step_bytes: usize = flags.need("--step-bytes")?;
    let client = Exchange::new(&flags.need::<String>("--url")?, Protocol::AnthropicMessages)?;
    let mut request = open_request(flags.need("--first-bytes")?);
    block_on(async {
        for step in 0..steps {
            let read = client.post(closed(&request)).await?;
            let ran = Command::new("bash")
                .args(["-c", &format!(": {step}")])
                .stdin(Stdio::null())
                .output()?;
            ensure!(ran.status.success(), "bash: {}", ran.status);
            writeln!(
                file,
                "{{\"step\":{step},\"read\":{read},\"wrote\":{}}}",
                ran.stdout.len()
            )?;
            file.sync_data()?;
            append(&mut request, step_bytes);
        }
        client.post(closed(&request)).await?;
        Ok(())
    })
}
