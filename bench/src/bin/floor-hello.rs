//! The floor of a server: the same HTTP stack with one route that answers "ok". Prints its port first and exits when its
//! stdin closes.

use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;

use axum::Router;
use axum::routing::get;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?.port())?;
    std::thread::spawn(|| {
        // Input is ignored; only its end matters.
        let _ = std::io::copy(&mut std::io::stdin().lock().by_ref(), &mut std::io::sink());
        std::process::exit(0);
    });
    let routes = Router::new().route("/healthz", get(async || "ok"));
    axum::serve(listener, routes).await?;
    Ok(())
}
