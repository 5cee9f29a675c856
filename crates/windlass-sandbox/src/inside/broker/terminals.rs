//! Terminals. A command makes one with `/dev/ptmx` and asks the kernel for its other end. Landlock refuses that, because
//! the other end lies in `/dev/pts`, where the terminals of other programs are, too. The broker opens the other end, and
//! only of a terminal that the command itself holds.

use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags};

use super::super::layer::handle_path;
use super::super::notify::{Call, Errno};
use super::super::{processes, sys};
use super::{Broker, Reply};

/// The device that makes a terminal.
const MAKER: &str = "/dev/ptmx";
/// The directory of the other ends, by number.
const OTHER_ENDS: &str = "/dev/pts";
/// The line with the number of a terminal in what the kernel says of a handle.
const NUMBER: &str = "tty-index:";

impl Broker {
    pub(super) fn open_terminal(&self, call: &Call) -> Result<Reply, Errno> {
        let handle = call.args[0] as i32;
        let flags = OFlags::from_bits_retain(call.args[2] as u32);
        let accepted = OFlags::RWMODE | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if !accepted.contains(flags) {
            return Err(Errno(libc::EINVAL));
        }
        let number = self.terminal_of(call, handle)?;
        let place = format!("{OTHER_ENDS}/{number}");
        let name = rustix::fs::open(
            place,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        // The command may have closed its terminal since, and another program may have one with the same number. The
        // kernel opens a name only while its terminal exists, and no two terminals have one number at a time. So if the
        // command holds the terminal of this number now, the name is that of its terminal, or cannot be opened.
        if self.terminal_of(call, handle)? != number
            || rustix::fs::fstat(&name)?.st_dev != device_of_terminals()?
        {
            return Err(Errno(libc::EIO));
        }
        // The terminal must not come to control the broker. A command takes its terminal by a call of its own.
        let flags_here =
            (flags & (OFlags::RWMODE | OFlags::NONBLOCK)) | OFlags::NOCTTY | OFlags::CLOEXEC;
        let other_end = rustix::fs::open(handle_path(name.as_fd()), flags_here, Mode::empty())?;
        self.listener
            .give(call.id, other_end.as_fd(), flags.contains(OFlags::CLOEXEC))?;
        Ok(Reply::Elsewhere)
    }

    /// The number of the terminal that a handle of the command made.
    fn terminal_of(&self, call: &Call, handle: i32) -> Result<u32, Errno> {
        let (made_by, maker) = (
            rustix::fs::fstat(self.open_handle(call, handle)?)?,
            rustix::fs::stat(MAKER)?,
        );
        if (made_by.st_dev, made_by.st_ino) != (maker.st_dev, maker.st_ino) {
            return Err(Errno(libc::ENOTTY));
        }
        let text = std::fs::read_to_string(format!("/proc/{}/fdinfo/{handle}", call.pid))?;
        processes::field(&text, NUMBER).ok_or(Errno(libc::ENOTTY))
    }
}

/// The file system of the terminals that are made here. In a container, `/dev/pts` could be another one.
fn device_of_terminals() -> Result<u64, Errno> {
    let terminal = rustix::fs::open(
        MAKER,
        OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    Ok(rustix::fs::fstat(sys::other_end(terminal.as_fd())?)?.st_dev)
}

#[cfg(test)]
mod tests {
    use super::super::super::processes::field;
    use super::NUMBER;

    #[test]
    fn the_number_of_a_terminal_is_found() {
        assert_eq!(
            field::<u32>("pos:\t0\nflags:\t02100002\ntty-index:\t12\n", NUMBER),
            Some(12)
        );
        assert_eq!(field::<u32>("pos:\t0\nflags:\t02100002\n", NUMBER), None);
    }
}
