//! libibverbs, as far as it is used: its structures, and its functions, looked up when a device is
//! first asked for.
//!
//! A program that is built with it starts where the library is not installed. Structures are laid
//! out as version 1.1 of the library's binary interface does, which has been kept since 2007; the
//! assertions below hold what `infiniband/verbs.h` of rdma-core 44 says on 64-bit machines. Calls
//! on the fast path are no functions of the library but of a device's driver, reached through the
//! context.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::OnceLock;

/// An opaque C structure.
#[repr(C)]
pub(super) struct Opaque {
    _private: [u8; 0],
}

pub(super) type PollCq = unsafe extern "C" fn(*mut Cq, c_int, *mut WorkCompletion) -> c_int;
pub(super) type ReqNotifyCq = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
pub(super) type PostSend = unsafe extern "C" fn(*mut Qp, *mut SendRequest, *mut *mut SendRequest) -> c_int;
pub(super) type PostReceive =
    unsafe extern "C" fn(*mut Qp, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int;

/// `ibv_context`, its beginning.
#[repr(C)]
pub(super) struct Context {
    device: *mut Opaque,
    before_poll: [*mut c_void; 11],
    pub(super) poll_cq: Option<PollCq>,
    pub(super) req_notify_cq: Option<ReqNotifyCq>,
    before_post: [*mut c_void; 12],
    pub(super) post_send: Option<PostSend>,
    pub(super) post_receive: Option<PostReceive>,
}

/// `ibv_cq` and `ibv_qp`, their beginning.
#[repr(C)]
pub(super) struct Cq {
    pub(super) context: *mut Context,
}

#[repr(C)]
pub(super) struct Qp {
    pub(super) context: *mut Context,
    fields: [*mut c_void; 5],
    handle: u32,
    pub(super) number: u32,
}

/// `ibv_mr`.
#[repr(C)]
pub(super) struct Mr {
    fields: [*mut c_void; 4],
    handle: u32,
    pub(super) local_key: u32,
    pub(super) remote_key: u32,
}

/// `ibv_comp_channel`, its beginning.
#[repr(C)]
pub(super) struct CompletionChannel {
    context: *mut Context,
    pub(super) descriptor: c_int,
}

/// `ibv_port_attr`.
#[repr(C)]
#[derive(Default)]
pub(super) struct PortAttributes {
    pub(super) state: u32,
    max_mtu: u32,
    pub(super) active_mtu: u32,
    pub(super) gid_table_length: i32,
    capabilities: [u32; 4],
    partition_keys: u16,
    pub(super) lid: u16,
    sm_lid: u16,
    bytes: [u8; 14],
}

/// `ibv_gid_entry`.
#[repr(C)]
#[derive(Default)]
pub(super) struct GidEntry {
    pub(super) gid: [u8; 16],
    index: u32,
    port: u32,
    pub(super) kind: u32,
    device: u32,
}

/// `ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Capacity {
    pub(super) sends_max: u32,
    pub(super) receives_max: u32,
    pub(super) send_pieces_max: u32,
    pub(super) receive_pieces_max: u32,
    pub(super) inline_bytes_max: u32,
}

/// `ibv_qp_init_attr`.
#[repr(C)]
pub(super) struct QpInit {
    pub(super) context: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) receive_cq: *mut Cq,
    pub(super) shared_receives: *mut c_void,
    pub(super) capacity: Capacity,
    pub(super) kind: u32,
    pub(super) signals_all: c_int,
}

/// `ibv_ah_attr`, with its `ibv_global_route`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Route {
    pub(super) gid: [u64; 2],
    flow_label: u32,
    pub(super) own_gid_index: u8,
    pub(super) hops_max: u8,
    traffic_class: u8,
    pub(super) lid: u16,
    service_level: u8,
    path_bits: u8,
    rate: u8,
    pub(super) is_global: u8,
    pub(super) port: u8,
}

