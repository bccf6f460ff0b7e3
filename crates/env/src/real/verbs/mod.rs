//! Remote memory (RDMA): cards that write to the memory of other hosts, through libibverbs. A safe
//! face for what one-sided writes need.
//!
//! ```text
//! writer:  Device ─ Memory (source) ─ QueuePair::source ──────── write ────────▶ card ─▶ card ─▶ Memory (target)  :owner
//!                                          │ ◀── completion ────────────────────────────┘             │
//!                                       Channel                                        Device ─ QueuePair::target
//! ```
//!
//! **What a completion says.** The queue pair is reliable and connected: a write that succeeded is
//! with the other host's card, which has begun to store it to that host's memory, and writes
//! complete in the order in which they were posted. When a processor of that host sees the bytes is
//! another matter; it does for certain once a completion of the same queue pair, which the card
//! stores behind them, is seen there. [`QueuePair::drained`] is that completion.
//!
//! **What revoking is.** [`QueuePair::fail`] puts the target's queue pair in the error state, in
//! which it takes no more packets; its one posted receive is flushed, and the completion of that
//! says that the pair has drained. Then [`QueuePair::end`] and [`Memory::end`]: the kernel returns
//! from the latter once the card no longer knows the memory, before it lets go of the pages. What
//! arrives afterwards is refused by the card.
//!
//! Nothing here can write to memory that is not registered: a card that is asked for more answers
//! with an error. So `unsafe` are the calls of the library, and the pointers that it hands out; the
//! rules are: each is destroyed once, after whatever was made of it ([`Arc`]s and the order of
//! fields), and memory that could not be deregistered is never given back.
//!
//! Thread safety: the library's calls may be made from any thread.

mod library;

#[cfg(test)]
mod tests;

use std::ffi::{CStr, c_int};
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use parking_lot::Mutex;

use super::words;
use crate::memory::Region;
use library::{
    Capacity, CompletionChannel, Context, Cq, GidEntry, Library, Mr, Opaque, Piece, PortAttributes, Qp,
    QpAttributes, QpInit, ReceiveRequest, SendRequest, WorkCompletion,
};

/// `IBV_PORT_ACTIVE`.
const PORT_ACTIVE: u32 = 4;
/// `IBV_GID_TYPE_ROCE_V2`.
const GID_ROUTABLE: u32 = 2;
/// Entries of a port's table of addresses that are looked at.
const GIDS_MAX: u32 = 256;
/// `IBV_ACCESS_LOCAL_WRITE` and `IBV_ACCESS_REMOTE_WRITE`.
const ACCESS_LOCAL_WRITE: u32 = 1;
const ACCESS_REMOTE_WRITE: u32 = 2;
/// `IBV_QPT_RC`.
const RELIABLE_CONNECTED: u32 = 2;
/// `IBV_QPS_…`.
const STATE_INIT: u32 = 1;
const STATE_RECEIVES: u32 = 2;
const STATE_SENDS: u32 = 3;
const STATE_ERROR: u32 = 6;
/// `IBV_QP_…`: which attributes a change of state sets.
const SET_INIT: c_int = 1 | 8 | 16 | 32;
const SET_RECEIVES: c_int = 1 | 128 | 256 | 4096 | 32_768 | 131_072 | 1_048_576;
const SET_SENDS: c_int = 1 | 512 | 1024 | 2048 | 8192 | 65_536;
const SET_STATE: c_int = 1;
/// `IBV_WR_RDMA_WRITE` and `IBV_SEND_SIGNALED`.
const OPERATION_WRITE: u32 = 0;
const SIGNALED: u32 = 2;
/// `IBV_WC_SUCCESS`.
const SUCCEEDED: u32 = 0;
/// An answer is waited for 4.096 µs · 2^15, some 0.13 s, and asked for so often again: one to four
/// seconds until a pair whose other side is gone fails. Not 7 times: the kernel's software card
/// takes that for endless.
const TIMEOUT: u8 = 15;
const RETRIES: u8 = 6;
/// The token of the receive that says when a target has drained.
const DRAIN: u64 = u64::MAX;

