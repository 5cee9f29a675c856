//! A server for tests that sends exactly the bytes it is told, in the pieces it is told, and misbehaves on command: it
//! cuts, resets, hangs, drips and floods.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::http::{Connections, Loopback};
use crate::locked;

/// One thing that the server does with a connection.
#[derive(Debug, Clone)]
pub enum Act {
    /// Sends these bytes at once.
    Say(Vec<u8>),
    /// Sends these bytes so many times.
    Repeat(Vec<u8>, usize),
    /// Sends nothing for this long.
    Pause(Duration),
    /// Waits for a [`ByteServer::go_on`].
    Wait,
    /// Ends the connection in order.
    Close,
    /// Tears the connection down.
    Reset,
    /// Sends nothing more until the client hangs up.
    Hang,
}

/// A request that the server got.
#[derive(Debug, Clone)]
pub struct Received {
    /// When its last byte was there.
    pub at: Instant,
    /// Head and body.
    pub text: String,
}

/// The server; it ends when this is dropped.
#[derive(Debug)]
pub struct ByteServer {
    /// Where it listens, without a path.
    pub url: String,
    loopback: Loopback,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    received: Mutex<Vec<Received>>,
    /// Connections that began to wait, and those that may go on: the first that waited goes first.
    waited: AtomicUsize,
    released: AtomicUsize,
}

impl ByteServer {
    /// `answer` gets the number of the request, from 0, and its text.
    ///
    /// # Errors
    /// If no port is free.
    pub fn start(
        answer: impl Fn(usize, &str) -> Vec<Act> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
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

    /// The same acts for every request.
    ///
    /// # Errors
    /// If no port is free.
    pub fn saying(acts: Vec<Act>) -> io::Result<Self> {
        Self::start(move |_, _| acts.clone())
    }

    /// The requests so far.
    pub fn received(&self) -> MutexGuard<'_, Vec<Received>> {
        locked(&self.shared.received)
    }

    /// The texts of the requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        let received = self.received();
        received.iter().map(|one| one.text.clone()).collect()
    }

    /// How many connections were made so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.loopback.accepted()
    }

    /// Lets the next connection go on that waits, or that will.
    pub fn go_on(&self) {
        self.shared.released.fetch_add(1, Ordering::SeqCst);
    }
}

impl Shared {
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
                // The bytes before it are on their way when the connection is torn down.
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