/// `ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpAttributes {
    pub(super) state: u32,
    pub(super) current_state: u32,
    pub(super) mtu: u32,
    pub(super) migration: u32,
    pub(super) queue_key: u32,
    pub(super) receive_psn: u32,
    pub(super) send_psn: u32,
    pub(super) remote_number: u32,
    pub(super) access: u32,
    pub(super) capacity: Capacity,
    pub(super) route: Route,
    pub(super) alternative: Route,
    pub(super) partition_key_index: u16,
    pub(super) alternative_partition_key: u16,
    pub(super) notify: u8,
    pub(super) draining: u8,
    pub(super) reads_max: u8,
    pub(super) remote_reads_max: u8,
    pub(super) not_ready_timer: u8,
    pub(super) port: u8,
    pub(super) timeout: u8,
    pub(super) retries: u8,
    pub(super) not_ready_retries: u8,
    pub(super) alternative_port: u8,
    pub(super) alternative_timeout: u8,
    pub(super) rate: u32,
}

/// `ibv_sge`.
#[repr(C)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) key: u32,
}

/// `ibv_send_wr`, of a write.
#[repr(C)]
pub(super) struct SendRequest {
    pub(super) token: u64,
    pub(super) next: *mut SendRequest,
    pub(super) pieces: *mut Piece,
    pub(super) pieces_count: c_int,
    pub(super) operation: u32,
    pub(super) flags: u32,
    pub(super) immediate: u32,
    pub(super) remote_address: u64,
    pub(super) remote_key: u32,
    pub(super) rest: [u64; 9],
}

/// `ibv_recv_wr`.
#[repr(C)]
pub(super) struct ReceiveRequest {
    pub(super) token: u64,
    pub(super) next: *mut ReceiveRequest,
    pub(super) pieces: *mut Piece,
    pub(super) pieces_count: c_int,
}

/// `ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct WorkCompletion {
    pub(super) token: u64,
    pub(super) status: u32,
    operation: u32,
    pub(super) vendor_error: u32,
    bytes: u32,
    immediate: u32,
    queue: u32,
    rest: [u32; 4],
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(Context, poll_cq) == 96 && offset_of!(Context, req_notify_cq) == 104);
    assert!(offset_of!(Context, post_send) == 208 && offset_of!(Context, post_receive) == 216);
    assert!(
        offset_of!(Qp, number) == 52 && offset_of!(Mr, local_key) == 36 && offset_of!(Mr, remote_key) == 40
    );
    assert!(offset_of!(CompletionChannel, descriptor) == 8);
    assert!(size_of::<PortAttributes>() == 52 && offset_of!(PortAttributes, lid) == 34);
    assert!(size_of::<GidEntry>() == 32 && offset_of!(GidEntry, kind) == 24);
    assert!(
        size_of::<QpInit>() == 64 && offset_of!(QpInit, capacity) == 32 && offset_of!(QpInit, kind) == 52
    );
    assert!(
        size_of::<Route>() == 32 && offset_of!(Route, own_gid_index) == 20 && offset_of!(Route, lid) == 24
    );
    assert!(offset_of!(Route, is_global) == 29 && offset_of!(Route, port) == 30);
    assert!(size_of::<QpAttributes>() == 144 && offset_of!(QpAttributes, route) == 56);
    assert!(
        offset_of!(QpAttributes, partition_key_index) == 120
            && offset_of!(QpAttributes, remote_reads_max) == 127
    );
    assert!(offset_of!(QpAttributes, timeout) == 130 && offset_of!(QpAttributes, rate) == 136);
    assert!(size_of::<SendRequest>() == 128 && offset_of!(SendRequest, remote_key) == 48);
    assert!(size_of::<ReceiveRequest>() == 32 && size_of::<Piece>() == 16);
    assert!(size_of::<WorkCompletion>() == 48 && offset_of!(WorkCompletion, vendor_error) == 16);
};