fn errno(code: c_int, what: &str) -> io::Error {
    // Calls of the library return an error's number, or −1 and leave it with the thread.
    let error = if code > 0 { io::Error::from_raw_os_error(code) } else { io::Error::last_os_error() };
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn made<T>(pointer: *mut T, what: &str) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| errno(-1, what))
}

fn done(code: c_int, what: &str) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(errno(code, what)) }
}

/// Which device: its name, its port and the place of the port's address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice<'a> {
    device: &'a str,
    port: u8,
    gid: Option<u8>,
}

impl Choice<'_> {
    /// Reads `DEVICE`, `DEVICE:PORT` or `DEVICE:PORT/GID`.
    fn parse(text: &str) -> Option<Choice<'_>> {
        let Some((device, place)) = text.split_once(':') else {
            return (!text.is_empty()).then_some(Choice { device: text, port: 1, gid: None });
        };
        let (port, gid) = match place.split_once('/') {
            None => (place, None),
            Some((port, gid)) => (port, Some(gid.parse().ok()?)),
        };
        Some(Choice { device, port: port.parse().ok().filter(|port| *port > 0)?, gid })
            .filter(|choice| !choice.device.is_empty())
    }
}

/// A card's port that was opened. Clones share it.
#[derive(Clone)]
pub struct Device(Arc<Opened>);

struct Opened {
    name: String,
    library: &'static Library,
    context: NonNull<Context>,
    domain: NonNull<Opaque>,
    port: u8,
    lid: u16,
    mtu: u32,
    is_ethernet: bool,
    gid: [u8; 16],
    gid_index: u8,
}

// SAFETY: the library's objects are bound to no thread, and its calls may be made from any; they
// are destroyed by the last owner alone.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl fmt::Debug for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Device").field(&self.0.name).finish()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the domain and the context are this value's own, and whatever was made of them
        // held a reference to it. Where one of them could not be destroyed these are refused, and
        // stay.
        unsafe {
            (self.library.dealloc_pd)(self.domain.as_ptr());
            (self.library.close_device)(self.context.as_ptr());
        }
    }
}

