//! How the caller and the supervisor speak: frames on a socket pair, with handles beside them. Both ends are ours;
//! lengths are bounded all the same.

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

/// The longest frame: an environment and a command line at their largest.
const MAX_FRAME: usize = 8 << 20;
/// Handles that come with one frame, at most.
pub(crate) const MAX_HANDLES: usize = 4;

/// Bits of the limits that were hit.
pub(crate) const HIT_PROCESSES: u32 = 1;
pub(crate) const HIT_MEMORY: u32 = 2;

/// What the caller asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// Starts a command; standard input, output and error come beside it.
    Run(Box<Launch>),
    /// Signals everything in a command.
    Signal { id: u32, signal: i32 },
    /// Makes a place for an agent, with so many listeners on a loopback of its own; without any, its network is that of
    /// the sandbox.
    Enclose { id: u32, listeners: u32 },
    /// That place is not needed any more.
    Leave { id: u32 },
}

/// A command to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) id: u32,
    /// The program, by path or by name, and its words.
    pub(crate) argv: Vec<Vec<u8>>,
    /// `NAME=value`.
    pub(crate) env: Vec<Vec<u8>>,
    pub(crate) dir: Vec<u8>,
    /// Whether it may change what the sandbox lets be changed, or only looks.
    pub(crate) access: Access,
    /// The name of the layer that takes what it writes in the workspace; empty where there is none.
    pub(crate) layer: Vec<u8>,
    /// A socket comes as the fourth handle; the first process sends the mounted layer to it.
    pub(crate) lends_tree: bool,
    /// The place of an agent that it is started in; 0 for any other command.
    pub(crate) place: u32,
}

/// What the supervisor says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The view is built; beside it come the listener where one was asked for, and then the tree where it is not the
    /// workspace itself.
    Ready { port: u32, tree: bool },
    /// It could not be built.
    Refused(Refusal),
    /// A command ended, with the status as the kernel gives it; everything it started is gone.
    Ended { id: u32, status: i32, limits: u32 },
    /// A command was to be stopped; whether nothing of it runs any more.
    Paused { id: u32, stopped: bool },
    /// A command could not be started, or a place could not be made.
    Failed { id: u32, why: Refusal },
    /// A place is made; its listeners come beside it.
    Enclosed { id: u32, ports: Vec<u32> },
    /// A line for the log of developers.
    Log { line: String },
}

/// Why the supervisor cannot do what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// The kernel or its settings refuse a part of it; another tier may do.
    Unavailable(String),
    /// Something that was asked for is not there or cannot be: no tier would do.
    Invalid(String),
    /// A private layer over a directory cannot be had here.
    NoLayers(String),
}

impl Refusal {
    /// The same, with what it is about.
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

impl Request {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
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
        let mut from = Reader(frame);
        match from.number()? {
            1 => Ok(Self::Run(Box::new(Launch {
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

impl Report {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Numbers and text always have a form; an empty frame would be refused as garbled.
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
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        // Frames over the bound are refused as a whole when they are sent.
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

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
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

/// Sends one frame, with handles beside its first byte.
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

/// Receives frames.
#[derive(Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    handles: VecDeque<OwnedFd>,
}

impl Inbox {
    /// Reads what is there, waiting for something; `false` at the end.
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

    /// The next whole frame, if there is one.
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

    /// The next whole frame, which is waited for; none when the other end is gone.
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

    /// The next handle that came beside a frame.
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
        let launch = Launch {
            id: 7,
            argv: vec![b"a".to_vec(), vec![0xff, b' ']],
            env: vec![b"A=1".to_vec()],
            dir: b"/x".to_vec(),
            access: Access::ReadOnly,
            layer: b"one".to_vec(),
            lends_tree: true,
            place: 3,
        };
        let request = Request::Run(Box::new(launch));
        send(one.as_fd(), &request.encode(), &[one.as_fd()]).expect("sent");
        send(
            one.as_fd(),
            &Request::Signal { id: 7, signal: -1 }.encode(),
            &[],
        )
        .expect("sent");
        let mut inbox = Inbox::default();
        inbox.fill(&two).expect("read");
        assert_eq!(
            Request::decode(&inbox.next().expect("whole").expect("one")).expect("read"),
            request
        );
        assert!(inbox.handle().is_some());
        while inbox.bytes.is_empty() {
            inbox.fill(&two).expect("read");
        }
        let next = inbox.next().expect("whole").expect("one");
        assert_eq!(
            Request::decode(&next).expect("read"),
            Request::Signal { id: 7, signal: -1 }
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
            assert!(Request::decode(frame).is_err(), "{frame:?}");
            assert!(Report::decode(frame).is_err(), "{frame:?}");
        }
        let mut inbox = Inbox {
            bytes: vec![255, 255, 255, 255, 0],
            ..Inbox::default()
        };
        assert!(inbox.next().is_err());
    }
}
