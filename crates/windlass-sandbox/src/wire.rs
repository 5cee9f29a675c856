//! The protocol between the engine and the helper: length-prefixed frames on a Unix socket pair, with file descriptors
//! attached. Both ends run the same program, but lengths are checked all the same.
//!
//! Requests have a binary form, because command lines and environments need not be UTF-8. Reports are JSON.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use serde::{Deserialize, Serialize};

use crate::spec::Access;

/// The longest frame, which is enough for the largest environment and command line.
const MAX_FRAME: usize = 8 << 20;
/// The most file descriptors that one frame carries.
pub(crate) const MAX_HANDLES: usize = 4;

/// A bit of `SupervisorReport::Ended::limits` for each limit that a command can exceed.
pub(crate) const HIT_PROCESSES: u32 = 1;
pub(crate) const HIT_MEMORY: u32 = 2;

/// A request of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SupervisorRequest {
    /// Starts a command; the frame carries its stdin, stdout and stderr.
    Run(Box<CommandLaunch>),
    /// Sends a signal to all processes of a command.
    Signal { id: u32, signal: i32 },
    /// Makes an enclosure for an agent, with this number of listeners on its own loopback. With 0 listeners it shares
    /// the network of the commands.
    Enclose { id: u32, listeners: u32 },
    /// Removes an enclosure that is not needed any more.
    Leave { id: u32 },
}

/// A command to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandLaunch {
    pub(crate) id: u32,
    /// The program, by path or by name, and its arguments.
    pub(crate) argv: Vec<Vec<u8>>,
    /// Environment variables, each as `NAME=value`.
    pub(crate) env: Vec<Vec<u8>>,
    pub(crate) dir: Vec<u8>,
    /// A read-only command gets a view in which it cannot write to the workspace.
    pub(crate) access: Access,
    /// The name of the command's overlay over the workspace; empty if it has none.
    pub(crate) layer: Vec<u8>,
    /// The frame carries a socket as its fourth file descriptor, and the command's first process sends the mounted
    /// overlay to it.
    pub(crate) lends_tree: bool,
    /// The id of the enclosure that it is started in; 0 for a command of the engine.
    pub(crate) place: u32,
}

/// A message of the helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SupervisorReport {
    /// The view is built. The frame carries the listener if `port` is not 0, then the tree if `tree` is set.
    Ready { port: u32, tree: bool },
    /// The sandbox could not be built.
    Refused(Refusal),
    /// A command ended with this wait status, and all processes that it started are gone.
    Ended { id: u32, status: i32, limits: u32 },
    /// The answer to a request to stop a command: whether all its processes are stopped.
    Paused { id: u32, stopped: bool },
    /// A command could not be started, or an enclosure could not be made.
    Failed { id: u32, why: Refusal },
    /// An enclosure is made; the frame carries its listeners.
    Enclosed { id: u32, ports: Vec<u32> },
    /// A debug log line.
    Log { line: String },
}

/// The reason why the helper cannot do what the engine asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// The kernel or its settings refuse a part of it; another tier may work.
    Unavailable(String),
    /// The request is wrong, for example because a path does not exist; no tier would work.
    Invalid(String),
    /// A private overlay over a directory is not available here.
    NoLayers(String),
}

impl Refusal {
    /// Prefixes the reason with the thing it is about.
    pub(crate) fn about(self, what: &str) -> Self {
        match self {
            Self::Unavailable(why) => Self::Unavailable(format!("{what}: {why}")),
            Self::Invalid(why) => Self::Invalid(format!("{what}: {why}")),
            Self::NoLayers(why) => Self::NoLayers(format!("{what}: {why}")),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(err: io::Error) -> Self {
        Self::Unavailable(err.to_string())
    }
}

impl From<rustix::io::Errno> for Refusal {
    fn from(err: rustix::io::Errno) -> Self {
        Self::Unavailable(err.to_string())
    }
}

impl From<&str> for Refusal {
    fn from(why: &str) -> Self {
        Self::Unavailable(why.to_owned())
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Unavailable(why)
    }
}

impl SupervisorRequest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = FrameWriter::default();
        match self {
            Self::Run(launch) => {
                out.number(1);
                out.number(launch.id);
                out.list(&launch.argv);
                out.list(&launch.env);
                out.bytes(&launch.dir);
                out.number(u32::from(launch.access == Access::ReadOnly));
                out.bytes(&launch.layer);
                out.number(u32::from(launch.lends_tree));
                out.number(launch.place);
            }
            Self::Signal { id, signal } => {
                out.number(2);
                out.number(*id);
                out.number(signal.cast_unsigned());
            }
            Self::Enclose { id, listeners } => {
                out.number(5);
                out.number(*id);
                out.number(*listeners);
            }
            Self::Leave { id } => {
                out.number(6);
                out.number(*id);
            }
        }
        out.0
    }

    pub(crate) fn decode(frame: &[u8]) -> io::Result<Self> {
        let mut from = FrameReader(frame);
        match from.number()? {
            1 => Ok(Self::Run(Box::new(CommandLaunch {
                id: from.number()?,
                argv: from.list()?,
                env: from.list()?,
                dir: from.bytes()?.to_vec(),
                access: if from.number()? == 0 {
                    Access::Write
                } else {
                    Access::ReadOnly
                },
                layer: from.bytes()?.to_vec(),
                lends_tree: from.number()? != 0,
                place: from.number()?,
            }))),
            2 => Ok(Self::Signal {
                id: from.number()?,
                signal: from.number()?.cast_signed(),
            }),
            5 => Ok(Self::Enclose {
                id: from.number()?,
                listeners: from.number()?,
            }),
            6 => Ok(Self::Leave { id: from.number()? }),
            _ => Err(garbled()),
        }
    }
}

