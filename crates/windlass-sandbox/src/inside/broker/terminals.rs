//! Pseudoterminals. A command creates one with `/dev/ptmx` and asks the kernel to open its slave end. Landlock refuses
//! that, because the slave end lies in `/dev/pts`, which also contains the terminals of other programs. The broker
//! opens the slave end, but only of a terminal that the command itself created.

use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags};

use super::super::notify::{Errno, SuspendedCall};
use super::super::overlay::handle_path;
use super::super::{processes, sys};
use super::{Broker, CallReply};

/// The device that creates a pseudoterminal.
const PTMX: &str = "/dev/ptmx";
/// The directory of the slave ends, which are named by number.
const SLAVES: &str = "/dev/pts";
/// The line of `/proc/PID/fdinfo` with the number of a terminal.
const INDEX_LINE: &str = "tty-index:";

impl Broker {
    pub(super) fn open_terminal(&self, call: &SuspendedCall) -> Result<CallReply, Errno> {
        let handle = call.args[0] as i32;
        let flags = OFlags::from_bits_retain(call.args[2] as u32);
        let accepted = OFlags::RWMODE | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if !accepted.contains(flags) {
            return Err(Errno(libc::EINVAL));
        }
        let number = self.terminal_of(call, handle)?;
        let place = format!("{SLAVES}/{number}");
        let name = rustix::fs::open(
            place,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        // The command may have closed its terminal since, and another program may have got one with the same number.
        // But no two terminals have the same number at a time, and a name can be opened only while its terminal exists.
        // So if the command still holds the terminal of this number, `name` either is that terminal or cannot be
        // opened.
        if self.terminal_of(call, handle)? != number
            || rustix::fs::fstat(&name)?.st_dev != device_of_terminals()?
        {
            return Err(Errno(libc::EIO));
        }
        // The terminal must not become the broker's controlling terminal. The command makes it its own with another
        // call.
        let flags_here =
            (flags & (OFlags::RWMODE | OFlags::NONBLOCK)) | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave_end = rustix::fs::open(handle_path(name.as_fd()), flags_here, Mode::empty())?;
        self.listener
            .give(call.id, slave_end.as_fd(), flags.contains(OFlags::CLOEXEC))?;
        Ok(CallReply::Elsewhere)
    }

    /// Returns the number of the terminal that a file descriptor of the command created.
    fn terminal_of(&self, call: &SuspendedCall, handle: i32) -> Result<u32, Errno> {
        let (made_by, maker) = (
            rustix::fs::fstat(self.open_handle(call, handle)?)?,
            rustix::fs::stat(PTMX)?,
        );
        if (made_by.st_dev, made_by.st_ino) != (maker.st_dev, maker.st_ino) {
            return Err(Errno(libc::ENOTTY));
        }
        let text = std::fs::read_to_string(format!("/proc/{}/fdinfo/{handle}", call.pid))?;
        processes::field(&text, INDEX_LINE).ok_or(Errno(libc::ENOTTY))
    }
}

/// Returns the device number of the file system in which `/dev/ptmx` creates terminals. In a container, `/dev/pts` may
/// be another one.
fn device_of_terminals() -> Result<u64, Errno> {
    let terminal = rustix::fs::open(
        PTMX,
        OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    Ok(rustix::fs::fstat(sys::slave_end(terminal.as_fd())?)?.st_dev)
}

#[cfg(test)]
mod tests {
    use super::super::super::processes::field;
    use super::INDEX_LINE;

    #[test]
    fn the_number_of_a_terminal_is_found() {
        assert_eq!(
            field::<u32>("pos:\t0\nflags:\t02100002\ntty-index:\t12\n", INDEX_LINE),
            Some(12)
        );
        assert_eq!(
            field::<u32>("pos:\t0\nflags:\t02100002\n", INDEX_LINE),
            None
        );
    }
}
