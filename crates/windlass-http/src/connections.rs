//! Accepts connections, a bounded number of them, with limits on the time for a handshake and for the head of a request.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 8_192;
/// Time for the head of a request, and for the handshake of TLS.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The pause after a failed accept, for example if there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Size of the buffer of a connection, in bytes. Heads of requests are smaller.
const BUFFER: usize = 32 << 10;

/// Accepts connections until `stop` is cancelled. Returns the connections that are still open.
pub(crate) async fn serve_connections(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: CancellationToken,
) -> GracefulShutdown {
    let open = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let slot = tokio::select! {
            slot = slots.clone().acquire_owned() => slot,
            () = stop.cancelled() => return open,
        };
        let Ok(slot) = slot else { return open };
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return open,
        };
        let stream = match stream {
            Ok((stream, _)) => stream,
            Err(err) => {
                tracing::warn!(%err, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (router, tls, watcher) = (router.clone(), tls.clone(), open.watcher());
        tokio::spawn(async move {
            let _slot = slot;
            match tls {
                None => serve(TokioIo::new(stream), router, watcher).await,
                Some(tls) => {
                    if let Some(stream) = handshake(tls, stream).await {
                        serve(TokioIo::new(stream), router, watcher).await;
                    }
                }
            }
        });
    }
}

async fn handshake(
    tls: TlsAcceptor,
    stream: TcpStream,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    let done = tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await;
    done.ok()?.ok()
}

async fn serve<I>(io: I, router: Router, watcher: hyper_util::server::graceful::Watcher)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER)
        .half_close(false);
    let connection = http.serve_connection(io, TowerToHyperService::new(router));
    // A connection that ends early is the client's affair.
    let _ = watcher.watch(connection).await;
}
