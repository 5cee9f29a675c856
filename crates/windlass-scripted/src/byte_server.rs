//! A server for tests that sends exactly the given bytes in the given pieces, and misbehaves on request: it cuts or
//! resets connections, hangs, sends slowly, or floods the client.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::http::{Connections, Loopback};
use crate::locked;

/// One action of the server on a connection.
#[derive(Debug, Clone)]
pub enum Act {
    /// Sends these bytes at once.
    Say(Vec<u8>),
    /// Sends these bytes this many times.
    Repeat(Vec<u8>, usize),
    /// Sends nothing for this long.
    Pause(Duration),
    /// Waits for a [`ByteServer::go_on`].
    Wait,
    /// Closes the connection in order.
    Close,
    /// Resets the connection with a TCP RST.
    Reset,
    /// Sends nothing more until the client disconnects.
    Hang,
}

/// A request that the server received.
#[derive(Debug, Clone)]
pub struct Received {
    /// The time when its last byte was read.
    pub at: Instant,
    /// The head and the body as text.
    pub text: String,
}

/// The server. Dropping it stops it.
#[derive(Debug)]
pub struct ByteServer {
    /// The URL without a path.
    pub url: String,
    loopback: Loopback,
    shared: Arc<ByteServerState>,
}

#[derive(Debug, Default)]
struct ByteServerState {
    received: Mutex<Vec<Received>>,
    /// The number of connections that have started to wait, and of those that were released. They are released in the
    /// order in which they started to wait.
    waited: AtomicUsize,
    released: AtomicUsize,
}

impl ByteServer {
    /// Starts a server. `answer` gets the number of the request, counted from 0, and its text.
    ///
    /// # Errors
    /// Fails if no port is free.
    pub fn start(
        answer: impl Fn(usize, &str) -> Vec<Act> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(ByteServerState::default());
        let connections = Arc::clone(&shared);
        let loopback = Loopback::start(0, move |out, request, state| {
            let text = request.text();
            let number = {
                let mut received = locked(&connections.received);
                received.push(Received {
                    at: Instant::now(),
                    text: text.clone(),
                });
                received.len() - 1
            };
            answer(number, &text)
                .into_iter()
                .try_for_each(|act| connections.perform(act, out, state))
        })?;
        Ok(Self {
            url: loopback.url.clone(),
            loopback,
            shared,
        })
    }

    /// Starts a server that performs the same actions for every request.
    ///
    /// # Errors
    /// Fails if no port is free.
    pub fn saying(acts: Vec<Act>) -> io::Result<Self> {
        Self::start(move |_, _| acts.clone())
    }

    /// The requests received so far.
    pub fn received(&self) -> MutexGuard<'_, Vec<Received>> {
        locked(&self.shared.received)
    }

    /// The texts of the requests received so far.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        let received = self.received();
        received.iter().map(|one| one.text.clone()).collect()
    }

    /// The number of connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.loopback.accepted()
    }

    /// Releases the connection that has waited longest, or else the next one that waits.
    pub fn go_on(&self) {
        self.shared.released.fetch_add(1, Ordering::SeqCst);
    }
}

impl ByteServerState {
    fn perform(&self, act: Act, out: &mut TcpStream, state: &Connections) -> io::Result<()> {
        match act {
            Act::Say(bytes) => out.write_all(&bytes),
            Act::Repeat(bytes, times) => (0..times).try_for_each(|_| out.write_all(&bytes)),
            Act::Pause(time) => {
                std::thread::sleep(time);
                Ok(())
            }
            Act::Wait => self.wait(state),
            Act::Close => Err(io::ErrorKind::ConnectionAborted.into()),
            Act::Reset => {
                // Give the bytes before the reset time to arrive.
                std::thread::sleep(Duration::from_millis(30));
                rustix::net::sockopt::set_socket_linger(&*out, Some(Duration::ZERO))?;
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Act::Hang => state.hang(out),
        }
    }

    fn wait(&self, state: &Connections) -> io::Result<()> {
        let turn = self.waited.fetch_add(1, Ordering::SeqCst);
        while self.released.load(Ordering::SeqCst) <= turn {
            if state.stopped() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}