/// Where the link layer of a port stands in [`PortAttributes::bytes`], and what it is for Ethernet.
const LINK_LAYER_AT: usize = 46 - 38;

impl PortAttributes {
    pub(super) fn is_ethernet(&self) -> bool {
        self.bytes[LINK_LAYER_AT] == 2
    }
}

macro_rules! library {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The library's functions.
        pub(super) struct Library {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Library {
            fn load() -> Result<Library, String> {
                let handle = open()?;
                Ok(Library {
                    $($field: {
                        let address = symbol(handle, $symbol)?;
                        // SAFETY: the symbol is a function of the library, whose header declares it
                        // with these arguments and this result.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) -> $result,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

library! {
    fork_init = c"ibv_fork_init": fn() -> c_int;
    get_device_list = c"ibv_get_device_list": fn(*mut c_int) -> *mut *mut Opaque;
    free_device_list = c"ibv_free_device_list": fn(*mut *mut Opaque) -> ();
    get_device_name = c"ibv_get_device_name": fn(*mut Opaque) -> *const c_char;
    open_device = c"ibv_open_device": fn(*mut Opaque) -> *mut Context;
    close_device = c"ibv_close_device": fn(*mut Context) -> c_int;
    query_port = c"ibv_query_port": fn(*mut Context, u8, *mut PortAttributes) -> c_int;
    query_gid = c"_ibv_query_gid_ex": fn(*mut Context, u32, u32, *mut GidEntry, u32, usize) -> c_int;
    alloc_pd = c"ibv_alloc_pd": fn(*mut Context) -> *mut Opaque;
    dealloc_pd = c"ibv_dealloc_pd": fn(*mut Opaque) -> c_int;
    reg_mr = c"ibv_reg_mr": fn(*mut Opaque, *mut c_void, usize, c_int) -> *mut Mr;
    dereg_mr = c"ibv_dereg_mr": fn(*mut Mr) -> c_int;
    create_channel = c"ibv_create_comp_channel": fn(*mut Context) -> *mut CompletionChannel;
    destroy_channel = c"ibv_destroy_comp_channel": fn(*mut CompletionChannel) -> c_int;
    create_cq = c"ibv_create_cq": fn(
        *mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int
    ) -> *mut Cq;
    destroy_cq = c"ibv_destroy_cq": fn(*mut Cq) -> c_int;
    get_cq_event = c"ibv_get_cq_event": fn(*mut CompletionChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events = c"ibv_ack_cq_events": fn(*mut Cq, u32) -> ();
    create_qp = c"ibv_create_qp": fn(*mut Opaque, *mut QpInit) -> *mut Qp;
    modify_qp = c"ibv_modify_qp": fn(*mut Qp, *mut QpAttributes, c_int) -> c_int;
    destroy_qp = c"ibv_destroy_qp": fn(*mut Qp) -> c_int;
}

/// The library, if it is installed.
pub(super) fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let load = || {
        let library = Library::load()?;
        // Children of this process must not take pages along that a card writes to. Kernels from
        // 5.12 on copy them when they are made, and need no more. SAFETY: the call may be made at
        // any time before memory is registered, which this module alone does, later.
        let _refused = unsafe { (library.fork_init)() };
        Ok(library)
    };
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn open() -> Result<*mut c_void, String> {
    // SAFETY: a string with its zero; the library's initialisers are those of a system's library,
    // fit for any process.
    let handle = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    // Never closed: the functions stay.
    if handle.is_null() { Err(format!("libibverbs is not there: {}", said())) } else { Ok(handle) }
}

fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: a handle that `open` gave, and a string with its zero.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if address.is_null() { Err(format!("libibverbs is too old: {}", said())) } else { Ok(address) }
}

/// What the loader says of its last failure on this thread.
fn said() -> String {
    // SAFETY: the call takes nothing; what it returns is null, or a string that stays until this
    // thread's next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: not null, as above, and read before any other call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