impl Device {
    /// Opens `DEVICE`, `DEVICE:PORT` or `DEVICE:PORT/GID`, its port 1 and a routable address of it
    /// unless they are said; `None`: the first device with a port that is up.
    ///
    /// # Errors
    /// `Unsupported` where the library is not installed; `NotFound` when there is no such device;
    /// `InvalidInput` for a text that names none; what the system says.
    pub fn open(which: Option<&str>) -> io::Result<Device> {
        let library =
            library::library().map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
        let choice = match which {
            None => None,
            Some(text) => Some(Choice::parse(text).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{text:?} is no device: write DEVICE, DEVICE:PORT or DEVICE:PORT/GID"),
                )
            })?),
        };
        let mut count = 0;
        // SAFETY: the library stores one number at the address.
        let list = unsafe { (library.get_device_list)(&raw mut count) };
        let list = made(list, "the devices cannot be listed")?;
        let mut last = io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no RDMA device {}", which.unwrap_or_default()),
        );
        let mut opened = None;
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` devices, and lives until it is freed below.
            let device = unsafe { *list.as_ptr().add(at) };
            // SAFETY: a device of the list, whose name is a string with its zero that lives as
            // long.
            let name =
                unsafe { CStr::from_ptr((library.get_device_name)(device)) }.to_string_lossy().into_owned();
            if choice.as_ref().is_some_and(|choice| choice.device != name) {
                continue;
            }
            let (port, gid) = choice.as_ref().map_or((1, None), |choice| (choice.port, choice.gid));
            // SAFETY: a device of the list.
            match unsafe { Device::open_listed(library, device, name, port, gid) } {
                Ok(device) => {
                    opened = Some(device);
                    break;
                }
                Err(error) => last = error,
            }
        }
        // SAFETY: as the library gave it; devices that were opened stay.
        unsafe { (library.free_device_list)(list.as_ptr()) };
        opened.ok_or(last)
    }

    /// # Safety
    /// `device` is of a list that was not freed.
    unsafe fn open_listed(
        library: &'static Library,
        device: *mut Opaque,
        name: String,
        port: u8,
        gid: Option<u8>,
    ) -> io::Result<Device> {
        // SAFETY: the caller's promise.
        let context = made(unsafe { (library.open_device)(device) }, &format!("{name} cannot be opened"))?;
        // SAFETY: a context that was just opened.
        let domain = match made(
            unsafe { (library.alloc_pd)(context.as_ptr()) },
            &format!("{name} has no protection domain left"),
        ) {
            Ok(domain) => domain,
            Err(error) => {
                // SAFETY: nothing was made of it.
                unsafe { (library.close_device)(context.as_ptr()) };
                return Err(error);
            }
        };
        let mut opened = Opened {
            name,
            library,
            context,
            domain,
            port,
            lid: 0,
            mtu: 1,
            is_ethernet: false,
            gid: [0; 16],
            gid_index: 0,
        };
        opened.look_at_port(gid)?;
        Ok(Device(Arc::new(opened)))
    }

    /// As it was opened.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The port's address, as IPv6.
    pub fn address(&self) -> std::net::Ipv6Addr {
        self.0.gid.into()
    }
}

impl Opened {
    fn look_at_port(&mut self, gid: Option<u8>) -> io::Result<()> {
        let mut port = PortAttributes::default();
        // SAFETY: an open context; the library fills no more than the structure has.
        let code = unsafe { (self.library.query_port)(self.context.as_ptr(), self.port, &raw mut port) };
        done(code, &format!("port {} of {}", self.port, self.name))?;
        if port.state != PORT_ACTIVE {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("port {} of {} is down", self.port, self.name),
            ));
        }
        (self.lid, self.mtu, self.is_ethernet) = (port.lid, port.active_mtu, port.is_ethernet());
        let entries = 0..u32::try_from(port.gid_table_length).unwrap_or(0).min(GIDS_MAX);
        let known = entries.filter_map(|index| Some((u8::try_from(index).ok()?, self.gid_at(index)?)));
        let chosen = match gid {
            Some(wanted) => known.into_iter().find(|(index, _)| *index == wanted),
            // Both sides choose alike: routable before others, of IPv4 before those.
            None => known.max_by_key(|(index, (gid, kind))| {
                let is_ipv4 = gid.starts_with(&[0; 10]) && gid[10..12] == [0xff, 0xff];
                (*kind == GID_ROUTABLE, is_ipv4, u8::MAX - index)
            }),
        };
        let none = || {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("port {} of {} has no such address", self.port, self.name),
            )
        };
        let (index, (gid, _)) = chosen.ok_or_else(none)?;
        (self.gid_index, self.gid) = (index, gid);
        Ok(())
    }

    /// An address of the port and its kind; `None` where the table has none.
    fn gid_at(&self, index: u32) -> Option<([u8; 16], u32)> {
        let mut entry = GidEntry::default();
        let bytes = size_of::<GidEntry>();
        // SAFETY: an open context; the library fills no more than the bytes that it is told of.
        let code = unsafe {
            (self.library.query_gid)(self.context.as_ptr(), self.port.into(), index, &raw mut entry, 0, bytes)
        };
        (code == 0 && entry.gid != [0; 16]).then_some((entry.gid, entry.kind))
    }
}

/// Where a queue pair is, for the one that it is to be connected with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The pair's number; 24 bits.
    pub queue: u32,
    /// The number of its first packet; 24 bits.
    pub first_packet: u32,
    /// The port's short address, on InfiniBand.
    pub lid: u16,
    /// Bytes of a packet: 1 is 256, 2 is 512, up to 5, which is 4096.
    pub mtu: u8,
    /// The port's long address.
    pub gid: [u8; 16],
}

/// Memory that a card may read, and where it is a target also writes to, for others who have the
/// key.
pub struct Memory {
    registration: Option<NonNull<Mr>>,
    /// `None` once it was leaked.
    region: Option<Region>,
    device: Device,
    local_key: u32,
    remote_key: u32,
}

// SAFETY: the registration and the memory are this value's own and bound to no thread; all access
// to the bytes is atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl fmt::Debug for Memory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Memory").field("bytes", &self.length()).finish_non_exhaustive()
    }
}

impl Memory {
    /// Memory that this side's writes are taken from, zeroed. Its pages are taken and pinned.
    ///
    /// # Errors
    /// What the system says: as a rule that so much may not be pinned (`ulimit -l`).
    pub fn source(device: &Device, bytes: usize) -> io::Result<Memory> {
        Memory::register(device, bytes, 0)
    }

    /// Memory that others write to, zeroed. Its pages are taken and pinned.
    ///
    /// # Errors
    /// As of [`Memory::source`].
    pub fn target(device: &Device, bytes: usize) -> io::Result<Memory> {
        Memory::register(device, bytes, ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE)
    }

    fn register(device: &Device, bytes: usize, access: u32) -> io::Result<Memory> {
        let Opened { library, domain, .. } = *device.0;
        let region = Region::new(bytes)?;
        let (base, length) = (region.base(), region.length());
        // SAFETY: the domain of an open device; the bytes are mapped, and stay so until the
        // registration has gone (`Memory::end`).
        let registration =
            unsafe { (library.reg_mr)(domain.as_ptr(), base.as_ptr().cast(), length, access.cast_signed()) };
        let registration = made(
            registration,
            &format!("{length} bytes cannot be registered with {} (ulimit -l)", device.name()),
        )?;
        // SAFETY: the library's structure, which stays until it is deregistered and whose keys do
        // not change.
        let (local_key, remote_key) =
            unsafe { (registration.as_ref().local_key, registration.as_ref().remote_key) };
        Ok(Memory {
            registration: Some(registration),
            region: Some(region),
            device: device.clone(),
            local_key,
            remote_key,
        })
    }

    fn base(&self) -> *mut u8 {
        self.region.as_ref().map_or(std::ptr::null_mut(), |region| region.base().as_ptr())
    }

    /// Bytes of it: whole pages.
    pub fn length(&self) -> usize {
        self.region.as_ref().map_or(0, Region::length)
    }

    /// Where its first byte is, for others who write there.
    pub fn address(&self) -> u64 {
        self.base().addr() as u64
    }

    /// What they must show.
    pub fn remote_key(&self) -> u32 {
        self.remote_key
    }

    fn range(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length()),
            "range {offset}+{length} lies outside {} registered bytes",
            self.length()
        );
        self.base().wrapping_add(offset)
    }

    /// Copies bytes out of it. Where a card writes meanwhile they may be torn.
    ///
    /// # Panics
    /// When the range lies outside.
    pub fn read(&self, offset: usize, buffer: &mut [u8]) {
        let address = self.range(offset, buffer.len());
        // SAFETY: the range was checked; the region lives as long as this value, and is accessed
        // here and by cards only.
        unsafe { words::load(address, buffer) };
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// When the range lies outside.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let address = self.range(offset, bytes.len());
        // SAFETY: as for `read`.
        unsafe { words::store(address, bytes) };
    }

    /// Takes the memory away from the card: from its return on the card neither reads nor writes
    /// it, and refuses such requests. The bytes stay.
    ///
    /// # Errors
    /// What the system says; then the card may go on, and the memory is kept for ever.
    pub fn end(&mut self) -> io::Result<()> {
        let Some(registration) = self.registration else { return Ok(()) };
        // SAFETY: registered, and deregistered once: where that succeeds it is forgotten.
        let code = unsafe { (self.device.0.library.dereg_mr)(registration.as_ptr()) };
        done(code, "memory stays registered")?;
        self.registration = None;
        // What the card stored before is seen by what reads after.
        fence(Ordering::SeqCst);
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.end().is_err() {
            // A card may write there at any time: nobody else may ever have it.
            std::mem::forget(self.region.take());
        }
    }
}

/// Tells of completions of the queue pairs that were made with it, by a descriptor that becomes
/// readable.
pub struct Channel {
    channel: NonNull<CompletionChannel>,
    /// Held while an event is taken, and while a queue is destroyed that one may be of.
    taking: Mutex<()>,
    device: Device,
}

// SAFETY: the channel is this value's own and bound to no thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl fmt::Debug for Channel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Channel").finish_non_exhaustive()
    }
}

impl Channel {
    /// A channel of its own.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(device: &Device) -> io::Result<Arc<Channel>> {
        // SAFETY: an open context.
        let channel = unsafe { (device.0.library.create_channel)(device.0.context.as_ptr()) };
        let channel = Channel {
            channel: made(channel, "a completion channel")?,
            taking: Mutex::new(()),
            device: device.clone(),
        };
        rustix::io::ioctl_fionbio(channel.descriptor(), true)?;
        Ok(Arc::new(channel))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's descriptor, which is open as long as the channel, and thus as this
        // borrow.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().descriptor) }
    }

    /// A descriptor that becomes readable when one of the queue pairs that are
    /// [armed](QueuePair::arm) has completions.
    ///
    /// # Errors
    /// What the system says.
    pub fn watched(&self) -> io::Result<OwnedFd> {
        self.descriptor().as_fd().try_clone_to_owned()
    }

    /// Takes one event, if there is one, and says the token of its queue pair. Does not wait.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; what the system says.
    pub fn take_event(&self) -> io::Result<usize> {
        let library = self.device.0.library;
        let (mut queue, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        let _taking = self.taking.lock();
        // SAFETY: a channel that lives; the library stores two pointers.
        let code = unsafe { (library.get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut context) };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a queue that lives: its destroyer holds the lock, and the kernel forgets
        // its events then.
        unsafe { (library.ack_cq_events)(queue, 1) };
        Ok(context.addr())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: this value's own; queues that use it hold a reference to it.
        unsafe { (self.device.0.library.destroy_channel)(self.channel.as_ptr()) };
    }
}

/// How something that was posted ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// As it was posted with.
    pub token: u64,
    /// `Err`: the card's reason, by number (`ibv_wc_status`), and its maker's. Nothing posted
    /// behind it succeeds.
    pub outcome: Result<(), (u32, u32)>,
}

/// A reliable connection with one other queue pair, and the queue of its completions.
pub struct QueuePair {
    /// `None` once it was destroyed.
    pair: Option<NonNull<Qp>>,
    completions: NonNull<Cq>,
    number: u32,
    first_packet: u32,
    /// Tells of its completions. Behind the queue: it goes later.
    channel: Option<Arc<Channel>>,
    device: Device,
}

// SAFETY: pair and queue are this value's own and bound to no thread.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl fmt::Debug for QueuePair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("QueuePair").field("number", &self.number).finish_non_exhaustive()
    }
}

impl QueuePair {
    /// One that writes to others' memory, at most `writes_max` at once; `channel` is told of
    /// completions, with `token`. `first_packet` is any number.
    ///
    /// # Errors
    /// What the system says.
    pub fn source(
        device: &Device,
        channel: &Arc<Channel>,
        token: usize,
        writes_max: u32,
        first_packet: u32,
    ) -> io::Result<QueuePair> {
        QueuePair::create(device, Some((Arc::clone(channel), token)), writes_max, first_packet, 0)
    }

    /// One through which another writes to this side's [targets](Memory::target).
    ///
    /// # Errors
    /// What the system says.
    pub fn target(device: &Device, first_packet: u32) -> io::Result<QueuePair> {
        let pair = QueuePair::create(device, None, 1, first_packet, ACCESS_REMOTE_WRITE)?;
        pair.post_drain()?;
        Ok(pair)
    }

    fn create(
        device: &Device,
        channel: Option<(Arc<Channel>, usize)>,
        writes_max: u32,
        first_packet: u32,
        access: u32,
    ) -> io::Result<QueuePair> {
        let Opened { library, context, domain, .. } = *device.0;
        let told = channel.as_ref().map_or(std::ptr::null_mut(), |(channel, _)| channel.channel.as_ptr());
        // A number in the clothes of an address: the library gives it back, and looks at it no
        // further.
        let token = std::ptr::without_provenance_mut(channel.as_ref().map_or(0, |(_, token)| *token));
        let channel = channel.map(|(channel, _)| channel);
        let entries = c_int::try_from(writes_max + 1).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: an open context, and a channel of it that lives, or none.
        let completions = unsafe { (library.create_cq)(context.as_ptr(), entries, token, told, 0) };
        let completions = made(completions, "a completion queue")?;
        let mut pair = QueuePair {
            pair: None,
            completions,
            number: 0,
            first_packet: first_packet & 0x00ff_ffff,
            channel,
            device: device.clone(),
        };
        let capacity = Capacity {
            sends_max: writes_max,
            receives_max: 1,
            send_pieces_max: 1,
            receive_pieces_max: 1,
            inline_bytes_max: 0,
        };
        let mut init = QpInit {
            context: std::ptr::null_mut(),
            send_cq: completions.as_ptr(),
            receive_cq: completions.as_ptr(),
            shared_receives: std::ptr::null_mut(),
            capacity,
            kind: RELIABLE_CONNECTED,
            signals_all: 0,
        };
        // SAFETY: the domain of an open device, and a queue of it that lives longer: it is
        // destroyed behind the pair.
        let created = made(unsafe { (library.create_qp)(domain.as_ptr(), &raw mut init) }, "a queue pair")?;
        pair.pair = Some(created);
        // SAFETY: the library's structure, which lives until the pair is destroyed, and whose
        // number does not change.
        pair.number = unsafe { created.as_ref().number };
        let change =
            QpAttributes { state: STATE_INIT, port: pair.device.0.port, access, ..QpAttributes::default() };
        pair.modify(change, SET_INIT)?;
        Ok(pair)
    }

    /// Where it is.
    pub fn endpoint(&self) -> Endpoint {
        let Opened { lid, mtu, gid, .. } = *self.device.0;
        Endpoint {
            queue: self.number,
            first_packet: self.first_packet,
            lid,
            mtu: u8::try_from(mtu).unwrap_or(1),
            gid,
        }
    }

    /// Connects it with `other`, which is connected with this one too. A source writes from here
    /// on; a target must have been connected before.
    ///
    /// # Errors
    /// What the system says: no way to the other's address, say.
    pub fn connect(&self, other: &Endpoint) -> io::Result<()> {
        let Opened { mtu, port, is_ethernet, gid_index, .. } = *self.device.0;
        let mut receives = QpAttributes {
            state: STATE_RECEIVES,
            mtu: mtu.min(other.mtu.into()).max(1),
            remote_number: other.queue & 0x00ff_ffff,
            receive_psn: other.first_packet & 0x00ff_ffff,
            remote_reads_max: 1,
            not_ready_timer: 12,
            ..QpAttributes::default()
        };
        let (high, low) = other.gid.split_at(8);
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        receives.route.gid = [word(high), word(low)];
        receives.route.own_gid_index = gid_index;
        receives.route.hops_max = 64;
        receives.route.lid = other.lid;
        receives.route.is_global = u8::from(is_ethernet || other.lid == 0);
        receives.route.port = port;
        self.modify(receives, SET_RECEIVES)?;
        let sends = QpAttributes {
            state: STATE_SENDS,
            timeout: TIMEOUT,
            retries: RETRIES,
            not_ready_retries: 7,
            send_psn: self.first_packet,
            reads_max: 1,
            ..QpAttributes::default()
        };
        self.modify(sends, SET_SENDS)
    }

    fn modify(&self, mut change: QpAttributes, set: c_int) -> io::Result<()> {
        let Some(pair) = self.pair else { return Err(io::ErrorKind::NotConnected.into()) };
        // SAFETY: a pair that lives; the library reads the attributes that `set` names.
        done(
            unsafe { (self.device.0.library.modify_qp)(pair.as_ptr(), &raw mut change, set) },
            "a queue pair does not change its state",
        )
    }

    /// Posts a write of bytes of `source` to `address` of the other side's memory with that key.
    /// Its completion bears `token`. When more are on their way than the pair was made for it is
    /// refused.
    ///
    /// The bytes are read while the write is on its way: to change them meanwhile changes
    /// the written data.
    ///
    /// # Errors
    /// What the card's driver says. Nothing was posted.
    ///
    /// # Panics
    /// When the range lies outside of `source`.
    pub fn write(
        &self,
        token: u64,
        source: &Memory,
        range: Range<usize>,
        address: u64,
        key: u32,
    ) -> io::Result<()> {
        let local = source.range(range.start, range.len());
        let Some(pair) = self.pair else { return Err(io::ErrorKind::NotConnected.into()) };
        let length = u32::try_from(range.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut piece = Piece { address: local.addr() as u64, length, key: source.local_key };
        let mut request = SendRequest {
            token,
            next: std::ptr::null_mut(),
            pieces: &raw mut piece,
            pieces_count: 1,
            operation: OPERATION_WRITE,
            flags: SIGNALED,
            immediate: 0,
            remote_address: address,
            remote_key: key,
            rest: [0; 9],
        };
        let mut refused = std::ptr::null_mut();
        // SAFETY: a pair that lives, and so its context, whose driver has the call; it copies what
        // the request says before it returns. The bytes are read later, by a card that knows them
        // by their key: as long as they are registered they are there.
        let code = unsafe {
            let Some(post) = (*pair.as_ref().context).post_send else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            post(pair.as_ptr(), &raw mut request, &raw mut refused)
        };
        done(code, "a write was not posted")
    }

    /// The receive that nothing is ever sent for.
    fn post_drain(&self) -> io::Result<()> {
        let Some(pair) = self.pair else { return Err(io::ErrorKind::NotConnected.into()) };
        let mut request = ReceiveRequest {
            token: DRAIN,
            next: std::ptr::null_mut(),
            pieces: std::ptr::null_mut(),
            pieces_count: 0,
        };
        let mut refused = std::ptr::null_mut();
        // SAFETY: as for `write`; no memory goes with it.
        let code = unsafe {
            let Some(post) = (*pair.as_ref().context).post_receive else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            post(pair.as_ptr(), &raw mut request, &raw mut refused)
        };
        done(code, "a receive was not posted")
    }

    /// Has the channel told of the next completion: for once. What completed before is not told of,
    /// and must be looked for behind this call.
    ///
    /// # Errors
    /// What the card's driver says.
    pub fn arm(&self) -> io::Result<()> {
        // SAFETY: a queue that lives, and so its context, whose driver has the call.
        let code = unsafe {
            let Some(arm) = (*self.completions.as_ref().context).req_notify_cq else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            arm(self.completions.as_ptr(), 0)
        };
        done(code, "completions are not told of")
    }

    /// The next completion, if there is one. Does not wait.
    ///
    /// # Errors
    /// What the card's driver says.
    pub fn completed(&self) -> io::Result<Option<Completed>> {
        let mut completion = WorkCompletion::default();
        // SAFETY: a queue that lives, and so its context, whose driver has the call; there is room
        // for one completion.
        let count = unsafe {
            let Some(poll) = (*self.completions.as_ref().context).poll_cq else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            poll(self.completions.as_ptr(), 1, &raw mut completion)
        };
        match count {
            0 => Ok(None),
            1 => {
                let WorkCompletion { token, status, vendor_error, .. } = completion;
                let outcome = if status == SUCCEEDED { Ok(()) } else { Err((status, vendor_error)) };
                Ok(Some(Completed { token, outcome }))
            }
            _ => Err(io::Error::other("completions cannot be looked at")),
        }
    }

    /// Puts it in the error state: it takes nothing any more, and posted writes are flushed.
    ///
    /// # Errors
    /// What the system says.
    pub fn fail(&self) -> io::Result<()> {
        self.modify(QpAttributes { state: STATE_ERROR, ..QpAttributes::default() }, SET_STATE)
    }

    /// Whether a target that has [failed](QueuePair::fail) has drained: whatever the other side
    /// knows to be written is seen by this processor, and nothing follows. Does not wait; once it
    /// has said so it is not asked again.
    ///
    /// # Errors
    /// What the card's driver says.
    pub fn drained(&self) -> io::Result<bool> {
        while let Some(completed) = self.completed()? {
            if completed.token == DRAIN {
                // Behind the completion that the card stored behind the bytes.
                fence(Ordering::SeqCst);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Destroys the pair: the card knows it no more.
    ///
    /// # Errors
    /// What the system says; then it stays.
    pub fn end(&mut self) -> io::Result<()> {
        let Some(pair) = self.pair else { return Ok(()) };
        // SAFETY: a pair that lives, destroyed once: where that succeeds it is forgotten.
        done(unsafe { (self.device.0.library.destroy_qp)(pair.as_ptr()) }, "a queue pair stays")?;
        self.pair = None;
        Ok(())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let _stays = self.end();
        let _taking = self.channel.as_ref().map(|channel| channel.taking.lock());
        // SAFETY: this value's own, and destroyed once; nobody takes an event of it meanwhile.
        // Where its pair stays this is refused, and the queue stays too.
        unsafe { (self.device.0.library.destroy_cq)(self.completions.as_ptr()) };
    }
}