impl SupervisorReport {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Serializing numbers and text does not fail; if it did, the engine would reject the empty frame as garbled.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn decode(frame: &[u8]) -> io::Result<Self> {
        let report: Self = serde_json::from_slice(frame).map_err(|_| garbled())?;
        match &report {
            Self::Enclosed { ports, .. } if ports.len() > MAX_HANDLES => Err(garbled()),
            _ => Ok(report),
        }
    }
}

#[derive(Default)]
struct FrameWriter(Vec<u8>);

impl FrameWriter {
    fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        // `send` rejects a frame over the limit as a whole.
        self.number(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }

    fn list(&mut self, list: &[Vec<u8>]) {
        self.number(u32::try_from(list.len()).unwrap_or(u32::MAX));
        for item in list {
            self.bytes(item);
        }
    }
}

struct FrameReader<'a>(&'a [u8]);

impl<'a> FrameReader<'a> {
    fn number(&mut self) -> io::Result<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>().ok_or_else(garbled)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*head))
    }

    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let len = self.number()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or_else(garbled)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn list(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let count = self.number()? as usize;
        if count > self.0.len() / 4 {
            return Err(garbled());
        }
        (0..count)
            .map(|_| self.bytes().map(<[u8]>::to_vec))
            .collect()
    }
}

fn garbled() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a frame between the engine and its sandbox is garbled",
    )
}

/// Sends one frame, with the file descriptors attached to its first byte.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    payload: &[u8],
    handles: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if payload.len() > MAX_FRAME || handles.len() > MAX_HANDLES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the command line and environment are too long",
        ));
    }
    let mut frame = Vec::with_capacity(payload.len() + 4);
    frame.extend_from_slice(
        &u32::try_from(payload.len())
            .unwrap_or(u32::MAX)
            .to_le_bytes(),
    );
    frame.extend_from_slice(payload);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_HANDLES))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !handles.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(handles));
    }
    let mut sent = 0;
    while sent < frame.len() {
        let mut none = SendAncillaryBuffer::default();
        let beside = if sent == 0 { &mut beside } else { &mut none };
        match rustix::net::sendmsg(
            socket,
            &[IoSlice::new(&frame[sent..])],
            beside,
            SendFlags::NOSIGNAL,
        ) {
            Ok(count) => sent += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(())
}

/// The receiving end of the socket: collects bytes and file descriptors until a frame is complete.
#[derive(Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    handles: VecDeque<OwnedFd>,
}

impl Inbox {
    /// Blocks until there is something to read and reads it; returns `false` at the end of the stream.
    pub(crate) fn fill(&mut self, socket: impl AsFd) -> io::Result<bool> {
        let mut buffer = [0_u8; 16 << 10];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_HANDLES))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            let flags = RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(
                socket.as_fd(),
                &mut [IoSliceMut::new(&mut buffer)],
                &mut beside,
                flags,
            ) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(handles) = message {
                self.handles.extend(handles);
            }
        }
        self.bytes.extend_from_slice(&buffer[..got.bytes]);
        Ok(got.bytes > 0)
    }

    /// Returns the next complete frame, if there is one, without reading from the socket.
    pub(crate) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*head) as usize;
        if len > MAX_FRAME {
            return Err(garbled());
        }
        let Some(frame) = rest.get(..len).map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        self.bytes.drain(..len + 4);
        Ok(Some(frame))
    }

    /// Reads until a frame is complete; returns `None` if the other end is gone.
    pub(crate) fn wait(&mut self, socket: impl AsFd) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(frame) = self.next()? {
                return Ok(Some(frame));
            }
            if !self.fill(socket.as_fd())? {
                return Ok(None);
            }
        }
    }

    /// Returns the next file descriptor, in the order in which they were sent.
    pub(crate) fn handle(&mut self) -> Option<OwnedFd> {
        self.handles.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_handles_arrive_as_they_were_sent() {
        let (one, two) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let launch = CommandLaunch {
            id: 7,
            argv: vec![b"a".to_vec(), vec![0xff, b' ']],
            env: vec![b"A=1".to_vec()],
            dir: b"/x".to_vec(),
            access: Access::ReadOnly,
            layer: b"one".to_vec(),
            lends_tree: true,
            place: 3,
        };
        let request = SupervisorRequest::Run(Box::new(launch));
        send(one.as_fd(), &request.encode(), &[one.as_fd()]).expect("sent");
        send(
            one.as_fd(),
            &SupervisorRequest::Signal { id: 7, signal: -1 }.encode(),
            &[],
        )
        .expect("sent");
        let mut inbox = Inbox::default();
        inbox.fill(&two).expect("read");
        assert_eq!(
            SupervisorRequest::decode(&inbox.next().expect("whole").expect("one")).expect("read"),
            request
        );
        assert!(inbox.handle().is_some());
        while inbox.bytes.is_empty() {
            inbox.fill(&two).expect("read");
        }
        let next = inbox.next().expect("whole").expect("one");
        assert_eq!(
            SupervisorRequest::decode(&next).expect("read"),
            SupervisorRequest::Signal { id: 7, signal: -1 }
        );
        drop(one);
        assert!(!inbox.fill(&two).expect("the end"));
    }

    #[test]
    fn garbled_frames_are_refused() {
        for frame in [
            &[][..],
            &[9, 0, 0, 0],
            &[4, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255],
            &[3, 0, 0, 0, 1],
        ] {
            assert!(SupervisorRequest::decode(frame).is_err(), "{frame:?}");
            assert!(SupervisorReport::decode(frame).is_err(), "{frame:?}");
        }
        let mut inbox = Inbox {
            bytes: vec![255, 255, 255, 255, 0],
            ..Inbox::default()
        };
        assert!(inbox.next().is_err());
    }
}
